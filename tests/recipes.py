#!/usr/bin/env python3
"""Checks the lists of files in CONTRIBUTING.md's recipes.

    tests/recipes.py

A recipe is a line "<!-- recipe: PATTERN -->" with a list of files below it. PATTERN, a regular expression,
names a kind that exists. The list must have each file of the product that PATTERN matches outside of
comments, and no other: one more kind of its sort touches as many. Prints what differs. Exit codes: 0 nothing,
1 something.
"""

import os
import re
import subprocess
import sys

# Files that a contributor adds besides: tests, documents, examples, and what runs on other people's machines.
OUTSIDE = ("tests/", "docs/", "examples/", "deploy/", "python/", ".ci/")
RECIPE = re.compile(r"<!-- recipe: (.*) -->\n((?:- `[^`]+`\n)+)")


def product_files():
    """Returns the text of each source file of the product, without comments, by path."""
    command = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.cc",
        "*.h",
        "*.cu",
        "*.proto",
        "*BUILD",
    ]
    paths = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    texts = {}
    for path in paths:
        if path.startswith(OUTSIDE) or not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            texts[path] = re.sub(r"#.*" if path.endswith("BUILD") else r"//.*", "", file.read())
    return texts


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    with open("CONTRIBUTING.md", encoding="utf-8") as file:
        recipes = RECIPE.findall(file.read())
    if not recipes:
        sys.exit("CONTRIBUTING.md: has no recipe")
    texts = product_files()
    failed = False
    for pattern, lines in recipes:
        listed = set(re.findall(r"`([^`]+)`", lines))
        found = {path for path, text in texts.items() if re.search(pattern, text)}
        # A file that tells its content by its name.
        found |= {path for path in texts if re.search(pattern, os.path.basename(path))}
        for path in sorted(found - listed):
            print(
                f"CONTRIBUTING.md: recipe {pattern}: add `{path}` to the list, or remove what it says "
                "about the kind"
            )
        for path in sorted(listed - found):
            print(
                f"CONTRIBUTING.md: recipe {pattern}: remove `{path}` from the list; it does not mention "
                "the kind"
            )
        failed = failed or found != listed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
