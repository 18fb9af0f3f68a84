#!/usr/bin/env python3
"""catchment.track without W&B and MLflow: how the files of a run are followed."""

import fcntl
import json
import os
import struct
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, "python")
sys.modules["wandb"] = sys.modules["mlflow"] = None  # as where they are not installed
import catchment
from catchment import _run_files, track

F_OFD_SETLK = 37  # Linux; in the module fcntl since Python 3.9
JOB = r"""
name: "\"digits\" \303\244"
model {
  layers {
    flatten {
    }
  }
  layers {
    dense {
      units: 10
      bias: true
    }
  }
}
data {
  drawn_digits {
  }
}
algorithm {
  preset: "sync"
}
optimizer {
  learning_rate: 1e-05
  kind: SGD
}
"""


def row(samples, **more):
    return {
        "samples": samples,
        "train_loss": 0.5,
        "test_loss": None,
        "per_worker": [{"worker": 0}],
        "program": {},
        **more,
    }


class Directory(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="track-")
        self.addCleanup(directory.cleanup)
        self.out = directory.name

    def path(self, name):
        return os.path.join(self.out, name)

    def write(self, name, text, mode="w", **options):
        with open(self.path(name), mode, **options) as file:
            file.write(text)

    def append(self, *rows):
        self.write("metrics.jsonl", "".join(json.dumps(one) + "\n" for one in rows), "a")


class NamesTest(unittest.TestCase):
    def mlflow(self, folders=False):
        return track.Names("MLflow", r"[^/\w.\- ]", 250, paths=True, folders=folders)

    def test_names_that_are_accepted_stay(self):
        names = self.mlflow()
        for name in (
            "samples",
            "program/share/one",
            "a b",
            "\u00fcber.1-x",
            "loss",
            "loss/train",
            "a/...",
            "a/.b",
        ):
            self.assertEqual(names(name), name)

    def test_what_is_refused_becomes_an_underscore(self):
        names = self.mlflow()
        for name, expected in (
            ("program/top-5 %", "program/top-5 _"),
            ("program/acc(val)", "program/acc_val_"),
            ("/a", "_/a"),
            ("a//b", "a/_/b"),
            ("a/", "a/_"),
            (".", "_"),
            ("..", "__"),
            ("..a", "__a"),
            ("a/../b", "a/__/b"),
            ("./c", "_/c"),
            ("x" * 300, "x" * 250),
            ("a:b", "a_b"),
        ):
            self.assertEqual(names(name), expected)
            self.assertEqual(names(name), expected, "again")

    def test_different_names_stay_different(self):
        names = self.mlflow()
        with self.assertWarnsRegex(UserWarning, "MLflow cannot have the metric 'a_b' beside others") as at:
            self.assertEqual(
                [names(name) for name in ("a%b", "a(b", "a_b", "a%b")], ["a_b", "a_b_2", "a_b_3", "a_b"]
            )
        self.assertEqual(at.filename, __file__)
        with self.assertWarns(UserWarning):
            found = [names("y" * 251 + end) for end in "abc"]
        self.assertEqual(len(set(found)), 3)
        self.assertTrue(all(len(name) <= 250 for name in found))

    def test_a_file_and_a_folder_of_one_name(self):
        for first, second in (("p/loss", "p/loss/train"), ("p/loss/train", "p/loss"), ("p", "p/loss/train")):
            names = self.mlflow(folders=True)
            with self.assertWarns(UserWarning):
                found = [names(first), names(second)]
            self.assertEqual(found[0], first)
            self.assertFalse(found[0].startswith(found[1] + "/") or found[1].startswith(found[0] + "/"))
            self.assertEqual(self.mlflow()(second), second)

    def test_stars_stand_for_many_names_in_wandb(self):
        self.assertEqual(track.Names("W&B", r"\*")("program/a*b*"), "program/a_b_")


