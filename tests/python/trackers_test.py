#!/usr/bin/env python3
"""catchment.track with W&B and MLflow themselves: what they have stored of real jobs
(tests/python/frameworks.sh track)."""

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "python")
OUT = tempfile.TemporaryDirectory(prefix="trackers-")
os.environ.update(
    WANDB_MODE="offline",
    WANDB_SILENT="true",
    WANDB_DIR=OUT.name,
    MLFLOW_DISABLE_AUTO_LOGGING="true",
    MLFLOW_TRACKING_URI="sqlite:///%s/mlflow.db" % OUT.name,
)
import mlflow
from wandb.proto.wandb_internal_pb2 import Record

from catchment import track

COMMAND = [
    os.path.abspath("bazel-bin/cli/catchment"),
    "train",
    "examples/drawn_digits.textproto",
    "--workers=1",
    "--set=data.drawn_digits={train_samples: 512, test_samples: 64}",
    "--set=evaluation.every_epochs=0.5",
]


def directory(name):
    return os.path.join(OUT.name, name)


def records(run):
    """The records of an offline run of W&B, which is a log of LevelDB's format behind a
    header of seven bytes."""
    names = [name for name in os.listdir(directory("wandb")) if name.endswith("-" + run)]
    with open(os.path.join(directory("wandb"), names[0], "run-%s.wandb" % run), "rb") as file:
        data = file.read()
    place, record = 7, b""
    while place + 7 <= len(data):
        rest = -place % 32768
        if 0 < rest < 7:  # the end of a block, which has no place for a header
            place += rest
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        record += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # FULL, LAST
            yield Record.FromString(record)
            record = b""


class Wandb:
    """The data that W&B has stored of a run, which has ended. W&B's own process may write the last records
    after that."""

    def __init__(self, run):
        deadline, self.exit_code = time.monotonic() + 300, None
        while self.exit_code is None and time.monotonic() < deadline:
            time.sleep(0.1)
            self._read(run)

    def _read(self, run):
        self.rows, self.config, self.summary, self.axes, self.exit_code = [], {}, {}, {}, None
        for record in records(run):
            self.config.update(self._values(record.run.config.update))
            self.summary.update(self._values(record.summary.update))
            if record.HasField("metric"):
                self.axes[record.metric.name] = record.metric.step_metric
            if record.HasField("history"):
                self.rows.append(self._values(record.history.item))
            if record.HasField("exit"):
                self.exit_code = record.exit.exit_code

    @staticmethod
    def _values(items):
        return {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}

    def curve(self, name, axis="samples"):
        return [(row[axis], row[name]) for row in self.rows if name in row]


class Mlflow:
    """The data that MLflow has stored of a run."""

    def __init__(self, run):
        self._client, self._id = mlflow.MlflowClient(), run
        self.run = self._client.get_run(run)

    def curve(self, name):
        history = self._client.get_metric_history(self._id, name)
        # MLflow stores equal points once if they are sent together.
        return sorted({(metric.step, metric.value) for metric in history})


