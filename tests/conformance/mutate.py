#!/usr/bin/env python3
"""Breaks the arithmetic of every rule, one place at a time, and reports which breaks no test notices.

Works on a copy of the tree, so the tree itself is never broken. A break is tried against the tests next to the rule
first, and against the conformance suite if they let it pass. A survivor is a break that all of them let pass: either a
test is missing, or the line makes no difference, which tests/conformance/survivors.md then explains.

    tests/conformance/mutate.py                    everything: some hundred breaks, hours on 2 cores
    tests/conformance/mutate.py --only gap_aware   files whose path has this in it
    tests/conformance/mutate.py --list             what would be broken, and how
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Folder or file of rules -> the tests next to it.
RULES = {
    "server/compensation": ["//tests/server/compensation/..."],
    "server/rules": ["//tests/server/rules/..."],
    "server/optimizers": ["//tests/server/optimizers/..."],
    "server/gate.cc": ["//tests/server:gate_test", "//tests/server:shard_waiting_test"],
    "server/group.cc": ["//tests/server:group_test"],
    "server/worker_scaling.cc": ["//tests/server:worker_scaling_test"],
    "worker/algorithms": ["//tests/worker/algorithms/..."],
    "common/job/learning_rate.cc": ["//tests/common/job:learning_rate_test", "//tests/common/job:learning_rate_golden_test"],
}
SUITE = ["//tests/conformance/..."]

# What is broken, and into what; each match of each line is one break.
BREAKS = [
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " / "), (r" / ", " * "),
    (r" \+= ", " -= "), (r" -= ", " += "),
    (r" < ", " >= "), (r" <= ", " > "), (r" > ", " <= "), (r" >= ", " < "), (r" == ", " != "), (r" != ", " == "),
    (r" && ", " || "), (r" \|\| ", " && "),
    (r"std::min\b", "std::max"), (r"std::max\b", "std::min"), (r"std::(f?abs)\(", r"-std::\1("),
    (r"\b1 - ", "2 - "), (r"= -(?=[a-z])", "= "),
    (r"\b(\d+\.\d+f?|\d+e-?\d+f?)\b", r"(2 * \1)"),
]
# Loops, checks, strings and declarations are not arithmetic.
SKIP = re.compile(r'^\s*(//|#|namespace|using|template|CHECK|LOG|assert)|for \(|"')


def breaks_of(path):
    for number, line in enumerate(path.read_text().splitlines()):
        if SKIP.search(line):
            continue
        code = line.split("//")[0]
        for pattern, replacement in BREAKS:
            for match in re.finditer(pattern, code):
                broken = line[:match.start()] + match.expand(replacement) + line[match.end():]
                yield number, line, broken


def sources(root):
    for rule, tests in RULES.items():
        path = root / rule
        for file in sorted(path.glob("*.cc")) if path.is_dir() else [path]:
            yield file, tests


def bazel_test(root, targets):
    """Whether the tests notice: they fail, or the code does not even compile."""
    command = ["bazel", "test", "--noshow_progress", "--curses=no", "--color=no", "--test_output=summary",
               "--test_timeout=120", *targets]
    return subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="", help="part of a path")
    arguments.add_argument("--list", action="store_true", help="break nothing")
    options = arguments.parse_args()

    tree = Path(__file__).resolve().parents[2]
    plan = [(file.relative_to(tree), tests, b) for file, tests in sources(tree) if options.only in str(file)
            for b in breaks_of(file)]
    if options.list:
        for file, _, (number, line, broken) in plan:
            print(f"{file}:{number + 1}\n  {line.strip()}\n  {broken.strip()}")
        print(f"{len(plan)} breaks")
        return 0

    copy = Path(tempfile.mkdtemp(prefix="mutate_")) / tree.name
    files = subprocess.run(["git", "ls-files", "-z"], cwd=tree, check=True, capture_output=True).stdout.decode()
    for name in filter(None, files.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, copy / name)
    if (tree / "user.bazelrc").exists():
        shutil.copy2(tree / "user.bazelrc", copy)
    nearest = sorted({target for _, tests, _ in plan for target in tests})
    print(f"{len(plan)} breaks; building in {copy}", flush=True)
    if bazel_test(copy, nearest + SUITE):
        sys.exit("the tests fail as they are; mend that first")

    survivors, start = [], time.time()
    for done, (file, tests, (number, line, broken)) in enumerate(plan, 1):
        path = copy / file
        text = path.read_text()
        lines = text.splitlines(keepends=True)
        lines[number] = broken + "\n"
        path.write_text("".join(lines))
        if not bazel_test(copy, tests) and not bazel_test(copy, SUITE):
            survivors.append((file, number, line, broken))
            print(f"survives: {file}:{number + 1}\n  {line.strip()}\n  {broken.strip()}", flush=True)
        path.write_text(text)
        left = (time.time() - start) / done * (len(plan) - done)
        print(f"{done} of {len(plan)}, {len(survivors)} survive, about {left / 60:.0f} minutes left", flush=True)
    shutil.rmtree(copy.parent)
    print(f"{len(plan)} breaks, {len(survivors)} survivors")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
