#!/usr/bin/env python3
"""python/catchment/study/text.py."""

import math
import unittest

from catchment.study import text

CASES = [
    (text.count, [(0, "0"), (999, "999"), (1000, "1,000"), (1199882, "1,199,882"), (-123456, "-123,456")]),
    (
        text.bytes_text,
        [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (4799528, "4.80 MB"),
            (45.67e9, "45.7 GB"),
            (999.6e6, "1.00 GB"),
            (9.996e6, "10.0 MB"),
        ],
    ),
    (
        text.seconds,
        [
            (0.42, "0.4 s"),
            (9.96, "10 s"),
            (10.5, "11 s"),
            (59.6, "1 min 00 s"),
            (125, "2 min 05 s"),
            (7500, "2 h 05 min"),
            (100000, "1 d 03 h"),
            (-1, "?"),
            (math.inf, "?"),
        ],
    ),
    (text.duration, [(0.0123, "12.3 ms"), (1.5, "1.5 s")]),
    (text.percent, [(0.98765, "98.77 %"), (1, "100.00 %")]),
    (text.short, [(0.01, "0.01"), (1e-8, "1e-08"), (12.0, "12"), (1234567.0, "1.23457e+06")]),
    (text.rounded, [(2.5, 3), (-2.5, -3), (2.4999, 2), (0.49999999999999994, 0)]),
    (text.float32, [(0.1, 0.10000000149011612), (0.5, 0.5)]),
    (
        text.parse_number,
        [
            ("1e-3", 0.001),
            (" .5", 0.5),
            ("+2.", 2.0),
            ("1_0", None),
            ("", None),
            ("0x10", None),
            ("-inf", -math.inf),
        ],
    ),
    (
        text.parse_whole,
        [("12", 12), ("-3", -3), ("1_0", None), ("2147483648", None), ("1.0", None), ("²", None)],
    ),
    (
        text.escape_controls,
        [
            ("a\nMünchen \x1b[31m\x7f\t", "a\nMünchen \\x1b[31m\\u007f\\x09"),
            ("\x9b31m §", "\\u009b31m §"),
            ("a\u202egnp\u2066b\u2069\u200e\u200f\u061c", "a\\u202egnp\\u2066b\\u2069\\u200e\\u200f\\u061c"),
            ("a\u2028b\u2029c\x85d", "a\\u2028b\\u2029c\\u0085d"),
            ("€ \U0001f600 \u200b \u05d0", "€ \U0001f600 \u200b \u05d0"),
            (b"a\x9b31m\xff\xe2\x80".decode("utf-8", "surrogateescape"), "a\\x9b31m\\xff\\xe2\\x80"),
        ],
    ),
    (text.one_line, [("a\nE20261125 b\r\n", "a\\nE20261125 b\\x0d\\n")]),
    (
        text.to_json,
        [
            ({"a": [1, 2.0, math.nan], "é": 'x"\n\x01'}, '{"a":[1,2.0,null],"é":"x\\"\\n\\u0001"}'),
            ([], "[]"),
            ((1e-5, 0.1, -0.0), "[1e-05,0.1,-0.0]"),
        ],
    ),
]


class TextTest(unittest.TestCase):
    def test_cases(self) -> None:
        for function, cases in CASES:
            for value, expected in cases:
                with self.subTest(function=function.__name__, value=value):
                    self.assertEqual(function(value), expected)

    def test_plural_knows_one(self) -> None:
        words = [text.plural(n, "worker") for n in (1, 0, 1200)]
        self.assertEqual(words, ["1 worker", "0 workers", "1,200 workers"])

    def test_paragraphs_are_indented_from_the_second_line_on(self) -> None:
        self.assertEqual(text.hanging_paragraph("ab  ", "one two three", 4, 12), "ab  one two\n    three\n")

    def test_lines_are_broken_to_a_width(self):
        for line, broken in (
            ("one two three", "one two\n  three"),
            ("  one two three", "  one two\n    three"),
            ("  a  one two three", "  a  one two\n     three"),
            ("  --flag=VALUE  one two three", "  --flag=VALUE\n      one\n      two\n      three"),
            ("  a  a/long/path", "  a\n      a/long/path"),
            ("a\nb", "a\nb"),
            ("a  b  one two", "a  b one two"),
            ("a  b  one two\na  c", "a  b one two\na  c"),
            ("a/long/path-too \\", "a/long/path-too \\"),
            ("\x1b[32mone two\x1b[0m six", "\x1b[32mone two\x1b[0m six"),
        ):
            self.assertEqual(text.wrap_lines(line, 12), broken)
        self.assertEqual(
            text.wrap_lines("  go --to=there --now", 16, " \\"), "  go \\\n    --to=there \\\n    --now"
        )

    def test_tables_are_split_between_their_columns(self) -> None:
        table = "title\n  é    size  name of it\n  a   12 MB  x\n  bb         y é\n  c    1 MB\n"
        self.assertEqual(text.wrap_lines(table, 24), table)
        self.assertEqual(
            text.wrap_lines(table, 16),
            "title\n  é    size\n  a   12 MB\n  bb\n  c    1 MB\n\n  é   name of it\n  a   x\n  bb  y é\n",
        )
        # The last column of a table that fits without it.
        self.assertEqual(
            text.wrap_lines("a  b  one two three four\nc  d  e\nf", 14),
            "a  b  one two\n      three\n      four\nc  d  e\nf",
        )
        self.assertEqual(text.wrap_lines(" " * 9 + "\n" + " " * 9, 4).strip(), "")

    def test_a_help_is_filled(self):
        given = "go DIR\n\nGoes to\nDIR and back.\n\nExamples:\n  go a --now-or\n  go b     later\n"
        self.assertEqual(
            text.fill_help(given, 12),
            "go DIR\n\nGoes to DIR\nand back.\n\nExamples:\n  go a \\\n    --now-or\n  go b\n      later\n",
        )
        self.assertEqual(text.fill_help("\nOne.\nTwo.\n", 80), "\nOne. Two.\n")

    def test_tables_align_numbers_right_and_words_left(self) -> None:
        table = text.Table()
        for row in (["layer", "parameters", "note"], ["conv1", "320", "a"], ["dense10", "1,179,776", ""]):
            table.add(row)
        self.assertEqual(
            table.print(1),
            " layer    parameters  note\n conv1           320  a\n dense10   1,179,776\n",
        )

    def test_without_a_head_the_first_row_counts(self) -> None:
        table = text.Table(has_head=False)
        table.add(["a", "x1"])
        table.add(["bb", "22"])
        self.assertEqual(table.print(0), "a   x1\nbb  22\n")

    def test_nearest_names(self) -> None:
        names = ["workers", "seeds", "out"]
        found = [text.nearest_name(name, names) for name in ("worker", "Seed", "xyzzy", "o")]
        self.assertEqual(found, ["workers", "seeds", "", "out"])

    def test_json_with_an_indent(self) -> None:
        self.assertEqual(text.to_json({"a": [1, {}]}, 2), '{\n  "a": [\n    1,\n    {}\n  ]\n}')


if __name__ == "__main__":
    unittest.main()
