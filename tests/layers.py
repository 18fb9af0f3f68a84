#!/usr/bin/env python3
"""Checks which folders include which others, by the table of docs/architecture.md.

    tests/layers.py

The table is the block of text below "<!-- layers -->". Each line names a folder and the folders whose headers
it may include; a folder covers its subfolders, unless they have lines of their own. proto is below all of
them. The table must have no circle and no arrow that no file uses. A line that ends with "(pure)" must not
reach gRPC, by any chain of includes. Prints what differs. Exit codes: 0 nothing, 1 something.
"""
import os
import re
import subprocess
import sys

TABLE = re.compile(r"<!-- layers -->\n```text\n(.*?)```", re.S)
INCLUDE = re.compile(r'^#include ["<]([^">]+)[">]', re.M)


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


def includes_of_product():
    """Returns the included paths of each source file of the product."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.h", "*.cc", "*.cu"]
    paths = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    found = {}
    for path in paths:
        if os.path.exists(path) and not path.startswith(("tests/", "docs/")):
            with open(path, encoding="utf-8") as file:
                found[path] = INCLUDE.findall(file.read())
    return found


def find_circle(allowed):
    """Returns a list of folders, each of which includes the next and the last of which is the first, or
    None."""
    done = set()

    def visit(folder, trail):
        if folder in trail:
            return trail[trail.index(folder):] + [folder]
        if folder in done:
            return None
        for other in sorted(allowed.get(folder, ())):
            circle = visit(other, trail + [folder])
            if circle:
                return circle
        done.add(folder)
        return None

    return next(filter(None, (visit(folder, []) for folder in allowed)), None)


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


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    allowed, pure = read_table()
    included = includes_of_product()

    def folder_of(path):
        while path and path not in allowed:
            path = os.path.dirname(path)
        return path

    problems = []
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
        problems += [f"{folder} -> {other}: no file uses this arrow" for other in sorted(others)
                     if (folder, other) not in used]
    circle = find_circle(allowed)
    if circle:
        problems.append("a circle: " + " -> ".join(circle))
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
