#!/usr/bin/env python3
"""Counts the lines of code of each room, without comments, docstrings and blank lines, against a budget.

    tests/size.py           what exceeds the budget
    tests/size.py --all     all rooms, too

A room is a folder without its subfolders; tests are one room for each folder of tests/, and all BUILD and
.bzl files are one. A room may grow beyond BUDGET by as many lines as CHANGELOG.md grants it, at the entry of
the feature that needs them: "Budget: `server/shard` +120." Exit codes: 0 within the budget, 1 not.
"""

import argparse
import ast
import collections
import io
import os
import re
import subprocess
import sys
import tokenize

GRANT = re.compile(r"`([^`]+)` \+([\d,]+)")
# Matches comments, and strings, in which // begins none.
CPP = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def lines_of_cpp(text):
    text = CPP.sub(lambda match: "" if match[0].startswith("/") else match[0], text)
    return sum(1 for line in text.splitlines() if line.strip())


def lines_of_python(text):
    docs = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docs.update(range(node.lineno, node.end_lineno + 1))
    code = set()
    layout = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docs)


def lines_of_shell(text):
    return sum(1 for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def counter_of(path, text):
    """Returns the function that counts the lines of the file, or None if it is not code."""
    if path.endswith((".h", ".cc", ".cu", ".proto")):
        return lines_of_cpp
    if path.endswith(".py") or text.startswith("#!/usr/bin/env python3"):
        return lines_of_python
    if path.endswith((".sh", ".sbatch", ".bzl", "BUILD", "WORKSPACE")) or text.startswith("#!"):
        return lines_of_shell
    return None


def room_of(path):
    if path.endswith((".bzl", "BUILD", "WORKSPACE")):
        return "BUILD"
    if path.startswith("tests/"):
        return "/".join(path.split("/")[:2]) if path.count("/") > 1 else "tests"
    return os.path.dirname(path) or "."


def count():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    rooms = collections.Counter()
    for path in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        if not os.path.isfile(path):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except UnicodeDecodeError:
            continue
        counter = counter_of(path, text)
        if counter:
            rooms[room_of(path)] += counter(text)
    return rooms


def granted():
    """Returns the lines that CHANGELOG.md grants to each room."""
    with open("CHANGELOG.md", encoding="utf-8") as file:
        entries = re.findall(r"Budget: ([^.]*)\.", file.read())
    lines = collections.Counter()
    for room, number in (grant for entry in entries for grant in GRANT.findall(entry)):
        lines[room] += int(number.replace(",", ""))
    return lines


def main():
    parser = argparse.ArgumentParser(description="Counts the lines of each room.")
    parser.add_argument("--all", action="store_true", help="print all rooms")
    arguments = parser.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    rooms, more = count(), granted()
    if arguments.all:
        for room, lines in sorted(rooms.items()):
            print(f"{lines:7,} {room}")
        tests = sum(lines for room, lines in rooms.items() if room.startswith("tests"))
        product = sum(rooms.values()) - tests - rooms["BUILD"]
        print(f"{product:,} of the product, {tests:,} of tests, {rooms['BUILD']:,} in BUILD and .bzl files")
    problems = []
    for room in sorted(set(rooms) | set(more) | set(BUDGET)):
        budget = BUDGET.get(room, 0) + more[room]
        if room not in rooms:
            problems.append(f"{room}: there is no code; remove it from BUDGET and CHANGELOG.md")
        elif rooms[room] > budget:
            problems.append(
                f"{room}: {rooms[room]:,} lines of code, {rooms[room] - budget} beyond its budget; delete "
                "what is not needed, or name the feature in CHANGELOG.md with "
                f'"Budget: `{room}` +{rooms[room] - budget}."'
            )
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


BUDGET = {
    ".ci": 43,
    "BUILD": 6316,
    "cli": 644,
    "cli/base": 811,
    "cli/cluster": 711,
    "cli/doctor": 868,
    "cli/job": 1858,
    "cli/live": 1796,
    "cli/local": 1247,
    "cli/simulate": 122,
    "common/base": 1872,
    "common/bazel": 8,
    "common/checkpoint": 1525,
    "common/codec": 772,
    "common/energy": 167,
    "common/job": 5012,
    "common/measures": 1195,
    "common/metrics": 378,
    "common/net": 1783,
    "common/program": 694,
    "common/start": 291,
    "common/trace": 470,
    "common/wire": 320,
    "deploy": 965,
    "deploy/container": 24,
    "deploy/gpu": 732,
    "deploy/kubernetes": 73,
    "deploy/slurm": 341,
    "docs": 430,
    "examples/python": 926,
    "kernels": 136,
    "kernels/cpu": 3141,
    "kernels/cuda": 4688,
    "kernels/device": 126,
    "optim": 651,
    "proto": 1828,
    "python/catchment": 5496,
    "python/catchment/study": 4655,
    "python/catchment/study/advise": 631,
    "python/catchment/study/launchers": 536,
    "server": 45,
    "server/control": 7325,
    "server/edge": 3798,
    "server/host": 1634,
    "server/outputs": 483,
    "server/process": 1152,
    "server/rules": 903,
    "server/shard": 3647,
    "simulation": 1823,
    "tests": 645,
    "tests/benchmarks": 4917,
    "tests/chaos": 941,
    "tests/cli": 5236,
    "tests/cluster": 6893,
    "tests/common": 9941,
    "tests/conformance": 2968,
    "tests/deploy": 2931,
    "tests/docs": 898,
    "tests/fuzz": 1397,
    "tests/kernels": 4979,
    "tests/optim": 918,
    "tests/python": 11488,
    "tests/server": 21043,
    "tests/simulation": 703,
    "tests/worker": 9893,
    "worker": 283,
    "worker/algorithms": 768,
    "worker/attach": 952,
    "worker/client": 958,
    "worker/data": 1617,
    "worker/data/sources": 1299,
    "worker/data/table": 1898,
    "worker/loop": 1919,
    "worker/model": 711,
}

if __name__ == "__main__":
    sys.exit(main())
