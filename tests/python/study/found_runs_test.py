#!/usr/bin/env python3
"""Tests `catchment runs` and `catchment diff`, with runs in every state."""

import fcntl
import io
import json
import os
import tempfile
import unittest
from typing import Any, List, Tuple

import reference
from catchment.study import core, diff, list_runs
from catchment.study.command_line import Stream, Streams

JOB = (
    "name: 'digits' data { drawn_digits {} } epochs: 1 workers: 2 "
    "model { layers { flatten {} } layers { dense { units: 10 } } } %s"
)
DONE = dict(
    phase="DONE", job="digits", algorithm="sync", workers=2, wall_seconds=10.0, build="0.1.0, commit abc"
)


class FoundRunsTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(directory.name)
        self.addCleanup(core.DOOR.close)  # which has the directory in which it began

    def write(self, path: str, text: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def run_of(self, name: str, job: str = "", **summary: Any) -> str:
        self.write(name + "/job.textproto", JOB % job)
        self.write(name + "/metrics.jsonl", '{"test_accuracy":0.5,"wall_seconds":3}\n{"test_acc')
        if summary:
            self.write(name + "/summary.json", json.dumps({**DONE, **summary}))
        return name

    def call(self, command: Any, *args: str) -> Tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        return command.main(args, Streams(Stream(out), Stream(err))), out.getvalue(), err.getvalue()

    def listed(self, *args: str) -> Any:
        code, out, err = self.call(list_runs, *args, "--json")
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)["runs"]

    def test_lists_runs_in_every_state(self) -> None:
        self.run_of("a/done", test_accuracy=0.98, test_loss=0.07)
        self.run_of("a/compared/runs/sync-2-1", phase="FAILED", reason="it diverged")
        self.run_of("b/unfinished", "algorithm { preset: 'downpour' }")
        self.write("c/damaged/summary.json", '{"phase": "DO')
        self.write("c/odd/summary.json", '{"phase": 3, "workers": "x", "test_accuracy": []}')
        self.write("c/none/notes.txt", "")
        self.write("b/.trash/summary.json", "{}")
        os.symlink("../a", "b/link")
        self.run_of("d/running")
        self.write("d/running/master.lock", "")
        with open("d/running/master.lock", "w") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            if os.fork() == 0:  # a process does not see its own lock
                code, out, _ = self.call(list_runs, "--json")
                phases = [run["phase"] for run in json.loads(out)["runs"]]
                os._exit(phases != ["FAILED", "DONE", "UNFINISHED", "DAMAGED", "DAMAGED", "RUNNING"] or code)
            self.assertEqual(os.wait()[1], 0)
        runs = {os.path.normpath(run["directory"]): run for run in self.listed()}
        self.assertEqual(len(runs), 6)
        self.assertEqual(runs["a/compared/runs/sync-2-1"]["reason"], "it diverged")
        done, unfinished = runs["a/done"], runs["b/unfinished"]
        self.assertEqual((done["test_accuracy"], done["build"]), (0.98, "0.1.0, commit abc"))
        expected = ("digits", "downpour", 2, 0.5, 3)
        keys = ("job", "preset", "workers", "test_accuracy", "wall_seconds")
        self.assertEqual(tuple(unfinished[key] for key in keys), expected)
        self.assertIn("is not a JSON object", runs["c/damaged"]["reason"])
        self.assertIn("has no phase", runs["c/odd"]["reason"])

    def test_a_table_has_a_row_for_each(self) -> None:
        self.run_of("a\x1b[31m\u202e<b>\n", test_accuracy=0.98)
        self.run_of("b", phase="STOPPED", reason="by Ctrl-C\nx")
        code, out, err = self.call(list_runs, ".")
        self.assertEqual((code, err, len(out.splitlines())), (0, "", 3))
        self.assertRegex(
            out, r"(?m)^\./a\\x1b\[31m\\u202e<b>\\n +digits +sync +2 +DONE +98\.00 % +10 s +0\.1\.0, abc"
        )
        self.assertRegex(out, r"(?m)^\./b .* STOPPED .* by Ctrl-C\\nx$")
        os.makedirs(os.fsdecode(b"\xff"))
        self.write(os.fsdecode(b"\xff/summary.json"), "{}")
        self.assertEqual(len(self.listed()), 3)

    def test_what_is_not_there_is_named_and_the_rest_is_listed(self) -> None:
        self.run_of("a", test_accuracy=0.98)
        code, out, err = self.call(list_runs, "nowhere", "a", "a/job.textproto")
        self.assertEqual((code, len(out.splitlines())), (1, 2))
        self.assertRegex(err, "nowhere is not a directory; .*\n.*a/job.textproto is not a directory")
        os.makedirs("empty")
        self.assertEqual(self.call(list_runs, "empty"), (0, "there is no run in empty\n", ""))
        self.assertEqual(self.call(list_runs, "--jsn")[0], 2)

    def diff(self, *args: str) -> List[str]:
        code, out, err = self.call(diff, *args)
        self.assertEqual((code, err), (0, ""))
        return out.splitlines()

    def test_shows_fields_and_scores_that_differ(self) -> None:
        self.run_of("a", test_accuracy=0.97, test_loss=0.1, updates=7)
        self.run_of(
            "b",
            "optimizer { learning_rate: 0.25 } seed: 7",
            test_accuracy=0.98,
            wall_seconds=5.0,
            reason="\x1b<b>",
        )
        lines = self.diff("a", "b")
        self.assertEqual(
            lines[0],
            "b is 1.00 points more accurate than a, after 0.5 times the time; their jobs differ in 2 fields.",
        )
        text = "\n".join(lines)
        self.assertRegex(text, r"optimizer\.learning_rate +[\d.]+ +0\.25\n")
        self.assertRegex(text, r"test accuracy +97\.00 % +98\.00 %\n")
        self.assertIn("\\x1b<b>", text)
        self.assertNotIn("batch_size", text)
        self.assertIn("their jobs are the same.", self.diff("a", "a")[0])

    def test_runs_that_are_not_done(self) -> None:
        self.run_of("a", phase="STOPPED", test_loss=0.5)
        self.run_of("b")
        self.run_of("c", test_loss=0.25)
        self.assertIn("b and a have no score in common", self.diff("a", "b")[0])
        self.assertTrue(self.diff("a", "b")[0].endswith("; a is STOPPED; b is UNFINISHED."))
        self.assertIn("c has a test loss of 0.25, and a one of 0.5, after 1 times", self.diff("a", "c")[0])

    def test_refuses_what_is_not_a_run(self) -> None:
        self.run_of("a", test_accuracy=0.98)
        self.write("broken/summary.json", json.dumps(DONE))
        self.write("broken/job.textproto", "not a job")
        for args, code, words in (
            (["a", "."], 1, ". is not the directory of a run; `catchment runs` lists"),
            (["a", "nowhere"], 1, "nowhere is not the directory of a run"),
            (["a", "broken"], 1, "the job of broken cannot be read"),
            (["a"], 2, "takes two runs"),
            (["a", "a", "a"], 2, "takes two runs"),
        ):
            got, out, err = self.call(diff, *args)
            self.assertEqual((got, out), (code, ""), args)
            self.assertIn(words, err)


if __name__ == "__main__":
    reference.use_binary()
    unittest.main()
