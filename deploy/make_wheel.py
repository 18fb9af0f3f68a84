#!/usr/bin/env python3
"""Makes a Python wheel of a bundle (deploy/wheel.sh, which calls it).

    deploy/make_wheel.py BUNDLE FOLDER

BUNDLE: what deploy/bundle.sh has made. FOLDER: where the wheel goes,
under the name that its version asks for.
"""

import base64
import hashlib
import json
import os
import re
import sys
import tarfile
import zipfile

sys.dont_write_bytecode = True
import release_documents

PACKAGE = "python/catchment"
# The bundle brings its own C library; this is the oldest one that any Python for PyTorch 2.1 runs with.
TAG = "py3-none-manylinux_2_17_x86_64"
# Programs find the first beside them; the others are for readers, and link to each other.
BUNDLE = ("bin/", "lib/", "licenses/", "deploy/")
TEXTS = ("README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
PAGES = ("docs/", "deploy/", "examples/", *TEXTS)
PROGRAMS = ("catchment", "catchment_server", "catchment_worker")
# The packages that each integration needs. cloudpickle copies functions of a notebook to
# the processes of workers.
EXTRAS = {
    "torch": ["torch>=2.1"],
    "lightning": ["torch>=2.1", "lightning>=2.2"],
    "transformers": ["torch>=2.1", "transformers>=4.46", "accelerate"],
    "keras": ["keras>=3.15"],
    "jax": ["jax>=0.10"],
    "notebook": ["cloudpickle"],
    "wandb": ["wandb>=0.18"],
    # MLflow's client, which is a part of the package mlflow, too.
    "mlflow": ["mlflow-skinny>=2.14"],
    # The first with the storage in a journal.
    "tune": ["optuna>=4"],
}
METADATA = """Metadata-Version: 2.1
Name: catchment
Version: {version}
Summary: Trains PyTorch, Keras, JAX and NumPy models with asynchronous or synchronous SGD on parameter servers
License: Apache-2.0
License-File: LICENSE
Keywords: parameter server,distributed training,asynchronous SGD,deep learning
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Requires-Python: >=3.8
{extras}
Description-Content-Type: text/markdown

# Catchment

Catchment is a parameter server for data-parallel training: servers hold the weights, workers compute
gradients. A PyTorch program changes three lines:

```python
import catchment.torch as catchment

worker = catchment.join(model, train)
for x, y in DataLoader(worker.minibatches(), batch_size=None):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    worker.step(loss)
```

```
catchment train --program="python train.py" --workers=2 --set algorithm.preset=downpour
```

`catchment.train()` does the same from a script or a notebook. A first run, without a program and data:

```
catchment examples examples
catchment train examples/drawn_digits.textproto --workers=2
```

This package has the programs `catchment`, `catchment_server` and `catchment_worker` with all of their
libraries, the C library included, for Linux on x86-64 with AVX2. Its pages are in
`share/doc/catchment/docs` of the environment; begin with `python.md`. `share/doc/catchment/deploy` starts it
on clusters: `catchment slurm` and `catchment manifests`, certificates, Prometheus. The extras {names}
install what the integrations of these names need.
"""
WHEEL = """Wheel-Version: 1.0
Generator: catchment (deploy/make_wheel.py)
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = "[console_scripts]\n" + "".join("%s = catchment._command:main\n" % name for name in PROGRAMS)
# The same bytes from the same files.
TIME = (1980, 1, 1, 0, 0, 0)
CREATED = "1980-01-01T00:00:00Z"


class Wheel:
    def __init__(self, path):
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._record = []

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name, TIME)
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append("%s,sha256=%s,%d" % (name, digest, len(data)))

    def close(self, record):
        self._record.append(record + ",,")
        text = "\n".join(self._record) + "\n"
        info = zipfile.ZipInfo(record, TIME)
        info.external_attr = 0o100644 << 16
        self._zip.writestr(info, text)
        self._zip.close()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def add_bundle(wheel, bundle):
    """Adds programs, libraries, licenses, pages, what starts daemons on clusters, completion, and the package
    that the bundle has. Returns the version, and the texts of VERSION and LIBRARIES."""
    version, texts = None, {}
    with tarfile.open(bundle) as tar:
        for member in sorted(tar.getmembers(), key=lambda one: one.name):
            folder, _, name = member.name.partition("/")
            version = version or re.fullmatch(r"catchment-(.+)", folder)[1]
            if not member.isfile():
                continue
            data = tar.extractfile(member).read()
            if name in ("VERSION", "LIBRARIES"):
                texts[name] = data.decode()
            mode = 0o755 if member.mode & 0o100 else 0o644
            if name.startswith(BUNDLE) or name in texts:
                wheel.add("catchment/_bundle/" + name, data, mode)
            if name.startswith(PAGES):
                wheel.add("catchment-%s.data/data/share/doc/catchment/%s" % (version, name), data, mode)
            if name.startswith(PACKAGE + "/"):
                wheel.add(name[len("python/") :], data)
            elif name.startswith("share/"):
                wheel.add("catchment-%s.data/data/%s" % (version, name), data)
            elif name == "LICENSE":
                wheel.add("catchment-%s.dist-info/LICENSE" % version, data)
    return version, texts.get("VERSION", ""), texts.get("LIBRARIES", "")


def bill_of_materials(version, about, libraries):
    """Returns the SPDX document of the libraries in the wheel (PEP 770)."""
    commit = re.search(r"^commit: (\S+)$", about, re.MULTILINE)
    return (
        json.dumps(
            release_documents.bill_of_materials(
                libraries, version, commit[1] if commit else "unknown", CREATED, "deploy/make_wheel.py"
            ),
            indent=1,
        )
        + "\n"
    )


def metadata(version):
    lines = []
    for name, packages in EXTRAS.items():
        lines.append("Provides-Extra: " + name)
        lines += ['Requires-Dist: %s; extra == "%s"' % (package, name) for package in packages]
    names = ", ".join("`%s`" % name for name in EXTRAS)
    return METADATA.format(version=version, extras="\n".join(lines), names=names)


def main():
    bundle, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    unnamed = os.path.join(folder, "wheel.part")
    wheel = Wheel(unnamed)
    version, text, libraries = add_bundle(wheel, bundle)
    about = "catchment-%s.dist-info/" % version
    wheel.add(about + "sboms/catchment.spdx.json", bill_of_materials(version, text, libraries).encode())
    wheel.add(about + "METADATA", metadata(version).encode())
    wheel.add(about + "WHEEL", WHEEL.format(tag=TAG).encode())
    wheel.add(about + "entry_points.txt", ENTRY_POINTS.encode())
    wheel.close(about + "RECORD")
    path = os.path.join(folder, "catchment-%s-%s.whl" % (version, TAG))
    os.rename(unnamed, path)
    print("wheel: %s: %d MB" % (path, os.path.getsize(path) >> 20))


if __name__ == "__main__":
    main()
