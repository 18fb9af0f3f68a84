#!/usr/bin/env python3
"""Checks which folders include which others, by the table of docs/architecture.md, and where tests lie.

    tests/layers.py

The table is the block of text below "<!-- layers -->". Each line names a folder and the folders whose headers
it may include; a folder covers its subfolders, unless they have lines of their own. proto is below all of
them. The table must have no circle and no arrow that no file uses, and the folders themselves, subfolders
included, must have no circle. A line that ends with "(pure)" must not reach gRPC, by any chain of includes.
A C++ test lies in the folder of tests/ that has the name of the product's folder that it tests; if a file of
the product is called as the test is, without "_test", it lies beside it. Exempt are suites: folders of tests/
that the product does not have. Prints what differs. Exit codes: 0 nothing, 1 something.
"""

import os
import re
import subprocess
import sys

TABLE = re.compile(r"<!-- layers -->\n```text\n(.*?)```", re.DOTALL)
INCLUDE = re.compile(r'^#include ["<]([^">]+)[">]', re.MULTILINE)


def read_table():
    """Returns the folders that each folder may include, and the folders that must not reach gRPC."""
    with open("docs/architecture.md", encoding="utf-8") as file:
        match = TABLE.search(file.read())
    if not match:
        sys.exit('docs/architecture.md: has no block of text below "<!-- layers -->"')
    allowed, pure = {}, set()
    for line in re.sub(r"\n +", " ", match[1]).splitlines():
        folder, _, others = line.partition("->")
        if others.strip().endswith("(pure)"):
            pure.add(folder.strip())
        allowed[folder.strip()] = set(re.sub(r"\(.*\)|,", " ", others).split())
    return allowed, pure


def source_files():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.h", "*.cc", "*.cu"]
    paths = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return [path for path in paths if os.path.exists(path)]


def includes_of_product(paths):
    """Returns the included paths of each source file of the product."""
    found = {}
    for path in paths:
        if not path.startswith(("tests/", "docs/")):
            with open(path, encoding="utf-8") as file:
                found[path] = INCLUDE.findall(file.read())
    return found


def find_circle(allowed):
    """Returns a list of folders, each of which includes the next and the last of which
    is the first, or None."""
    done = set()

    def visit(folder, trail):
        if folder in trail:
            return trail[trail.index(folder) :] + [folder]
        if folder in done:
            return None
        for other in sorted(allowed.get(folder, ())):
            circle = visit(other, trail + [folder])
            if circle:
                return circle
        done.add(folder)
        return None

    return next(filter(None, (visit(folder, []) for folder in allowed)), None)


def arrows_between_folders(included):
    """Returns the folders that each folder includes. The main.cc of a program is above its folder."""
    arrows = {}
    for path, others in included.items():
        folder = path if path.endswith("/main.cc") else os.path.dirname(path)
        targets = {os.path.dirname(other) for other in others if "/" in other} - {folder}
        arrows.setdefault(folder, set()).update(targets)
    return arrows


def grpc_chain(path, included, done):
    """Returns the files from `path` to the first one that includes gRPC, or None."""
    for other in included.get(path, ()):
        if other.startswith("grpc") or other.endswith(".grpc.pb.h"):
            return [path, other]
        if other not in done:
            done.add(other)
            chain = grpc_chain(other, included, done)
            if chain:
                return [path] + chain
    return None


def misplaced_tests(paths):
    """Returns a line for each C++ test that does not lie beside what it tests."""
    folders_of = {}  # by the name of a file, without its ending
    for path in paths:
        if not path.startswith("tests/"):
            folders_of.setdefault(os.path.basename(path).partition(".")[0], set()).add(os.path.dirname(path))
    rooms = set().union(*folders_of.values())
    # The folders of tests' own helpers.
    helpers = {os.path.dirname(path) for path in paths if path.startswith("tests/") and path.endswith(".h")}
    problems = []
    for path in paths:
        folder, name = os.path.split(path)
        if not folder.startswith("tests/") or not name.endswith("_test.cc"):
            continue
        room = folder[len("tests/") :]
        wanted = folders_of.get(name[: -len("_test.cc")], set())
        if room.split("/")[0] not in {other.split("/")[0] for other in rooms} - {"docs"}:
            continue
        if wanted and room not in wanted:
            problems.append(f"{path}: move it to tests/{' or tests/'.join(sorted(wanted))}, or rename it")
        elif room not in rooms and folder not in helpers:
            problems.append(f"{path}: move it to the folder of what it tests; the product has no {room}")
    return problems


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    allowed, pure = read_table()
    paths = source_files()
    included = includes_of_product(paths)

    def folder_of(path):
        while path and path not in allowed:
            path = os.path.dirname(path)
        return path

    problems = misplaced_tests(paths)
    used = set()
    for path, others in sorted(included.items()):
        folder = folder_of(path)
        if not folder and "/" in path:
            problems.append(f"{path}: its folder is not in the table")
        for other in others:
            target = folder_of(other)
            if target and target != folder:
                used.add((folder, target))
                if target not in allowed[folder]:
                    problems.append(f"{path}: {folder} must not include {other}")
        if folder in pure:
            chain = grpc_chain(path, included, set())
            if chain:
                problems.append(f"{path}: {folder} must not reach gRPC: {' -> '.join(chain)}")
    for folder, others in allowed.items():
        problems += [
            f"{folder} -> {other}: no file uses this arrow"
            for other in sorted(others)
            if (folder, other) not in used
        ]
    for arrows in (allowed, arrows_between_folders(included)):
        circle = find_circle(arrows)
        if circle:
            problems.append("a circle: " + " -> ".join(circle))
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
