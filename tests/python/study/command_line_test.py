#!/usr/bin/env python3
"""python/catchment/study/command_line.py."""

import io
import json
import unittest
from types import SimpleNamespace

from catchment.study.command_line import Argument, CommandLine, Flags, Stream, Streams, run
from catchment.study.errors import Refused, Unavailable, Usage

VALUES = [
    ([], [], {}),
    (
        ["job", "--out=a b", "--workers", "3", "--stall-seconds=0.5", "--loss=0.25"],
        ["job"],
        dict(out="a b", workers=3, stall_seconds=0.5, loss=0.25),
    ),
    (["--set=a=1", "--set", "b.c={x: 1}", "--set=a=2=3"], [], dict(set=["a=1", "b.c={x: 1}", "a=2=3"])),
    (["--set", "-x=1"], [], dict(set=["-x=1"])),
    (["--even=2", "--even", "2"], [], dict(even="22")),
    (["--json", "job"], ["job"], dict(json=True)),
    (["--json", "--json=false"], [], {}),
    (["--json", "--no-json"], [], {}),
    (["--json", "--", "--out=x", "y"], ["--out=x", "y"], dict(json=True)),
    (["--out=0.5", "-"], ["-"], dict(out="0.5")),
]

MISTAKES = [
    (["--worker=2"], "unknown flag --worker; is it --workers?"),
    (["--jsn"], "unknown flag --jsn; is it --json?"),
    (["--frobnicate"], "unknown flag --frobnicate; --help lists them"),
    (["--epochs", "3"], "unknown flag --epochs: a field; set 3"),
    (["--epochs", "--json"], "unknown flag --epochs: a field; set "),
    (["--no-out"], "unknown flag --no_out; --help lists them"),
    (["--even=3"], "--even=3: is not 2"),
    (["--workers=two"], "--workers=two: takes a whole number, at least 1"),
    (["--workers=0"], "--workers=0: takes a whole number, at least 1"),
    (["--stall_seconds=-1"], "--stall_seconds=-1: takes a positive number of seconds"),
    (["--stall_seconds=nan"], "--stall_seconds=nan: takes a positive number of seconds"),
    (["--stall_seconds=0"], "--stall_seconds=0: takes a positive number of seconds"),
    (["--loss=-0.1"], "--loss=-0.1: takes a number, at least 0"),
    (["--json=perhaps"], "--json=perhaps: takes true or false"),
    (["--out"], "--out needs a value: --out=DIR"),
]

DEFAULTS = dict(out="default", workers=7, stall_seconds=1.0, loss=0.0, even="", json=False, set=[])


def make_flags():
    o, flags = SimpleNamespace(**dict(DEFAULTS, set=[])), Flags()

    def even(text):
        o.even += text
        if text != "2":
            raise Usage("is not 2")

    flags.declare(
        o,
        """
        --out=DIR  Where everything goes.
        --workers=N  Worker processes.
        --stall_seconds=SECONDS  A bound; see
            --out for another flag.
        --loss=NUMBER  A probability.
        --json  Only JSON.
        --even=N  An even number.
        # Others
        --set=PATH=VALUE  Changes a field. May be repeated.
        """,
        even=even,
        set=o.set.append,
    )
    flags.advice = lambda name, value: "a field; set " + value if name == "epochs" else ""
    return flags, o


class FlagsTest(unittest.TestCase):
    def test_values(self):
        for args, positional, values in VALUES:
            with self.subTest(args=args):
                flags, o = make_flags()
                self.assertEqual(flags.parse(args), positional)
                self.assertEqual(vars(o), dict(DEFAULTS, **values))

    def test_mistakes(self):
        for args, message in MISTAKES:
            with self.subTest(args=args), self.assertRaises(Usage) as caught:
                make_flags()[0].parse(args)
            self.assertEqual(caught.exception.message, message)

    def test_describes_every_flag(self):
        described = make_flags()[0].describe(80)
        for line in (
            "\nFlags:\n  --out=DIR                 Where everything goes.\n",
            "  --json                    Only JSON.\n",
            "  --stall_seconds=SECONDS   A bound; see --out for another flag.\n",
            "\nOthers:\n  --set=PATH=VALUE          Changes a field. May be repeated.\n",
        ):
            self.assertIn(line, described)
        self.assertIn(
            "  --stall_seconds=SECONDS\n      A bound; see --out for another\n", make_flags()[0].describe(40)
        )

    def test_the_short_help_has_first_flags_and_first_sentences(self):
        flags = make_flags()[0]
        flags.declare(None, "".join("--more%d=N  More.\n" % i for i in range(9)))
        described = flags.describe_first(80)
        self.assertTrue(described.startswith("\nFlags, 10 of 16:\n  --out=DIR"), described)
        self.assertIn("  --set=PATH=VALUE          Changes a field.\n", described)
        self.assertEqual(described.count("\n"), 12)