class LinesTest(Directory):
    def setUp(self):
        super().setUp()
        self.lines = track.Lines(self.path("metrics.jsonl"))

    def read(self):
        return [one["samples"] for one in self.lines.read()]

    def test_a_file_may_appear_later(self):
        self.assertEqual(self.read(), [])
        self.append(row(1))
        self.assertEqual(self.read(), [1])
        self.assertEqual(self.read(), [])

    def test_a_line_is_read_when_it_is_finished(self):
        text = json.dumps(row(2))
        self.append(row(1))
        self.write("metrics.jsonl", text[:20], "a")
        self.assertEqual(self.read(), [1])
        self.write("metrics.jsonl", text[20:], "a")
        self.assertEqual(self.read(), [])
        self.write("metrics.jsonl", "\n", "a")
        self.assertEqual(self.read(), [2])

    def test_a_resumed_run_replaces_an_unfinished_line(self):
        self.append(row(1))
        size = os.path.getsize(self.path("metrics.jsonl"))
        self.write("metrics.jsonl", '{"samples": 999', "a")
        self.assertEqual(self.read(), [1])
        os.truncate(self.path("metrics.jsonl"), size)
        self.append(row(2))
        self.assertEqual(self.read(), [2])

    def test_damaged_lines_are_left_out(self):
        self.append(row(1))
        self.write(
            "metrics.jsonl",
            "\0" * 4096 + "\n" + '{"samples": 5, "tr\n' + "7\n\udcff\n",
            "a",
            errors="surrogateescape",
        )
        self.append(row(2))
        self.write("metrics.jsonl", "\0" * 512, "a")  # before what a resumed run adds
        self.append(row(3))
        self.assertEqual(self.read(), [1, 2, 3])
        self.write("summary.json", json.dumps({"phase": "DONE"}))
        self.assertEqual([one["samples"] for one in catchment.Run(self.out).metrics], [1, 2, 3])
        self.assertEqual(_run_files.last_row(self.path("metrics.jsonl"))["samples"], 3)

    def test_a_new_file_is_read_from_its_beginning(self):
        self.append(row(1), row(2))
        self.assertEqual(self.read(), [1, 2])
        os.rename(self.path("metrics.jsonl"), self.path("old"))  # keeps the inode in use
        self.append(row(3), row(4), row(5))
        self.assertEqual(self.read(), [3, 4, 5])

    def test_a_shorter_file_is_read_from_its_beginning(self):
        self.append(row(1), row(2))
        self.assertEqual(self.read(), [1, 2])
        self.write("metrics.jsonl", json.dumps(row(3)) + "\n")
        self.assertEqual(self.read(), [3])


