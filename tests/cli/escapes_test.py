#!/usr/bin/env python3
"""Whatever is in a job, an argument or the name of a file:
no command prints it so that a terminal obeys it."""

import json
import os
import subprocess
import unittest

PROGRAM = os.path.abspath("cli/catchment")
SCRATCH = os.environ["TEST_TMPDIR"]
RAW = "\x1b]0;obeyed\x07\x1b[31m\r\x08\x7f\u009b\u202e"
QUOTED = "".join("\\%03o" % byte for byte in RAW.encode())  # as in a job file
CONTROLS = [chr(code).encode() for code in [*range(10), *range(11, 32), 127, 0x9B, 0x202E]]
HELP = subprocess.run([PROGRAM, "--help=json"], stdout=subprocess.PIPE, check=True).stdout
SUBCOMMANDS = [one["name"][10:] for one in json.loads(HELP) if one["name"].startswith("catchment ")]
MODEL = "model { layers { flatten {} } layers { dense { units: 10 } } }\n"
DATA = "data { drawn_digits { train_samples: 64 test_samples: 64 } }\n"
JOBS = {
    "name": 'name: "x%s"\n' % QUOTED + MODEL + DATA,
    "preset": 'algorithm { preset: "sync%s" }\n' % QUOTED + MODEL + DATA,
    "unknown": MODEL + DATA + "foo%s: 1\n" % RAW,
    "path": MODEL + 'data { table { train: "/nowhere/%s.csv" shape: 3 classes: 3 } }\n' % QUOTED,
    "weights": MODEL.replace("{", '{ initial_weights: "/nowhere/%s"' % QUOTED, 1) + DATA,
}


class EscapesTest(unittest.TestCase):
    def run_command(self, *arguments):
        ended = subprocess.run(
            [PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=600,
        )
        printed = ended.stdout + ended.stderr
        for control in CONTROLS:
            self.assertNotIn(control, printed, arguments)
        printed.decode()
        return ended

    def job(self, name):
        path = os.path.join(SCRATCH, name + ".textproto")
        with open(path, "w", encoding="utf-8") as file:
            file.write(JOBS[name])
        return path

    def test_jobs(self):
        for name in JOBS:
            job, out = self.job(name), os.path.join(SCRATCH, name)
            with self.subTest(name):
                for arguments in (
                    ["validate"],
                    ["validate", "--json"],
                    ["train", "--workers=1", "--set=samples=64"],
                    ["compare", "--algorithms=sync", "--workers=1", "--dry_run"],
                    ["simulate", "--step=10ms", "--workers=2", "--budget=samples:64"],
                    ["tune", "--over=optimizer.learning_rate=0.1..0.2"],
                    ["advise", "--step=10ms"],
                    ["manifests", "--image=x"],
                    ["pack"],
                ):
                    writes = arguments[0] in ("train", "compare", "simulate", "tune", "pack")
                    self.run_command(
                        arguments[0],
                        job,
                        *arguments[1:],
                        *(["--out=%s-%s" % (out, arguments[0])] if writes else []),
                    )

    def test_what_is_escaped_is_shown(self):
        ended = self.run_command("validate", self.job("weights"))
        self.assertIn(b"/nowhere/\\x1b]0;obeyed\\x07\\x1b[31m\\x0d\\x08\\u007f\\u009b\\u202e", ended.stdout)

    def test_json_stays_json(self):
        for name in JOBS:
            json.loads(self.run_command("validate", self.job(name), "--json").stdout)

    def test_arguments(self):
        job = self.job("weights")
        self.run_command("x" + RAW)
        self.run_command("--" + RAW)
        for name in SUBCOMMANDS:
            out = os.path.join(SCRATCH, "by_" + name)
            for arguments in (
                [os.path.join(SCRATCH, RAW)],
                ["--" + RAW],
                ["--" + RAW + "=1"],
                ["--out=" + out + RAW],
                ["--set=" + RAW + "=1", job],
                ["--set=name=" + RAW, job],
                ["--set=epochs=" + RAW, job],
                ["--set=algorithm.preset=" + RAW, job],
                ["a", "b" + RAW],
            ):
                self.run_command(name, *arguments)


if __name__ == "__main__":
    unittest.main()
