#!/usr/bin/env python3
"""Reports of comparisons that the C++ commands have made (kept.py): the same bytes of report.json, from their
numbers, and by the commands themselves, which find their runs done. api_test.py has their pages."""

import importlib
import io
import json
import os
import shlex
import tempfile
import unittest

import kept
import reference
from catchment.study import findings, report_json, text
from catchment.study.__main__ import COMMANDS
from catchment.study.command_line import Stream, Streams

# The numbers that the C++ library has written with a digit more than they need.
LONGER = {"throughput": ("9998.361765168691", "9998.36176516869")}
# The others are of `catchment report` (report_runs_test.py).
COMPARISONS = [name for name in kept.NAMES if name not in ("report", "interrupted")]
# With a run that the command would do again.
NOT_DONE = ("failed", "slurm")
EXAMPLES = os.path.abspath("examples")


def report_of(name):
    return kept.read(name, "report.json").replace(*LONGER.get(name, ("", "")))


class KeptComparisonsTest(unittest.TestCase):
    maxDiff = None

    def test_report_json_has_the_same_bytes(self):
        for name in COMPARISONS:
            with self.subTest(name):
                comparison = kept.comparison(name)
                report = report_json.report_json(comparison, findings.find(comparison))
                self.assertEqual(text.to_json(report, 2) + "\n", report_of(name))

    def test_commands_make_the_same_reports(self):
        for name in COMPARISONS:
            if name not in NOT_DONE:
                with self.subTest(name), tempfile.TemporaryDirectory() as out:
                    self.check_command(name, out)

    def check_command(self, name, out):
        kept.restore(name, out)
        kept_report = json.loads(report_of(name))
        _, command, job, *flags = shlex.split(kept_report["command"])
        args = [
            os.path.join(EXAMPLES, os.path.basename(job)),
            *(f for f in flags if not f.startswith("--out")),
        ]
        printed, errors = io.StringIO(), io.StringIO()
        streams = Streams(Stream(printed), Stream(errors))
        module = importlib.import_module("catchment.study." + COMMANDS[command])
        self.assertEqual(module.main([*args, "--out=" + out], streams), 0, errors.getvalue())
        with open(out + "/report.json", encoding="utf-8") as stream:
            written = stream.read()
        expected = report_of(name)
        for key in ("version", "command", "machine"):  # of this build, this directory and this machine
            new, old = json.loads(written)[key], kept_report[key]
            pair = [text.to_json({key: value}, 2)[4:-2] for value in (old, new)]
            expected = expected.replace(*pair)
        self.assertEqual(reference.as_then(written), expected)
        sentences = [kept_report["answer"][key] for key in ("sentence", "where_synchronous_wins")]
        self.assertIn("\n%s\n%s\n\nreport  %s/report.html\n" % (*sentences, out), printed.getvalue())


if __name__ == "__main__":
    reference.use_binary()
    unittest.main()
