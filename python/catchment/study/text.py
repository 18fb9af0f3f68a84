"""Text that people and programs read: numbers, times, tables, near misses of names, escapes, JSON.

No locale: a point before decimals, a comma between thousands, everywhere.
"""

import itertools
import json
import math
import re
import struct
from typing import Any, Iterable, List, Optional, Sequence, Tuple

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_NUMBER = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)\s*", re.IGNORECASE | re.ASCII)
_WHOLE = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
# Control characters, Unicode's line separators and direction controls, and bytes that are not UTF-8, which
# file names and arguments have as lone surrogates.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]")
_COLOUR = re.compile("\x1b[^m]*m")  # ECMA-48 SGR
_GAP = re.compile(r" *\S(?:\S| (?! ))*  +(?=\S)")  # up to the second column of a line


def count(n: int) -> str:
    """Returns "1,199,882" for 1199882."""
    return f"{n:,}"


def bytes_text(size: float) -> str:
    """Returns the largest unit that leaves at least 1, with three digits: "999 B", "1.20 MB", "4.58 GB"."""
    unit = 0
    while abs(size) >= 999.5 and unit + 1 < len(_UNITS):  # 999.5 would be written as 1000
        size /= 1000
        unit += 1
    decimals = 0 if unit == 0 or abs(size) >= 99.95 else 2 if abs(size) < 9.995 else 1
    return "%.*f %s" % (decimals, size, _UNITS[unit])


