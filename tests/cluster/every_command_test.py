#!/usr/bin/env python3
"""Runs every command over every preset and job: validate, simulate, advise, compare --dry_run and two steps
of train, with real daemons. Each answers, or refuses the job with the sentences that `catchment validate`
prints for it, which say what to do. No output, nor the log of a daemon, shows a crash.

The jobs are the examples and models of 80, 1,000 and 6 million parameters: with small data, with data that is
not on this machine, without data, and with the data of a program. The binary lists the presets.

    every_command_test.py         a sample that has each job, and each pair of preset and command but for
                                  half of those of advise, which tries all presets
    every_command_test.py --all   all of them: nightly
"""

import concurrent.futures
import glob
import itertools
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys

SCRATCH = os.environ["TEST_TMPDIR"]
CATCHMENT = os.path.abspath("cli/catchment")
WORKERS, BATCH_SIZE, STEPS = 2, 2, 2
PATIENCE = 900  # seconds; a command without an answer by then has failed
COMMANDS = ("simulate", "advise", "compare", "train")
PARAMETERS = {"80": 80, "1000": 1000, "6m": 6000000}
MODELS = {"80": [(9, 8)], "1000": [(9, 100)], "6m": [(9, 2440), (2440, 2440), (2440, 3)]}

# Commands need data or a program besides a valid job, and say so.
NO_DATA = r"data\.[a-z_.0-9]+: .*(no file|no directory|is not in|nowhere)|CATCHMENT_DATA"
HERE, ABSENT, PROGRAM = (
    {},
    {"simulate": NO_DATA, "train": NO_DATA},
    {"simulate": "use --gradient=", "train": "add --program="},
)
CRASH = re.compile(
    r"Traceback \(most recent|^\w*(Error|Exception): |Check failed|\*\*\* (SIG|Aborted)|[Ii]nternal error"
    r"|\bINTERNAL\b|Segmentation fault|core dumped|Sanitizer",
    re.MULTILINE,
)
REMEDY = re.compile(
    r"\b(add|choose|create|delete|end with|fetch|give|leave|lower|must be|pass|put|raise|set|use)\b",
    re.IGNORECASE,
)


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


