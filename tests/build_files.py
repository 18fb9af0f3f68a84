#!/usr/bin/env python3
"""Checks the form of BUILD files, by the rules of buildifier that matter to a reader.

    tests/build_files.py BUILD...

Debian and PyPI have no buildifier. A BUILD file is read as Python, which its syntax is a part of. Prints a
line for each difference, with what to write instead. Exit codes: 0 no difference, 1 some.
"""

import ast
import re
import sys

# The attributes that come first and last, in this order; the others come in between in alphabetical order.
FIRST = ["name", "names", "size", "timeout", "testonly", "src", "srcs", "out", "outs", "hdrs"]
LAST = ["deps", "alwayslink"]
# The attributes whose values have no significant order.
SETS = ["srcs", "hdrs", "deps", "data", "outs", "stub_srcs", "visibility"]


def attribute_key(name):
    if name in FIRST:
        return (FIRST.index(name), name)
    return (len(FIRST) + (1 + LAST.index(name) if name in LAST else 0), name)


def label_key(label):
    """Files come first, then labels of this package, of this repository, and of others."""
    rank = 1 if label.startswith(":") else 2 if label.startswith("//") else 3 if label.startswith("@") else 0
    return (rank, re.split("[:.]", label))


def check_order(what, found, key):
    wanted = sorted(set(found), key=key)
    if found != wanted:
        yield f"write the {what} in this order, each once: {', '.join(wanted)}"


def check_list(name, node, lines):
    strings = [item.value for item in node.elts if isinstance(item, ast.Constant)]
    if name in SETS and len(strings) == len(node.elts):
        yield from check_order(name, strings, label_key)
    rows = {item.lineno for item in node.elts}
    on_one_line = rows <= {node.lineno} and node.end_lineno == node.lineno
    on_own_lines = len(rows) == len(node.elts) and not rows & {node.lineno, node.end_lineno}
    if not on_one_line and not on_own_lines:
        yield f"write the list {name} on one line, or each item on a line of its own"
    elif node.elts and not on_one_line and not lines[node.elts[-1].end_lineno - 1].rstrip().endswith(","):
        yield f"end the last item of {name} with a comma"


def check_call(call, lines):
    names = [keyword.arg for keyword in call.keywords if keyword.arg]
    yield from check_order("attributes", names, attribute_key)
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.List):
            yield from check_list(keyword.arg, keyword.value, lines)
    if len({call.lineno} | {keyword.value.end_lineno for keyword in call.keywords}) > 1:
        last = call.keywords[-1].value
        if last.end_lineno < call.end_lineno and not lines[last.end_lineno - 1].rstrip().endswith(","):
            yield "end the last attribute with a comma"


def check_file(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line != line.rstrip() or "\t" in line:
            yield number, "remove tabs and spaces at the end of the line"
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        yield len(lines), "end the file with one newline"
    try:
        tree = ast.parse(text, path)
    except SyntaxError as error:
        yield error.lineno, error.msg
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            for problem in check_call(node, lines):
                yield node.lineno, problem


def main():
    problems = [f"{path}:{line}: {problem}" for path in sys.argv[1:] for line, problem in check_file(path)]
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
