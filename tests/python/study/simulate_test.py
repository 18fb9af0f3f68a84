#!/usr/bin/env python3
"""Tests `catchment simulate`: models of a cluster, what is read of a finished run, and whole command lines,
byte for byte."""

import hashlib
import json
import random
import re
import shutil
import tempfile
import unittest
from typing import Any, List

import reference
from catchment.study import models, simulate
from catchment.study.errors import Refused
from catchment.study.models import Distribution, NetworkModel, QuadraticModel, StragglerModel
from catchment.study.recorded_run import RecordedRun

# Texts of flags, and what they mean.
TEXTS = {
    models.parse_distribution: {
        "constant:120ms": Distribution("constant", 0.12),
        "lognormal:1.5s:0.3": Distribution("lognormal", 1.5, 0.3),
        "exponential:2h": Distribution("exponential", 7200),
        "gamma:50us:4": Distribution("gamma", 50 * 1e-6, 4),
    },
    models.parse_start: {"none": Distribution(), "constant:1s": Distribution("constant", 1)},
    models.parse_network: {
        "10Gbit:50us": NetworkModel(1.25e9, 50 * 1e-6),
        "100Mbit:1ms": NetworkModel(1.25e7, 1e-3),
        "unlimited:0us": NetworkModel(0, 0),
    },
    models.parse_straggler: {
        "3:10x": StragglerModel("3:10x", 10, 3),
        "1%:2.5x": StragglerModel("1%:2.5x", 2.5, None, 0.01),
        "50%steps:2x": StragglerModel("50%steps:2x", 2, None, 0.5, True),
    },
    models.parse_failures: {
        "2h:30s": models.FailureModel(7200, 30),
        "1m:0s:hang": models.FailureModel(60, 0, True),
    },
    models.parse_quadratic: {
        "quadratic:100:0.1": QuadraticModel(100, 0.1),
        "quadratic:1:0": QuadraticModel(),
    },
}
WRONG = {
    models.parse_distribution: (
        "constant constant:0s constant:1 normal:1s lognormal:1s lognormal:1s:0 lognormal:1s:x gamma:1s:inf "
        "constant:1s:2 constant:-1s constant:infs constant:1.2.3s constant:.s"
    ),
    models.parse_start: "None late exponential:0s",
    models.parse_network: "10Gbit 10:50us 0Gbit:50us -1Gbit:50us 10Gbit:50 unlimited:0us:1 Gbit:1us",
    models.parse_straggler: (
        "3 3:10 3:0.5x 3:x -1:2x 1.5:2x 0%:2x 101%:2x 1%step:2x %:2x 1:2:3x 1steps%:2x 3:infx 3:nanx"
    ),
    models.parse_failures: "2h 0s:1s 2h:x 2h:1s:hangs 2h:1s:hang:hang 2:1",
    models.parse_quadratic: "quadratic quadratic:0.5:1 quadratic:2:-1 cubic:2:1 quadratic:inf:1",
}


class ModelsTest(unittest.TestCase):
    def test_reads_texts(self) -> None:
        for parse, texts in TEXTS.items():
            for given, model in texts.items():
                self.assertEqual(parse(given), model, given)

    def test_refuses_others_with_the_forms(self) -> None:
        for parse, texts in WRONG.items():
            for given in [*texts.split(" "), ""]:
                with self.assertRaisesRegex(Refused, "takes .* such as ", msg=given):
                    parse(given)

    def test_writes_models(self) -> None:
        for given in ("constant:120ms", "lognormal:50ms:0.3", "exponential:0.05ms", "gamma:2000ms:4"):
            self.assertEqual(str(models.parse_distribution(given)), given)
        for given in ("10Gbit:50us", "0.1Gbit:1000us", "unlimited:0us"):
            self.assertEqual(str(models.parse_network(given)), given)

    def test_slows_down_the_last_workers(self) -> None:
        slow = {"3:2x": [3], "9:2x": [], "20%:2x": [8, 7], "5%:2x": [], "6%:2x": [8], "6%steps:2x": []}
        for given, workers in slow.items():
            model = models.parse_straggler(given)
            self.assertEqual([worker for worker, _ in model.slow_workers(9)], workers, given)


