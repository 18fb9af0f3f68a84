#!/usr/bin/env python3
"""Runs every command over every preset and job: validate, simulate, advise, compare --dry_run and two steps
of train. Each answers, or refuses the job with the sentence that `catchment validate` prints. The jobs are
the examples and dense models of 80, 1,000 and 6 million parameters, each with small data and with data that
is not on this machine, and synthetic models of these sizes.

    every_command_test.py         a sample that has each pair of preset and command, and each job
    every_command_test.py --all   all of them: nightly
"""

import concurrent.futures
import glob
import os
import random
import re
import subprocess
import sys

SCRATCH = os.environ["TEST_TMPDIR"]
CATCHMENT = os.path.abspath("cli/catchment")
WORKERS, BATCH_SIZE, STEPS = 2, 2, 2
PATIENCE = 900  # seconds; a command without an answer by then has failed
PARAMETERS = {"80": 80, "1000": 1000, "6m": 6000000}
MODELS = {"80": [(9, 8)], "1000": [(9, 100)], "6m": [(9, 2440), (2440, 2440), (2440, 3)]}
NO_DATA = re.compile(r"data\.[a-z_.0-9]+: .*(no file|no directory|is not in|nowhere)|CATCHMENT_DATA")


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    return path


def write_model(name, layers, directory):
    """Writes a job that trains dense layers, each (inputs, units), on a table in the directory."""
    units = " ".join("layers { dense { units: %d } }" % units for _, units in layers)
    return write(
        "%s/jobs/%s.textproto" % (SCRATCH, name),
        """name: "%s" model { %s } workers: %d
data { table { train: "train.csv" test: "test.csv" directory: "%s" shape: %d classes: %d } }
"""
        % (name, units, WORKERS, directory, layers[0][0], layers[-1][1]),
    )


def write_table(directory, inputs, classes):
    generator = random.Random(1)
    for name in ("train.csv", "test.csv"):
        rows = [[generator.gauss(0, 1) for _ in range(inputs)] + [row % classes] for row in range(120)]
        write("%s/%s" % (directory, name), "".join(",".join(map(str, row)) + "\n" for row in rows))
    return directory


# A small source for the examples of each source.
SMALL = {
    "mnist": "data.drawn_digits={train_samples: 200 test_samples: 50}",
    "drawn_digits": "data.drawn_digits={train_samples: 200 test_samples: 50}",
    "cifar10": "data.generated_images={train_samples: 64 test_samples: 8 size: 32 classes: 10}",
    "generated_images": "data.generated_images={train_samples: 64 test_samples: 8}",
    "image_folder": "data.generated_images={train_samples: 64 test_samples: 8}",
    "generated_events": "data.generated_events={train_samples: 200 test_samples: 50}",
    "synthetic": "data.synthetic={samples: 200}",
}


def jobs():
    """Yields each job: its file, and the settings of its data."""
    for path in sorted(glob.glob("examples/*.textproto") + glob.glob("examples/algorithms/*.textproto")):
        with open(path) as file:
            source = re.search(r"^data \{\s*(\w+)", file.read(), re.MULTILINE).group(1)
        small = SMALL.get(source) or "data.table.directory=" + write_table(SCRATCH + "/table", 2, 3)
        yield path, ["--set=" + small]
        if source in ("mnist", "cifar10", "image_folder", "table"):
            yield path, []
    for size, layers in MODELS.items():
        assert 0.99 < sum((i + 1) * o for i, o in layers) / PARAMETERS[size] < 1.01
        table = write_table("%s/table-%s" % (SCRATCH, size), layers[0][0], layers[-1][1])
        yield write_model("table_" + size, layers, table), []
        yield write_model("absent_" + size, layers, SCRATCH + "/absent"), []
        yield (
            write(
                "%s/jobs/synthetic_%s.textproto" % (SCRATCH, size),
                """name: "synthetic_%s"
data { synthetic {} } model { synthetic { parameters: %d step_ms: 1 } } workers: %d
"""
                % (size, PARAMETERS[size], WORKERS),
            ),
            [],
        )