def made(name, rows, summary):
    """A directory with files as of a job, which no master uses any more."""
    os.makedirs(directory(name))
    with open(os.path.join(directory(name), "metrics.jsonl"), "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    if summary is not None:
        with open(os.path.join(directory(name), "summary.json"), "w") as file:
            json.dump(summary, file)
    return directory(name)


class TrackersTest(unittest.TestCase):
    def test_a_job_is_followed_to_its_end(self):
        out, runs = directory("job"), {}
        train = subprocess.Popen(COMMAND + ["--out=" + out, "--set=epochs=12"], stdout=subprocess.DEVNULL)
        self.addCleanup(train.wait)
        while not os.path.exists(out + "/job.textproto"):
            self.assertIsNone(train.poll())
        threads = [
            threading.Thread(target=lambda: runs.update(wandb=track.wandb(out, config={"mine": 1}))),
            threading.Thread(target=lambda: runs.update(mlflow=track.mlflow(out))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with open(out + "/metrics.jsonl") as file:
            rows = [json.loads(line) for line in file]
        with open(out + "/summary.json") as file:
            summary = json.load(file)
        losses = [(row["samples"], row["train_loss"]) for row in rows]
        scores = sorted(
            {(row["tested_at_samples"], row["test_loss"]) for row in rows if row["test_loss"] is not None}
        )
        self.assertEqual(summary["phase"], "DONE")
        self.assertTrue(scores)

        run = Wandb(runs["wandb"])
        self.assertEqual(run.exit_code, 0)
        self.assertEqual(
            (run.config["name"], run.config["epochs"], run.config["mine"]), ("drawn_digits", 12, 1)
        )
        self.assertEqual(run.config["model"]["layers"][0]["conv2d"]["filters"], 32)
        self.assertEqual(run.curve("train_loss"), losses)
        self.assertEqual(run.curve("test_loss", "tested_at_samples"), scores)
        self.assertEqual((run.axes["train_loss"], run.axes["test_loss"]), ("samples", "tested_at_samples"))
        for key in ("phase", "test_accuracy", "compute_seconds"):
            self.assertEqual(run.summary[key], summary[key])

        run = Mlflow(runs["mlflow"])
        self.assertEqual((run.run.info.status, run.run.info.run_name), ("FINISHED", "drawn_digits"))
        self.assertEqual(
            (run.run.data.params["epochs"], run.run.data.params["model.layers.0.conv2d.filters"]),
            ("12", "32"),
        )
        self.assertEqual(run.curve("train_loss"), sorted(set(losses)))
        self.assertEqual(run.curve("test_loss"), scores)
        self.assertEqual(
            (run.run.data.tags["phase"], run.run.data.metrics["summary/test_accuracy"]),
            ("DONE", summary["test_accuracy"]),
        )

    def test_a_job_that_was_killed_is_marked_as_failed(self):
        out = directory("killed")
        train = subprocess.Popen(
            COMMAND + ["--out=" + out, "--set=epochs=10000"],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.addCleanup(train.wait)
        while not os.path.exists(out + "/metrics.jsonl") or not os.path.getsize(out + "/metrics.jsonl"):
            self.assertIsNone(train.poll())
        os.killpg(train.pid, signal.SIGKILL)
        run = Wandb(track.wandb(out, lost_after=0))
        self.assertEqual((run.exit_code, run.summary["phase"]), (1, "FAILED"))
        self.assertIn("the master has disappeared", run.summary["reason"])
        self.assertTrue(run.rows)
        self.assertEqual(Mlflow(track.mlflow(out, lost_after=0)).run.info.status, "FAILED")

    def test_a_job_that_goes_back_to_a_checkpoint(self):
        samples = [100, 200, 300, 200, 300, 400]
        rows = [{"samples": at, "train_loss": 1 / (1 + i)} for i, at in enumerate(samples)]
        out = made("back", rows, {"phase": "FAILED", "reason": "not finite", "samples": 400})
        curve = [(row["samples"], row["train_loss"]) for row in rows]
        run = Wandb(track.wandb(out))
        self.assertEqual(
            (run.curve("train_loss"), run.exit_code, run.summary["reason"]), (curve, 1, "not finite")
        )
        run = Mlflow(track.mlflow(out, run_name="back"))
        self.assertEqual(run.curve("train_loss"), sorted(curve))
        self.assertEqual((run.run.info.status, run.run.data.tags["reason"]), ("FAILED", "not finite"))

    def test_no_run_is_begun_for_another_directory(self):
        with self.assertRaisesRegex(ValueError, "not the directory of a run"):
            track.mlflow(directory("none"))
        self.assertIsNone(mlflow.active_run())


if __name__ == "__main__":
    # W&B does not end in order after sys.exit(True).
    sys.exit(int(not unittest.main(exit=False).result.wasSuccessful()))