class CommandLineTest(unittest.TestCase):
    def run_line(self, args, command=lambda: 0, with_argument=True):
        self.o = o = SimpleNamespace(job="", out="", resume=False)
        line = CommandLine("catchment pack", "catchment pack JOB\n", "\nExit code: 0.\n")
        if with_argument:
            line.argument = Argument(
                "JOB",
                "job.textproto --out=out",
                lambda word: setattr(o, "job", word),
                lambda: o.resume,
            )
        line.flags.declare(o, "--out=DIR  Where shards go. Required.\n--resume  Resumes.")
        line.flags.require("out")

        def check():
            if o.job == "bad":
                raise Usage("bad is not a job")

        line.check = check
        out, err = io.StringIO(), io.StringIO()
        code = run(line, args, Streams(Stream(out), Stream(err)), command)
        return code, out.getvalue(), err.getvalue()

    def test_returns_the_exit_code_of_the_run(self):
        self.assertEqual(self.run_line(["job", "--out=dir"], lambda: 7), (7, "", ""))
        self.assertEqual((self.o.job, self.o.out), ("job", "dir"))

    def test_an_error_of_the_run_is_printed_with_the_commands_name(self):
        def fail():
            raise Refused("no\x1b file")

        self.assertEqual(self.run_line(["job", "--out=dir"], fail), (1, "", "catchment pack: no\\x1b file\n"))

    def test_a_wrong_command_line_is_not_run(self):
        for args, message in (
            (["--out=dir"], "takes one JOB, for example: catchment pack job.textproto --out=out"),
            (["job", "more", "--out=dir"], "takes one JOB, but got also more"),
            (["job"], "--out=DIR is required"),
            (["job", "--out="], "--out=DIR is required"),
            (["job", "--ouT=dir"], "unknown flag --ouT; is it --out?"),
            (["bad", "--out=dir"], "bad is not a job"),
        ):
            with self.subTest(args=args):
                result = self.run_line(args, lambda: self.fail("it ran"))
                self.assertEqual(result, (2, "", "catchment pack: %s\n" % message))

    def test_a_missing_program_is_no_mistake_of_a_flag(self):
        def missing(given):
            raise Unavailable("no program")

        line, err = CommandLine("catchment pack", ""), io.StringIO()
        line.flags.declare(None, "--out=DIR  Where shards go.", out=missing)
        code = run(line, ["--out=x"], Streams(Stream(err), Stream(err)), lambda: 0)
        self.assertEqual((code, err.getvalue()), (1, "catchment pack: no program\n"))

    def test_flags_may_make_the_argument_unnecessary(self):
        self.assertEqual(self.run_line(["--out=dir", "--resume"])[0], 0)

    def test_a_command_without_an_argument_accepts_only_flags(self):
        self.assertEqual(self.run_line(["--out=dir"], with_argument=False)[0], 0)
        code, _, err = self.run_line(["job", "--out=dir"], with_argument=False)
        self.assertEqual(code, 2)
        self.assertIn("accepts only flags, but got 'job'", err)

    def test_help_needs_nothing_else(self):
        code, out, _ = self.run_line(["--help"], lambda: self.fail("it ran"))
        self.assertEqual(code, 0)
        self.assertTrue(out.startswith("catchment pack JOB\n\nFlags:\n  --out=DIR"), out)
        self.assertIn("Where shards go. Required.\n", out)
        self.assertTrue(out.endswith("\nExit code: 0.\n"), out)

    def test_the_short_help_leads_to_the_long_one(self):
        code, out, _ = self.run_line(["-h"], lambda: self.fail("it ran"))
        self.assertEqual(code, 0)
        self.assertEqual(
            out,
            "catchment pack JOB\n\nExample:\n  catchment pack job.textproto --out=out\n\nFlags:\n"
            "  --out=DIR                 Where shards go.\n  --resume                  Resumes.\n\n"
            "All flags, examples and exit codes: catchment pack --help\n",
        )

    def test_help_in_json(self):
        described = json.loads(self.run_line(["--help=json"])[1])
        self.assertEqual((described["name"], described["argument"]), ("catchment pack", "JOB"))
        flag = dict(name="out", value="DIR", bare="", help="Where shards go. Required.", group="Flags")
        self.assertEqual(described["flags"][0], flag)


if __name__ == "__main__":
    unittest.main()