class RecordedRunTest(unittest.TestCase):
    def setUp(self) -> None:
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)

    def write(self, name: str, text: str) -> None:
        with open(self.root + "/" + name, "w", encoding="utf-8") as file:
            file.write(text)

    def write_job(self, preset: str) -> None:
        self.write(
            "job.textproto",
            "name: 'run' model { synthetic { parameters: 1000 } } data { synthetic { samples: 10000 } } "
            "batch_size: 10 workers: 2 algorithm { preset: '%s' }" % preset,
        )

    def write_summary(self, **figures: Any) -> None:
        self.write("summary.json", json.dumps(dict(figures, phase="DONE")))

    def write_run(self, workers: int, sigma: float, load: float = 1, start: Any = None) -> None:
        """Writes a run of intervals of 5 seconds, in which workers make as many steps of 0.1 s as fit. In
        every other interval steps take `load` times as long; `start` returns what is in addition in first
        steps."""
        self.write_job("downpour")
        chance, lines, computed, samples = random.Random(1), [], 0.0, 0
        for i in range(1, 501):
            rates = []
            for worker in range(workers):
                seconds, steps = start(chance) if start and i == 1 else 0.0, 0
                while seconds < 5:
                    step = 0.1 * chance.lognormvariate(-(sigma**2) / 2, sigma)
                    seconds += step if i % 2 else load * step
                    steps += 1
                computed, samples = computed + seconds, samples + 10 * steps
                rates.append(
                    {"worker": worker, "samples_per_second": 10 * steps / seconds, "compute_share": 1}
                )
            lines.append(json.dumps({"wall_seconds": 5 * i, "worker_rates": rates}))
        self.write_summary(samples=samples, compute_seconds=computed)
        self.write("metrics.jsonl", "\n".join([*lines, '{"wall_sec']))

    def test_step_of_a_resumed_run_is_that_since_its_last_start(self) -> None:
        self.write_job("downpour")
        self.write("metrics.jsonl", "")
        for figures in ({"samples": 16000, "computed_samples": 4000}, {"samples": 4000}):
            self.write_summary(compute_seconds=48, **figures)
            self.assertEqual(RecordedRun(self.root).step(), Distribution("constant", 48 * 10 / 4000))

    def test_takes_the_spread_of_steps_without_a_load_that_all_share(self) -> None:
        for workers, load in ((1, 1), (3, 1.2)):
            self.write_run(workers, 0.4, load)
            step = RecordedRun(self.root).step()
            self.assertEqual(step.kind, "lognormal")
            self.assertAlmostEqual(step.mean, 0.1 * (1 + load) / 2, delta=0.01)
            self.assertAlmostEqual(step.shape, 0.4, delta=0.06)

    def test_takes_the_spread_of_first_steps(self) -> None:
        self.write_run(40, 0.2, start=lambda chance: chance.expovariate(1))
        start = RecordedRun(self.root).start()
        self.assertEqual(start and start.kind, "exponential")
        self.assertAlmostEqual(start.mean if start else 0, 1, delta=0.4)
        # One that is the same for all workers, such as the compiler's, does not set them apart.
        self.write_run(40, 0, start=lambda _: 3)
        together = RecordedRun(self.root).start()
        self.assertLess(together.mean if together else 0, 1e-6)
        self.write_run(1, 0.2, start=lambda _: 3)
        self.assertIsNone(RecordedRun(self.root).start(), "there is nobody to differ from")

    def test_names_what_a_run_lacks(self) -> None:
        def refused(name: str, word: str) -> None:
            with self.assertRaisesRegex(Refused, "--from=%s: .*%s" % (self.root, word)):
                getattr(RecordedRun(self.root), name)()

        refused("step", "summary.json")
        self.write_summary()
        refused("step", "job.textproto")
        self.write_job("downpour")
        refused("step", "compute_seconds")
        self.write_summary(compute_seconds=48)
        refused("step", "samples")
        self.write_summary(compute_seconds=48, samples=4000)
        refused("step", "metrics.jsonl")
        refused("network", "round_trip_p50_us")
        self.write_summary(round_trip_p50_us=800)
        self.assertEqual(RecordedRun(self.root).network(), NetworkModel(0, 0.5e-6 * 800))
        self.write_job("sync")
        refused("network", "--network")


def steady(out: str) -> List[str]:
    """Returns the lines without what the order in which runs end, and their time, decide."""
    return sorted(re.sub(r"^\[ *\d+/\d+\]| \| \S.* left$", "", line) for line in out.split("\n"))


def canonical(in_json: str) -> str:
    """Returns the same values in the same order, without the version of the program. One in a thousand
    numbers had more digits in the reference than it takes to tell it from all others."""
    return json.dumps({**json.loads(in_json), "version": ""}, indent=1)


class CommandTest(unittest.TestCase):
    def check(self, case: Any) -> None:
        with tempfile.TemporaryDirectory() as root:
            flag = [] if not case["args"] or case["args"][0][:2] == "--" else ["--out=%s/sim" % root]
            outcome = reference.run(simulate, case["args"] + flag)
            files = {name: self.read(root + "/sim/" + name) for name in case["files"]}
        self.assertEqual(outcome.code, case["code"], outcome.err)
        self.assertEqual(steady(outcome.out.replace(root, "OUT")), steady(case["out"]))
        self.assertEqual(outcome.err.replace(root, "OUT"), case["err"])
        for name, text in files.items():
            expected, text = case["files"][name], canonical(reference.as_then(text).replace(root, "OUT"))
            if expected.startswith("sha256:"):
                text = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
            self.assertEqual(text, expected, name)

    @staticmethod
    def read(path: str) -> str:
        with open(path, encoding="utf-8") as file:
            return file.read()

    def test_does_as_the_reference(self) -> None:
        for case in reference.cases_of("simulate"):
            with self.subTest(case["args"]):
                self.check(case)

    def test_continues_with_the_runs_that_are_missing(self) -> None:
        with tempfile.TemporaryDirectory() as root:
            args = ["load.textproto", "--workers=1,2", "--out=" + root + "/sim"]
            self.assertEqual(reference.run(simulate, args).code, 0)
            report = self.read(root + "/sim/report.json")
            shutil.rmtree(root + "/sim/runs/downpour-2-workers-seed-1")
            again = reference.run(simulate, args)
            self.assertEqual(again.code, 0, again.err)
            self.assertIn("1 of 2 runs are already done", again.out)
            self.assertEqual(self.read(root + "/sim/report.json"), report)
            other = reference.run(simulate, [*args, "--step=constant:60ms"])
            self.assertEqual(other.code, 1)
            self.assertIn("holds another comparison", other.err)


if __name__ == "__main__":
    reference.use_binary()
    unittest.main()