def write_weights(path, values):
    header = {"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 4 * values)
    return path


def jobs():
    """Yields each job: its file, the settings of its data, and what commands say that it needs."""
    for path in sorted(glob.glob("examples/**/*.textproto", recursive=True)):
        with open(path) as file:
            source = re.search(r"^data \{\s*(\w+)", file.read(), re.MULTILINE).group(1)
        small = SMALL.get(source) or "data.table.directory=" + write_table(SCRATCH + "/table", 2, 3)
        yield path, ["--set=" + small], HERE
        if source in ("mnist", "cifar10", "image_folder", "table"):
            yield path, [], ABSENT
    for size, layers in MODELS.items():
        parameters = PARAMETERS[size]
        assert 0.99 < sum((i + 1) * o for i, o in layers) / parameters < 1.01
        table = write_table("%s/table-%s" % (SCRATCH, size), layers[0][0], layers[-1][1])
        yield write_model("table_" + size, layers, table), [], HERE
        yield write_model("absent_" + size, layers, SCRATCH + "/absent"), [], ABSENT
        yield write_model("without_" + size, layers, table), ["--set=data={}"], HERE
        yield write_synthetic(size, parameters), [], HERE
        yield write_program(size, parameters), [], PROGRAM


def write_synthetic(size, parameters):
    return write(
        "%s/jobs/synthetic_%s.textproto" % (SCRATCH, size),
        """name: "synthetic_%s"
data { synthetic {} } model { synthetic { parameters: %d step_ms: 1 } } workers: %d
"""
        % (size, parameters, WORKERS),
    )


def write_program(size, parameters):
    """Writes a job whose model and data are those of a program, which is not given."""
    return write(
        "%s/jobs/program_%s.textproto" % (SCRATCH, size),
        """name: "program_%s" workers: %d
model { external { tensors { name: "w" shape: %d } } initial_weights: "%s" }
data { external { train_samples: 200 test_samples: 50 } }
"""
        % (size, WORKERS, parameters, write_weights("%s/weights-%s" % (SCRATCH, size), parameters)),
    )


def presets():
    """Returns the names of the presets of the binary."""
    command = [CATCHMENT, "validate", "--door"]
    asked = subprocess.run(command, input='{"about": true}\n', stdout=subprocess.PIPE, text=True)
    return [preset["name"] for preset in json.loads(asked.stdout)["presets"]]


def settings(preset, data):
    return data + [
        "--set=algorithm.preset=" + preset,
        "--set=workers=%d" % WORKERS,
        "--set=batch_size=%d" % BATCH_SIZE,
        "--set=samples=%d" % (STEPS * WORKERS * BATCH_SIZE),
    ]


def command_line(command, job, preset, out):
    """Returns the arguments of a command for a job with a preset; it writes to `out`."""
    path, data, _ = job
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


def fault(number, command, preset, job):
    """Returns what is wrong with a command's answer; None if nothing is."""
    out = "%s/out-%d" % (SCRATCH, number)
    valid, why = run(command_line("validate", job, preset, ""))
    arguments = command_line(command, job, preset, out)
    code, text = run(arguments)
    needed = job[2].get(command) if valid == 0 else None
    wrong = wrong_with(valid, why) or wrong_with(code, text, needed)
    if not wrong and valid != 0 and not set(refusal(why)) <= set(refusal(text)):
        wrong = "does not say what validate says"
    if not wrong and valid == 0 and (code == 0) == bool(needed):
        wrong = "does without what it needs" if needed else "refuses a job that is valid"
    if not wrong and code == 0:
        wrong = wrong_in(out, command)
    shutil.rmtree(out, ignore_errors=True)
    if not wrong:
        return None
    answers = (" ".join(arguments), code, wrong, text[-1500:], valid, why[-1500:] if valid else "")
    return "catchment %s: exit code %d, %s:\n%s\nvalidate: exit code %d\n%s" % answers


def wrong_with(code, text, needed=None):
    """Returns what is wrong with an output on its own; `needed`: what it says if it refuses."""
    if code not in (0, 1):
        return "is neither an answer nor a refusal"
    if CRASH.search(text):
        return "crashed"
    if not text.strip():
        return "says nothing"
    if code == 0:
        return None
    said = [text] if needed and re.search(needed, text) else refusal(text)
    without = [line for line in said if not REMEDY.search(line)]
    return "gives no remedy: " + "; ".join(without) if without or not said else None


def wrong_in(out, command):
    """Returns what is wrong with the files of a command that has ended well."""
    if command == "train" and not os.path.exists(out + "/summary.json"):
        return "has no summary.json"
    for path in glob.glob(out + "/**/*.log", recursive=True):
        with open(path, errors="replace") as file:
            crash = CRASH.search(file.read())
        if crash:
            return "%s has %s" % (os.path.basename(path), crash.group())
    return None


def refusal(text):
    """Returns the sentences about fields in what a command printed."""
    found = re.findall(r"^\s*(?:catchment \w+: )?([a-z_]+[a-z_.\[\]0-9]*: .*)", text, re.MULTILINE)
    return [line.strip() for line in found]


def cases(everything):
    all_jobs, all_presets = list(jobs()), presets()
    if everything:
        return [(c, p, j) for j in all_jobs for p in all_presets for c in COMMANDS]
    pairs = [(c, p) for p in all_presets for c in COMMANDS if c != "advise"]
    pairs += [("advise", preset) for preset in all_presets[::2]]
    generator = random.Random(1)
    length = max(len(pairs), len(all_jobs))
    # Repeats a job or a pair only after each of its kind.
    shuffled = [generator.sample(all_jobs, len(all_jobs)) for _ in range(length // len(all_jobs) + 1)]
    sample = itertools.chain.from_iterable(shuffled)
    return [(*pair, job) for pair, job, _ in zip(itertools.cycle(pairs), sample, range(length))]


def share(todo):
    """Returns what this shard runs, if Bazel runs the test in shards."""
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        write(os.environ["TEST_SHARD_STATUS_FILE"], "")
    shards = int(os.environ.get("TEST_TOTAL_SHARDS", 1))
    # Shuffles, because every fourth command is an `advise`, which takes most of the time.
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
