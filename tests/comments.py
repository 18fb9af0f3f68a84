#!/usr/bin/env python3
"""Checks the form of comments and docstrings.

    tests/comments.py FILE...

A comment is a sentence that stands above the code, or a few words behind it. A finding is
- a comment that begins with a noun clause: "Whether it runs" instead of "Returns true if it runs";
- "Returns ..." above a function that returns nothing, unless it says when the function returns;
- a comment that goes on behind code: a sentence that the code interrupts, or words behind code that continue
  on the next line.
Prints a line for each finding, with what to write instead. Exit codes: 0 no finding, 1 some.
"""

import ast
import re
import sys

CLAUSE = re.compile(r"(Of|What|Whether|Whose|Those|Where|Which|Who|How)[ ,:]")
RETURNS = re.compile(r"(^|[.;:] )Returns (?!(when|once|after|before|only|immediately|at once|without)\b)")
# Attributes and specifiers may precede the type.
VOID = re.compile(
    r"(template ?<.*> ?|[A-Z_]{4,}(\(.*?\))? |\[\[\w+\]\] |[a-z_]+ |extern \"C\" )*void [\w:~]+\("
)
UNFINISHED = re.compile(r"(,|\b(and|or|nor|but|than|because|the|an?))$")
STRING = re.compile(r"""(["'])(?:(?!\1)[^\\]|\\.)*\1""")

ABOVE = "write the whole comment above the code"


def declaration(lines, first):
    """Returns the code from line `first` up to the parameters or the body of what it
    declares, in one line."""
    text = ""
    for line in lines[first : first + 6]:
        text += line.strip() + " "
        if re.search(r"[;{]", line):
            break
    return text


def check_blocks(lines, mark):
    """Yields the findings in comments that begin with `mark`: blocks above code, and words behind it."""
    block = []  # the texts of the comment lines right above
    behind = None  # the indentation of a line of code with a comment behind it, right above
    for number, line in enumerate(lines, 1):
        comment = re.match(rf" *{mark}+ ?(.*)", line)
        if comment and not line.startswith("#!"):
            text = comment[1]
            indentation = len(line) - len(line.lstrip())
            if behind is not None and indentation > behind:
                yield number, ABOVE
            elif not block and CLAUSE.match(text):
                yield number, 'begin with a verb or a noun: "Returns true if ...", not "Whether ..."'
            elif not block and text.startswith("..."):
                yield number, ABOVE
            block.append(text)
            continue
        if block and UNFINISHED.search(block[-1]) and line.strip():
            yield number - 1, ABOVE
        if mark == "//" and RETURNS.search(" ".join(block)) and VOID.match(declaration(lines, number - 1)):
            yield number - len(block), 'the function returns nothing: begin with another verb than "Returns"'
        words = re.search(rf"\S.* {mark} (.*)", STRING.sub("", line))
        if words and (words[1].startswith("...") or UNFINISHED.search(words[1])):
            yield number, ABOVE
        behind = len(line) - len(line.lstrip()) if words else None
        block = []


def check_docstrings(text):
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and CLAUSE.match(ast.get_docstring(node) or ""):
            yield node.body[0].lineno, 'begin with a verb or a noun: "Returns true if ...", not "Whether ..."'


def check_file(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    yield from check_blocks(text.split("\n"), "//" if path.endswith((".h", ".cc", ".cu", ".proto")) else "#")
    if path.endswith(".py"):
        yield from check_docstrings(text)


def main():
    findings = [f"{path}:{line}: {remedy}" for path in sys.argv[1:] for line, remedy in check_file(path)]
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