class FollowedTest(Directory):
    def hold(self):
        """Holds master.lock as the master does; returns what ends that."""
        file = open(self.path("master.lock"), "w")
        self.addCleanup(file.close)
        fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return file.close

    def test_a_running_job_is_followed_until_its_master_ends(self):
        end = self.hold()
        followed = track.Followed(self.out, lost_after=0)
        rows = followed.rows()
        self.append(row(1), row(2))
        self.assertEqual([next(rows)["samples"], next(rows)["samples"]], [1, 2])
        # A resumed master holds the lock while the summary of its predecessor is still there.
        self.write("summary.json", json.dumps({"phase": "STOPPED"}))
        self.append(row(1))
        self.assertEqual(next(rows)["samples"], 1)
        self.append(row(3))
        self.write(
            "summary.json",
            json.dumps({"phase": "DONE", "samples": 3, "reason": "", "momentum": None, "per_worker": []}),
        )
        end()
        self.assertEqual([one["samples"] for one in rows], [3])
        self.assertEqual(followed.summary, {"phase": "DONE", "samples": 3})
        self.assertFalse(followed.failed())

    def test_a_failed_job(self):
        self.append(row(1))
        self.write("summary.json", json.dumps({"phase": "FAILED", "reason": "not finite"}))
        followed = track.Followed(self.out, lost_after=1e9)
        self.assertEqual(len(list(followed.rows())), 1)
        self.assertTrue(followed.failed())

    def test_a_master_that_has_disappeared(self):
        self.hold()()
        self.append(row(1))
        old = os.stat(self.path("metrics.jsonl")).st_mtime - 1000
        for name in ("metrics.jsonl", "master.lock"):
            os.utime(self.path(name), (old, old))
        followed = track.Followed(self.out, lost_after=999)
        self.assertEqual(len(list(followed.rows())), 1)
        self.assertTrue(followed.failed())
        self.assertIn("999 seconds", followed.summary["reason"])

    def test_a_time_of_day_that_is_set_loses_no_master(self):
        self.append(row(1))

        class Clock:
            """A day passes by the time of day in each pause; in the third one the job ends."""

            pauses = 0

            def time(self):
                return time.time() + 86400 * self.pauses

            def monotonic(self):
                return 1000 + self.pauses

            def sleep(clock, seconds):
                clock.pauses += 1
                if clock.pauses == 3:
                    self.write("summary.json", json.dumps({"phase": "DONE"}))

        followed = track.Followed(self.out, lost_after=3600)
        with mock.patch.object(track, "time", Clock()):
            self.assertEqual(len(list(followed.rows())), 1)
        self.assertEqual(followed.summary, {"phase": "DONE"})

    def test_a_summary_that_is_damaged_is_none(self):
        self.append(row(1))
        self.write("summary.json", "\0" * 100)
        followed = track.Followed(self.out, lost_after=0)
        self.assertEqual(len(list(followed.rows())), 1)
        self.assertIn("the master has disappeared", followed.summary["reason"])

    def test_a_score_is_in_one_row(self):
        self.append(
            row(1),
            row(2, tested_at_samples=1, test_loss=0.4, test_accuracy=0.8),
            row(3, tested_at_samples=1, test_loss=0.4, test_accuracy=0.8),
            row(4, tested_at_samples=3, test_loss=0.3),
        )
        self.write("summary.json", "{}")
        rows = list(track.Followed(self.out, lost_after=0).rows())
        self.assertEqual([one.get("test_loss") for one in rows], [None, 0.4, None, 0.3])
        self.assertEqual(
            rows[1],
            {"samples": 2, "train_loss": 0.5, "tested_at_samples": 1, "test_loss": 0.4, "test_accuracy": 0.8},
        )
        self.assertEqual(rows[2], {"samples": 3, "train_loss": 0.5})

    def test_metrics_of_programs_are_in_rows(self):
        self.append(row(1, program={"norm": 2}))
        self.write("summary.json", "{}")
        rows = list(track.Followed(self.out, lost_after=0).rows())
        self.assertEqual(rows, [{"samples": 1, "train_loss": 0.5, "program/norm": 2}])

    def test_the_fields_of_the_job(self):
        self.write("job.textproto", JOB)
        job = track.Followed(self.out, lost_after=0).job()
        self.assertEqual(
            job,
            {
                "name": '"digits" \u00e4',
                "model": {"layers": [{"flatten": {}}, {"dense": {"units": 10, "bias": True}}]},
                "data": {"drawn_digits": {}},
                "algorithm": {"preset": "sync"},
                "optimizer": {"learning_rate": 1e-05, "kind": "SGD"},
            },
        )
        fields = dict(track._fields(job))
        self.assertEqual((fields["model.layers.0.flatten"], fields["model.layers.1.dense.units"]), ("{}", 10))
        self.assertEqual(fields["optimizer.learning_rate"], 1e-05)

    def test_a_job_file_is_not_needed(self):
        self.append(row(1))
        job = track.Followed(self.out, lost_after=0).job()
        self.assertEqual((job, list(track._fields(job))), ({}, []))

    def test_other_directories_are_refused(self):
        for directory in (self.out, self.path("none")):
            with self.assertRaisesRegex(ValueError, "not the directory of a run: .*start the job first"):
                track.Followed(directory, lost_after=0)

    def test_a_missing_package_is_named(self):
        for function in (track.wandb, track.mlflow):
            with self.assertRaisesRegex(ImportError, "pip install %s" % function.__name__):
                function(self.out)


if __name__ == "__main__":
    unittest.main()