def presets():
    return sorted(os.path.basename(path).split(".")[0] for path in glob.glob("examples/algorithms/*"))


def settings(preset, data):
    return data + [
        "--set=algorithm.preset=" + preset,
        "--set=workers=%d" % WORKERS,
        "--set=batch_size=%d" % BATCH_SIZE,
        "--set=samples=%d" % (STEPS * WORKERS * BATCH_SIZE),
    ]


def command_line(command, job, preset, out):
    """Returns the arguments of a command for a job with a preset; it writes to `out`."""
    path, data = job
    changed = settings(preset, data)
    # A comparison has flags for these.
    compared = [one for one in changed if not re.match("--set=(algorithm.preset|workers)=", one)] + [
        "--algorithms=" + preset,
        "--workers=%d" % WORKERS,
        "--seeds=1",
    ]
    step = "--step=constant:10ms"
    return {
        "validate": ["validate", path] + changed,
        "simulate": ["simulate", path, "--out=" + out, step, "--search=none"] + compared,
        "advise": ["advise", path, step] + changed,
        "compare": ["compare", path, "--dry_run"] + compared,
        "train": ["train", path, "--out=" + out] + changed,
    }[command]


COMMANDS = ("validate", "simulate", "advise", "compare", "train")


def run(arguments):
    # Without CATCHMENT_DATA and HOME no data set of the machine is found.
    environment = {"PATH": os.environ["PATH"], "TMPDIR": SCRATCH}
    done = subprocess.run(
        [CATCHMENT] + arguments,
        env=environment,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    return done.returncode, done.stdout


def fault(number, command, job, preset):
    """Returns what is wrong with a command's answer; None if nothing is."""
    arguments = command_line(command, job, preset, "%s/out-%d" % (SCRATCH, number))
    code, text = run(arguments)
    if command == "validate":
        return None if code == 0 or refusal(text) else answer_of(arguments, code, text)
    if code == 0:
        return None
    valid, why = run(command_line("validate", job, preset, ""))
    if valid != 0:
        return None if any(line in text for line in refusal(why)) else answer_of(arguments, code, text, why)
    # A command that computes on the data needs it; advice and plans do not.
    if command in ("simulate", "train") and NO_DATA.search(text):
        return None
    return answer_of(arguments, code, text)


def refusal(text):
    """Returns the sentences about fields in what `validate` printed."""
    return [line.strip() for line in text.splitlines() if re.match(r"\s*[a-z_]+[a-z_.\[\]0-9]*: ", line)]


def answer_of(arguments, code, text, why=""):
    told = "catchment %s: exit code %d\n%s" % (" ".join(arguments), code, text[-1500:])
    return told + ("\nvalidate says:\n" + why if why else "")


def cases(everything):
    all_jobs, all_presets = list(jobs()), presets()
    if everything:
        return [(c, j, p) for j in all_jobs for p in all_presets for c in COMMANDS]
    pairs = [(command, preset) for preset in all_presets for command in COMMANDS]
    generator = random.Random(1)
    sample = []
    while len(sample) < len(pairs):  # each job before any is repeated
        sample += generator.sample(all_jobs, len(all_jobs))
    return [(command, job, preset) for (command, preset), job in zip(pairs, sample)]


def share(todo):
    """Returns what this shard runs, if Bazel runs the test in shards."""
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        write(os.environ["TEST_SHARD_STATUS_FILE"], "")
    shards = int(os.environ.get("TEST_TOTAL_SHARDS", 1))
    # Shuffles, because every fifth command is an `advise`, which takes most of the time.
    random.Random(1).shuffle(todo)
    return todo[int(os.environ.get("TEST_SHARD_INDEX", 0)) :: shards]


def main():
    todo = share(cases("--all" in sys.argv[1:]))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = [pool.submit(fault, number, *case) for number, case in enumerate(todo)]
        failed = 0
        for answer in concurrent.futures.as_completed(answers):
            if answer.result() is not None:
                failed += 1
                print("FAILED: " + answer.result() + "\n", flush=True)
    print("%d of %d commands failed" % (failed, len(todo)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
