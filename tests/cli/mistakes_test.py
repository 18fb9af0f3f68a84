#!/usr/bin/env python3
"""The mistakes of new users get an answer that names the remedy, from every command that can meet them."""

import concurrent.futures
import json
import os
import subprocess
import unittest

PROGRAM = os.path.abspath("cli/catchment")
SCRATCH = os.environ["TEST_TMPDIR"]
JOB = "examples/drawn_digits.textproto"
# The flags that commands need.
NEEDED = {
    "manifests": ["--image=i"],
    "pack": ["--out=%s/packed" % SCRATCH],
    "compare": ["--algorithms=sync"],
    "tune": ["--over=optimizer.learning_rate=0.1..0.2"],
    "simulate": ["--step=constant:1ms"],
}
HELP = subprocess.run([PROGRAM, "--help=json"], stdout=subprocess.PIPE, check=True).stdout
COMMANDS = {one["name"][10:]: one for one in json.loads(HELP) if one["name"].startswith("catchment ")}
# The commands that change a job with --set, with the flags that they need.
OF_JOBS = {
    name: NEEDED.get(name, [])
    for name, one in COMMANDS.items()
    if any(flag["name"] == "set" for flag in one["flags"])
}
# Mistakes, and what the answer to each says instead.
FIELDS = [
    ("--epochs=3", "--set epochs=3"),
    ("--epoch=3", "--set epochs=3"),
    ("--lr=0.1", "--set optimizer.learning_rate=0.1"),
    ("--learning-rate=0.1", "--set optimizer.learning_rate=0.1"),
    ("--momentum=0.5", "--set optimizer.momentum=0.5"),
    ("--weight_decay=0.5", "--set optimizer.weight_decay=0.5"),
    ("--batch-size=32", "--set batch_size=32"),
    ("--batch_size=32", "--set batch_size=32"),
    ("--preset=easgd", "--set algorithm.preset=easgd"),
    ("--optimizer=ADAM", "--set optimizer.kind=ADAM"),
    ("--optimizer.momentum=0.5", "--set optimizer.momentum=0.5"),
    ("--local_steps=8", "--set algorithm.contribution.pseudo_gradient.local_steps=8"),
    ("--samples=100", "--set samples=100"),
    ("--updates=100", "--set updates=100"),
    ("epochs=3", "--set epochs=3"),
    ("optimizer.learning_rate=0.1", "--set optimizer.learning_rate=0.1"),
]
ALGORITHMS = [
    ("asynch", "downpour"),
    ("asyncronous", "downpour"),
    ("synchronus", "sync"),
    ("all_reduce", "sync"),
    ("localsgd", "local_sgd"),
    ("dilocco", "diloco"),
    ("fed-avg", "local_sgd"),
]
RANGES = ["0.001-1", "0.001:1", "0.001 to 1", "0.001~1", "1e-3-1"]
SINGLE_VALUES = ["0.1", "COSINE", "1e-3"]
BUDGETS = [
    ("samples:1.5", "takes a whole number of samples"),
    ("samples:0", "takes a whole number of samples"),
    ("samples:many", "takes a whole number of samples"),
    ("seconds:-1", "takes a number of seconds above 0"),
    ("60000", "did you mean samples:60000?"),
    ("epochs:3", "takes samples:N or seconds:N"),
]