def seconds(value: float) -> str:
    """Returns "0.4 s", "58 s", "3 min 02 s", "2 h 05 min", "3 d 04 h"."""
    if not math.isfinite(value) or value < 0:
        return "?"
    if value < 9.95:
        return "%.1f s" % value
    s = rounded(value)
    if s < 60:
        return "%d s" % s
    if s < 3600:
        return "%d min %02d s" % divmod(s, 60)
    if s < 86400:
        return "%d h %02d min" % (s // 3600, s % 3600 // 60)
    return "%d d %02d h" % (s // 86400, s % 86400 // 3600)


def duration(value: float) -> str:
    """Returns "12.3 ms" below a second, and what seconds() returns from there on."""
    return short(1000 * value, 3) + " ms" if value < 1 else seconds(value)


def percent(share: float) -> str:
    """Returns "98.77 %" for 0.98765."""
    return "%.2f %%" % (100 * share)


def short(value: float, digits: int = 6) -> str:
    """Returns as many significant digits as needed, at most `digits`: "0.01", "1e-08", "12"."""
    return "%.*g" % (digits, value)


def plural(n: int, noun: str) -> str:
    """Returns "1 worker", "2 workers"."""
    return "%s %s%s" % (count(n), noun, "" if n == 1 else "s")


def rounded(value: float) -> int:
    """Returns the nearest whole number; of two, the one farther from 0."""
    whole = math.floor(abs(value))
    return int(math.copysign(whole + (abs(value) - whole >= 0.5), value))


def float32(value: float) -> float:
    """Returns the nearest single-precision number, as fields of a job have them."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def parse_number(text: str) -> Optional[float]:
    """Returns the number that is the whole text."""
    return float(text) if _NUMBER.fullmatch(text) else None


def parse_whole(text: str, bits: int = 32) -> Optional[int]:
    """Returns the whole number that is the whole text, if a signed integer of so many bits can have it."""
    n = int(text) if _WHOLE.fullmatch(text) else None
    return n if n is not None and -(2 ** (bits - 1)) <= n < 2 ** (bits - 1) else None


def hanging_paragraph(head: str, text: str, indent: int, width: int) -> str:
    """Returns `text` in lines of at most `width` columns, after `head` and, from the second line on, indented
    by `indent`. Ends with a newline."""
    lines, line, at_start = [], head, True
    for word in text.split(" "):
        if not word:
            continue
        ends_command = word == "\\"  # stays on its line
        if not (at_start or ends_command) and shown_columns(line) + 1 + shown_columns(word) > width:
            lines.append(line)
            line, at_start = " " * indent, True
        line += ("" if at_start else " ") + word
        at_start = False
    return "\n".join([*lines, line]) + "\n"


def shown_columns(text: str) -> int:
    """Returns the columns of a text on a terminal: one for each character, none for colours."""
    return len(_COLOUR.sub("", text))


def bar(share: float, columns: int) -> str:
    """Returns a bar of so many columns, with the share in heavy lines."""
    return "".join("━" if i < int(share * columns) else "─" for i in range(columns))


def _paragraph(head: str, text: str, indent: int, width: int, mark: str) -> str:
    return (mark + "\n").join(
        hanging_paragraph(head, text, indent, width - len(mark)).rstrip("\n").split("\n")
    )


def _wrap_line(line: str, width: int, mark: str) -> str:
    if shown_columns(line) <= width:
        return line
    found = _GAP.match(line)
    indent = min(len(line) - len(line.lstrip(" ")), width // 4)
    if not found:
        return _paragraph(" " * indent, line, indent + 2, width, mark)
    head, rest = found.group(), line[found.end() :]
    column, longest = shown_columns(head), max(map(shown_columns, rest.split(" ")))
    if 2 * column <= width and column + longest <= width:
        return _paragraph(head, rest, column, width, mark)
    below = indent + 4
    return "%s\n%s" % (
        _wrap_line(head.rstrip(" "), width, mark),
        _paragraph(" " * below, rest, below, width, mark),
    )


def _columns_of(rows: Sequence[str]) -> List[Tuple[int, int]]:
    """Returns the columns of a table, from the first to before the second: at least two spaces separate them
    in all lines. The first one includes the indentation."""
    columns: List[Tuple[int, int]] = []
    inked = {c for row in rows for c, character in enumerate(row) if character != " "}
    for c in sorted(inked):
        if columns and c - columns[-1][1] < 2:
            columns[-1] = columns[-1][0], c + 1
        else:
            columns.append((c if columns else 0, c + 1))
    return columns


def _fit_table(rows: Sequence[str], width: int) -> List[str]:
    """Returns the lines of a table that is wider than `width` as tables below each other, each with the first
    column, which identifies the rows, or if there is enough space with its last column broken; other lines as
    they are."""
    wide = any(shown_columns(row) > width for row in rows) and "\x1b" not in "".join(rows)
    columns = _columns_of(rows) if wide and len(rows) > 1 else []
    if len(columns) < 3 or len({row[: columns[0][1]].rstrip(" ") for row in rows}) < len(rows):
        return list(rows)
    last, first = columns[-1][0], columns[0][1]
    if columns[-2][1] <= width and 2 * last <= width:
        lines = "".join(hanging_paragraph(row[:last].ljust(last), row[last:], last, width) for row in rows)
        return [line.rstrip(" ") for line in lines.rstrip("\n").split("\n")]
    tables: List[List[Tuple[int, int]]] = []
    used = 0
    for begin, end in columns[1:]:
        if not tables or used + 2 + end - begin > width:
            tables.append([])
            used = first
        tables[-1].append((begin, end))
        used += 2 + end - begin
    fitted: List[str] = []
    for table in tables:
        fitted += [""] * bool(fitted)
        for row in rows:
            cells = "".join("  " + row[begin:end].ljust(end - begin) for begin, end in table).rstrip(" ")
            if cells or table is tables[0]:
                fitted.append((row[:first].ljust(first) + cells).rstrip(" "))
    return fitted


def wrap_lines(text: str, width: int, mark: str = "") -> str:
    """Returns the text with each line that is wider than `width` columns broken at spaces, and `mark` at the
    end of its parts. They continue below the line's second column, which two spaces separate from the first,
    or indented if there is none. A wider word stays whole. A table of three columns or more, each of whose
    rows has a name of its own, becomes several tables below each other, which all begin with the names, or if
    there is enough space, only its last column is broken."""
    wrapped: List[str] = []
    # A table's lines are all indented, or none is.
    for _, lines in itertools.groupby(text.split("\n"), lambda line: line[:1] and line[0] == " "):
        wrapped += [_wrap_line(line, width, mark) for line in _fit_table(list(lines), width)]
    return "\n".join(wrapped)


def fill_help(text: str, width: int) -> str:
    """Returns the text of a help for a width: joins the lines of each paragraph and breaks them again, but
    only breaks the indented lines below one that ends with a colon, such as commands, with a backslash."""
    filled: List[str] = []
    paragraph: List[str] = []
    verbatim = False
    for line in [*text.rstrip("\n").split("\n"), ""]:
        last = (paragraph or filled or [""])[-1]
        verbatim = line.startswith(" ") and (verbatim or last.endswith(":"))
        if line and not verbatim:
            paragraph.append(line.strip())
            continue
        if paragraph:
            filled.append(_paragraph("", " ".join(paragraph), 0, width, ""))
            paragraph = []
        filled.append(wrap_lines(line, width, " \\"))
    return "\n".join(filled)


class Table:
    """A table with two spaces between columns. The first row is the head if `has_head`.

    A column is aligned to the right when every cell below the head is a number, with its unit, or empty;
    shapes ("28x28") are words.
    """

    def __init__(self, has_head: bool = True) -> None:
        self._has_head = has_head
        self._rows: List[List[str]] = []

    def add(self, row: Iterable[str]) -> None:
        self._rows.append(list(row))

    def print(self, indent: int = 2) -> str:
        """Returns lines that begin with `indent` spaces and end with a newline, without a space before it."""
        columns = range(max((len(row) for row in self._rows), default=0))
        widths = [max(len(row[c]) for row in self._rows if c < len(row)) for c in columns]
        numeric = [self._is_numeric(c) for c in columns]
        lines = []
        for row in self._rows:
            cells = [
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(row, widths, numeric)
            ]
            lines.append((" " * indent + "  ".join(cells)).rstrip(" ") + "\n")
        return "".join(lines)

    def _is_numeric(self, column: int) -> bool:
        cells = [row[column] for row in self._rows[self._has_head :] if column < len(row) and row[column]]
        return bool(cells) and all("x" not in cell and cell[0] in "-0123456789" for cell in cells)


def _escaped(c: str) -> str:
    code = ord(c)
    if 0xDC80 <= code <= 0xDCFF:
        return "\\x%02x" % (code - 0xDC00)
    # Above U+001F as in JSON, whose strings may have these characters as they are.
    return ("\\x%02x" if code < 0x20 else "\\u%04x") % code


def one_line(text: str) -> str:
    """Does what escape_controls() does, and replaces line breaks by "\\n"."""
    return _CONTROLS.sub(lambda match: "\\n" if match.group() == "\n" else _escaped(match.group()), text)


def escape_controls(text: str) -> str:
    """Replaces what could change how a terminal or the reader of a log sees the text around it by "\\x1b",
    "\\u202e" and so on, except line breaks."""
    return "\n".join(one_line(line) for line in text.split("\n"))


def nearest_name(name: str, candidates: Sequence[str]) -> str:
    """Returns the candidate with the fewest edits to `name`, ignoring case; empty if none is near."""
    best, nearest = max(2, len(name) // 2) + 1, ""
    for candidate in candidates:
        distance = _edits(name.lower(), candidate.lower())
        if distance < best and distance < len(candidate):
            best, nearest = distance, candidate
    return nearest


def _edits(a: str, b: str) -> int:
    """Returns the number of insertions, deletions and substitutions from a to b (Levenshtein 1966)."""
    row = list(range(len(b) + 1))
    for i, of_a in enumerate(a):
        diagonal, row[0] = row[0], i + 1
        for j, of_b in enumerate(b):
            diagonal, row[j + 1] = row[j + 1], min(diagonal + (of_a != of_b), row[j] + 1, row[j + 1] + 1)
    return row[-1]


def to_json(value: Any, indent: Optional[int] = None) -> str:
    """Returns JSON as the rest of Catchment writes it: numbers that are not finite as null, and no spaces if
    there is no `indent`."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(_finite(value), indent=indent, ensure_ascii=False, separators=separators)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(of_key) for key, of_key in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
