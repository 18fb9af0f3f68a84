#!/usr/bin/env python3
"""Runs examples/python/tutorial.ipynb, as Jupyter would, on a small stand-in for MNIST. PYTHON has PyTorch,
cloudpickle, nbclient, ipykernel and safetensors (tests/python/requirements/notebook.txt).

bazel test //tests/python:notebook_test --test_env=PYTHON=/path/to/venv/bin/python
"""

import os
import random
import struct
import sys
import tempfile
import unittest

PYTHON = os.environ.get("PYTHON")
if PYTHON and os.path.abspath(PYTHON) != sys.executable:
    os.execv(PYTHON, [PYTHON, *sys.argv])

import nbclient
import nbformat

FOLDER = "cli" if os.path.exists("cli/catchment") else "bazel-bin/cli"


def write_digits(directory, kind, samples):
    """Writes images whose class is the brightest of ten rows, and their classes, as IDX files."""
    rng = random.Random(kind)
    labels = [rng.randrange(10) for _ in range(samples)]
    rows = [
        bytes(
            rng.randrange(200, 256) if row == 2 * label + 4 else rng.randrange(0, 60)
            for row in range(28)
            for _ in range(28)
        )
        for label in labels
    ]
    with open(os.path.join(directory, kind + "-images-idx3-ubyte"), "wb") as file:
        file.write(struct.pack(">4I", 0x803, samples, 28, 28) + b"".join(rows))
    with open(os.path.join(directory, kind + "-labels-idx1-ubyte"), "wb") as file:
        file.write(struct.pack(">2I", 0x801, samples) + bytes(labels))


class NotebookTest(unittest.TestCase):
    def test_the_tutorial_trains_and_shows_pictures(self):
        with tempfile.TemporaryDirectory() as directory:
            mnist = os.path.join(directory, "mnist")
            os.mkdir(mnist)
            write_digits(mnist, "train", 640)
            write_digits(mnist, "t10k", 100)
            os.environ.update(
                CATCHMENT_DATA=directory,
                TUTORIAL_SAMPLES="3200",
                PYTHONPATH=os.path.abspath("python"),
                TMPDIR=directory,
                PATH=os.path.abspath(FOLDER) + ":" + os.environ["PATH"],
            )
            notebook = nbformat.read("examples/python/tutorial.ipynb", as_version=4)
            nbformat.validate(notebook)
            self.check(notebook, 10000)
            self.assertLessEqual(os.path.getsize("examples/python/tutorial.ipynb"), 300_000)
            nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
            self.check(notebook, 100)

    def check(self, notebook, samples):
        """Checks the outputs, those that are kept with the notebook and those of a run."""
        shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        kinds = [kind for output in shown if "data" in output for kind in output.data]
        self.assertEqual((kinds.count("text/html"), kinds.count("image/svg+xml")), (2, 1), kinds)
        pages = [output.data["text/html"] for output in shown if "text/html" in output.get("data", {})]
        self.assertIn("DONE", pages[0])
        self.assertIn("</svg>", pages[1])
        text = "".join(output.text for output in shown if output.output_type == "stream")
        self.assertRegex(text, r"\d+ of %d test images classified correctly" % samples)
        self.assertIn("[2/2] downpour, 2 workers, seed 1:", text)


if __name__ == "__main__":
    unittest.main()