def run(args):
    return subprocess.run(
        [PROGRAM, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )


def write(name, text):
    path = os.path.join(SCRATCH, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def two_of_jobs(i):
    """Returns two commands: every one in turn."""
    return [(list(OF_JOBS) * 2)[i % len(OF_JOBS) + half] for half in (0, len(OF_JOBS) // 2)]


class MistakesTest(unittest.TestCase):
    def check(self, cases):
        """Runs command lines, which have to fail with the right answers.

        cases: (args, what the answer has to contain, what it must not contain).
        """
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            ended = list(pool.map(lambda case: run(case[0]), cases))
        for (args, has, lacks), one in zip(cases, ended):
            with self.subTest(" ".join(args)):
                self.assertGreater(one.returncode, 0, one.stdout)
                # The program names the command, or Python does, but not both.
                self.assertLessEqual(one.stderr.count("catchment %s: " % args[0]), 1, one.stderr)
                for text in has:
                    self.assertIn(text, one.stderr)
                for text in (*lacks, "Traceback"):
                    self.assertNotIn(text, one.stderr)

    def test_a_field_of_the_job_as_a_flag_leads_to_set(self):
        cases = [
            ([name, JOB, flag], ["is a field of the job", remedy], [])
            for i, (flag, remedy) in enumerate(FIELDS)
            for name in two_of_jobs(i)
        ]
        cases += [([name, JOB, "--epochs", "3"], ["--set epochs=3"], []) for name in ("train", "compare")]
        cases += [
            ([name, JOB, "--algorithm=easgd"], ["--set algorithm.preset=easgd"], [])
            for name in ("train", "advise")
        ]
        cases.append((["compare", JOB, "--algorithm=easgd"], ["is it --algorithms?"], []))
        self.check(cases)

    def test_commands_of_jobs_are_those_that_the_help_names(self):
        self.assertEqual(
            {name for name, one in COMMANDS.items() if one["argument"].startswith("JOB")}, set(OF_JOBS)
        )
        self.assertLessEqual({"train", "compare", "runs", "diff", "status", "man"}, set(COMMANDS))

    def test_a_file_with_the_name_of_a_field_is_a_file(self):
        with open(JOB, encoding="utf-8") as file:
            job = write("lr=0.1/job.textproto", file.read())
        for args in (["validate", job], ["compare", job, "--algorithms=sync", "--workers=1", "--dry_run"]):
            ended = run(args)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""), args)

    def test_a_flag_that_is_misspelled_is_still_found(self):
        cases = [
            ([name, JOB, flag], ["is it %s?" % right], [])
            for name, flag, right in (
                ("train", "--worker=3", "--workers"),
                ("train", "--resum", "--resume"),
                ("train", "--overwrit", "--overwrite"),
                ("compare", "--worker=3", "--workers"),
                ("tune", "--overwrit", "--overwrite"),
            )
        ]
        cases += [
            ([name, "--frobnicate=3"], ["unknown flag --frobnicate"], ["is a field"]) for name in COMMANDS
        ]
        self.check(cases)

    def test_a_program_as_the_job_leads_to_the_flag(self):
        source = write("programs/train.py", "import torch\n\n\ndef f():\n    return 1\n")
        script = write("programs/run", "#!/bin/sh\npython train.py\n")
        self.check(
            [
                ([name, *flags, file], ["is a program, not a job", '--program="%s"' % program], [])
                for name, flags in OF_JOBS.items()
                if name != "tune"  # It looks for Optuna first.
                for file, program in ((source, "python " + source), (script, script))
            ]
        )

    def test_a_program_that_the_shell_cannot_start_is_named(self):
        file = write("program.py", "import catchment\n")
        self.check(
            [
                ([name, *flags, "--program=" + program], ["could not be started", remedy], ["join()"])
                for name, flags in (("validate", []), ("compare", OF_JOBS["compare"]))
                for program, remedy in (
                    (file, '--program="python %s"' % file),
                    (file + " --epochs 3", '--program="python %s --epochs 3"' % file),
                    ("no-such-interpreter train.py", "a command for /bin/sh"),
                )
            ]
        )

    def test_what_is_neither_a_directory_nor_an_address_is_named(self):
        neither = "'no-such-directory' is neither a directory, the --out of a run, nor HOST:PORT"
        self.check(
            [
                ([name, place], [answer], [])
                for name in ("status", "stop", "health", "watch")
                for place, answer in (("no-such-directory", neither), ("node0:port", "is not HOST:PORT"))
            ]
        )

    def test_names_of_algorithms_lead_to_the_nearest(self):
        self.check(
            [
                (["compare", JOB, "--algorithms=sync," + name], ["did you mean %s?" % preset], [])
                for name, preset in ALGORITHMS
            ]
        )

    def test_a_range_in_another_form_is_shown_in_ours(self):
        over = "--over=optimizer.learning_rate="
        form = ["a range is written with two points", "..1"]
        cases = [(["tune", JOB, over + given], form, []) for given in RANGES]
        cases += [(["tune", JOB, over + given], ["has one value"], []) for given in SINGLE_VALUES]
        self.check(cases)

    def test_a_budget_that_is_refused_says_why(self):
        def args(budget):
            return ["compare", "no-such-job.textproto", "--algorithms=sync", "--budget=" + budget]

        cases = [(args(budget), [answer], []) for budget, answer in BUDGETS]
        cases.append((args("samples:1e5"), [], ["--budget"]))  # It is a whole number.
        self.check(cases)


if __name__ == "__main__":
    unittest.main()
