"""The project's pages: README.md, deploy/README.md and docs/**.md, as Markdown has them. Paths are relative
to the project, which is where a test starts."""

import os
import re

_FENCE = re.compile(r"^ *(`{3,}|~{3,}) *(\S*)$")
_LIST_ITEM = re.compile(r"^ *([-*]|\d+\.) ")


def paths():
    found = ["README.md", "deploy/README.md"]
    for directory, _, files in os.walk("docs"):
        found += [os.path.join(directory, name) for name in files if name.endswith(".md")]
    return sorted(found)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def _classified(text):
    """(line number, line, kind): kind None for prose, "" for code without a language, else the language."""
    fence, language = None, None
    in_list, in_block, after_blank = False, False, True
    for number, line in enumerate(text.split("\n"), 1):
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and mark[1].startswith(fence) and not mark[2]:
                fence = None
                yield number, "", None
            else:
                yield number, line, language
            continue
        if mark:
            fence, language = mark[1], mark[2]
            yield number, "", None
            continue
        blank = not line.strip()
        if _LIST_ITEM.match(line):
            in_list = True
        elif not blank and not line.startswith(" "):
            in_list = False
        in_block = line.startswith("    ") and not blank and not in_list and (in_block or after_blank)
        after_blank = blank
        yield number, line, "" if in_block else None


def prose(path):
    """[(line number, line)] without code blocks."""
    return [(number, line) for number, line, kind in _classified(read(path)) if kind is None]


def commands(path):
    """[(line number, command)] of the page's code blocks, but for those marked as `text`, `textproto` or
    `python`. A command is a line, with those that it goes on in after a backslash."""
    found, goes_on = [], False
    for number, line, kind in _classified(read(path)):
        if kind in (None, "text", "textproto", "python") or not line.strip():
            continue
        code = line.strip()
        if goes_on:
            found[-1] = (found[-1][0], found[-1][1] + " " + code.rstrip("\\").rstrip())
        else:
            found.append((number, code.rstrip("\\").rstrip()))
        goes_on = code.endswith("\\")
    return found


def blocks(path, language):
    """[(line number, line)] of the code blocks that are marked as of a language."""
    return [(number, line) for number, line, kind in _classified(read(path)) if kind == language]
