#!/usr/bin/env python3
"""Tests `catchment advise`: its rules, its evidence, and whole command lines, byte for byte."""

import unittest
from typing import Any, List
from unittest import mock

import reference
from catchment.study import advise, core
from catchment.study.advise.advice_text import advice_json, advice_text
from catchment.study.advise.evidence import Evidence, Noise, evidence_of_job, evidence_of_status, speeds_of
from catchment.study.advise.recommendations import Recommendations, advise_batch
from catchment.study.advise.trials import MARGIN, Trial, Trials, candidates_of, computing_share
from catchment.study.errors import Refused
from catchment.study.models import NetworkModel
from catchment.study.run_result import RunResult, TestScore
from catchment.study.simulator import Simulator


def job_of(preset: str, workers: int, more: str = "") -> core.Job:
    return core.parse_job(
        "name: 'digits' model { synthetic { parameters: 1000000 step_ms: 100 } } data { synthetic {} } "
        "batch_size: 32 samples: 100000 algorithm { preset: '%s' } workers: %d %s" % (preset, workers, more)
    )


def evidence_of(preset: str, workers: int, more: str = "") -> Evidence:
    return evidence_of_job(job_of(preset, workers, more), 1)


class CandidatesTest(unittest.TestCase):
    def test_are_all_presets_with_their_settings_for_the_workers(self) -> None:
        for workers in (60, 1):
            left_out: List[Any] = []
            candidates = candidates_of(evidence_of("sync", workers), left_out)
            self.assertEqual(len(candidates) + len(left_out), len(core.presets()), "the job is one of them")
            self.assertEqual(bool(left_out), workers == 1, "groups and backup workers need several")
            for candidate in candidates:
                self.assertEqual(candidate.settings, "preset")
                own = job_of(candidate.preset, workers)
                self.assertEqual(candidate.job.json.get("optimizer"), own.json.get("optimizer"))

    def test_the_jobs_settings_are_another_and_so_is_a_bounded_rate(self) -> None:
        for optimizer, expected in (
            ("", []),
            ("optimizer { learning_rate: 1 momentum: 0 }", ["job", "bounded"]),
            ("optimizer { learning_rate: 0.0001 momentum: 0 }", ["job"]),
            ("optimizer { kind: ADAM }", ["job"]),
        ):
            candidates = candidates_of(evidence_of("downpour", 60, optimizer), [])
            others = [one.settings for one in candidates if one.settings != "preset"]
            self.assertEqual(others, expected, optimizer)


def trial(preset: str, seconds: List[float], accuracy: float, diverged: bool = False) -> Trial:
    """Returns one whose runs end at an accuracy after so many seconds."""
    runs = []
    for one in seconds:
        scores = [TestScore(0, 0, 0, 0), TestScore(one, 0, accuracy, 0)]
        runs.append(RunResult(accuracy=accuracy, diverged=diverged, scores=scores))
    return Trial(preset, job=core.Job("", facts={"learning_rate": 1, "momentum": None}), runs=runs)


class JudgeTest(unittest.TestCase):
    def judge(self, *trials: Trial, quadratic: bool = False) -> Trials:
        judged = Trials(list(trials), quadratic)
        judged.judge()
        return judged

    def names(self, trials: Trials) -> List[str]:
        return [one.preset for one in trials.trials[: trials.recommended]]

    def test_the_soonest_of_those_that_end_high_is_first(self) -> None:
        trials = self.judge(
            trial("best", [9], 0.95),
            trial("soonest", [1], 0.925),
            trial("near", [3], 0.945),
            trial("gone", [0.1], 0.99, diverged=True),
        )
        self.assertAlmostEqual(trials.target, 0.95 - MARGIN)
        self.assertEqual(self.names(trials), ["near", "best"])
        self.assertEqual(trials.trials[-1].preset, "gone")
        self.assertTrue(trials.sure)

    def test_is_sure_only_if_every_seed_says_so(self) -> None:
        b = trial("b", [2, 3, 4], 0.95)
        self.assertTrue(self.judge(trial("a", [1, 2, 3], 0.95), b).sure)
        self.assertFalse(self.judge(trial("a", [1, 2, 5], 0.95), b).sure)
        self.assertFalse(self.judge(trial("a", [1], 0.95), quadratic=True).sure, "the model is another")

    def test_the_best_mean_is_recommended_if_seeds_differ(self) -> None:
        a = trial("a", [1, 2], 0.5)
        a.runs[1] = RunResult(accuracy=0.3, scores=[TestScore(2, 0, 0.3, 0)], seconds=7)
        trials = self.judge(a, trial("b", [1], 0.35))
        self.assertEqual(self.names(trials), ["a"])
        self.assertFalse(trials.sure, "one seed ends lower")
        self.assertAlmostEqual(trials.trials[0].seconds_to(trials.target) or 0, (0.39 / 0.5 + 7) / 2)

    def test_nothing_is_recommended_if_all_diverge(self) -> None:
        trials = self.judge(trial("a", [1], 0.9, diverged=True), trial("b", [1], 0.8, diverged=True))
        self.assertEqual((trials.recommended, trials.sure), (0, False))
        self.assertIn("fewer workers", advice_text(evidence_of("sync", 8), Recommendations(trials)))


class BatchTest(unittest.TestCase):
    def with_noise(self, *noise: Any) -> Evidence:
        evidence = evidence_of("sync", 8)  # 256 samples
        evidence.has_run, evidence.noise = True, Noise(*noise)
        return evidence

    def test_counts_the_samples_of_an_update(self) -> None:
        for preset, samples in (("sync", 256), ("sync_backup", 224), ("hybrid", 128), ("downpour", 32)):
            self.assertEqual(advise_batch(evidence_of(preset, 8)).samples_per_update, samples, preset)

    def test_is_compared_with_the_noise_scale(self) -> None:
        evidence = self.with_noise(40, 512, 0.5)
        advice = advise_batch(evidence)
        self.assertEqual((advice.place, advice.noise_scale), ("below", 1024))
        assert advice.twice and advice.half
        self.assertAlmostEqual(advice.twice.updates, (1 + 1024 / 512) / (1 + 1024 / 256))
        self.assertAlmostEqual(advice.half.samples, (1 + 128 / 1024) / (1 + 256 / 1024))
        recommendations = Recommendations(Trials([trial("a", [1], 0.5)]), batch=advice)
        text, in_json = (
            advice_text(evidence, recommendations),
            advice_json(evidence, recommendations)["batch"],
        )
        self.assertIn("256 samples in an update are below the gradient noise scale of 1,024", text)
        self.assertIn("measured in 40 updates", text.replace("\n  ", " "))
        self.assertIn("0.60 times the updates", text)
        self.assertEqual(in_json["twice"]["updates"], advice.twice.updates)
        self.assertEqual((in_json["noise_updates"], in_json["noise_trace"]), (40, 512))
        self.assertEqual(advise_batch(self.with_noise(40, 300, 1)).place, "about at")
        self.assertEqual(advise_batch(self.with_noise(40, 100, 1)).place, "above")
        found_none = advise_batch(self.with_noise(40, -1, 1)).twice
        self.assertEqual(found_none and found_none.samples, 2)

    def test_says_what_is_missing(self) -> None:
        run = evidence_of("sync", 8)
        run.has_run = True
        for evidence, words in (
            (evidence_of("sync", 8), "--out of a run"),
            (run, "clip_norm"),
            (self.with_noise(9, 512, 0.5), "9 updates"),
            (self.with_noise(40, 512, -0.5), "too large"),
        ):
            advice = advise_batch(evidence)
            self.assertEqual((advice.place, advice.twice), ("unknown", None))
            self.assertIn(words, advice.reason)


class EvidenceTest(unittest.TestCase):
    def test_slow_workers_do_not_count_in_the_step(self) -> None:
        step, slow = speeds_of({0: 0.1, 1: 0.4, 2: 0.12, 5: 0.11})
        self.assertAlmostEqual(step, 0.11)
        self.assertEqual(list(slow), [1])
        self.assertAlmostEqual(slow[1], 0.4 / 0.11)
        self.assertEqual(speeds_of({0: 0.1, 1: 0.14})[1], {})

    def test_is_taken_from_a_status(self) -> None:
        steps = (0.05, 0.05, 0.5, None)
        status = {
            "shards": [{"parameters": 3000000}, {"parameters": 1000000}],
            "workers": [{"worker": i, "compute_seconds_per_step": s} for i, s in enumerate(steps)],
            "total_samples": 5000,
            "compute_share": 0.8,
            "round_trip_p50_us": 2261.5,
        }
        settings = core.edit(job_of("downpour", 4), ["model={layers {dense {units: 1}}}"], complete=False)
        report = {"job": "digits", "settings": settings.text, "status": status}
        evidence = evidence_of_status(report)
        self.assertEqual((evidence.servers, evidence.workers), (2, 4))
        self.assertEqual(evidence.job.facts["parameters"], 4000000)
        self.assertEqual(evidence.job.facts["total_samples"], 5024, "whole minibatches")
        self.assertEqual(evidence.step and evidence.step.mean, 0.05)
        self.assertAlmostEqual(evidence.slow[2], 10)
        self.assertEqual(evidence.network, NetworkModel(0, 0.5e-6 * 2261.5))
        self.assertIn("downpour", [one.preset for one in candidates_of(evidence, [])])
        self.assertIsNone(evidence.noise, "of an asynchronous job")
        status["shards"] = []
        with self.assertRaisesRegex(Refused, "not all servers"):
            evidence_of_status(report)

    def test_workers_compute_for_more_of_their_time_with_more_servers(self) -> None:
        evidence = evidence_of("downpour", 32)
        evidence.network = NetworkModel(1.25e8, 50e-6)
        with Simulator() as simulator:
            one, four = (computing_share(evidence, servers, simulator) for servers in (1, 4))
        # 32 workers x 8 MB in a step of 0.1 s are 20 times of what a link carries.
        self.assertLess(one, 0.15)
        self.assertGreater(four, 2 * one)


class CommandTest(unittest.TestCase):
    maxDiff = None

    def test_does_as_the_reference(self) -> None:
        cases = reference.cases_of("advise")
        presets = reference.presets_of(cases)
        for case in cases:
            with self.subTest(case["args"]), mock.patch.object(core, "presets", lambda: presets):
                outcome = reference.run(advise, case["args"])
                self.assertEqual(outcome.out, case["out"])
                self.assertEqual(sorted(outcome.err.splitlines()), case["err"])
                self.assertEqual(outcome.code, case["code"])

    def test_names_a_master_that_does_not_answer(self) -> None:
        outcome = reference.run(advise, ["127.0.0.1:1"])
        self.assertEqual(outcome.code, 1)
        self.assertIn("server with index 0?", outcome.err)
        unsafe = reference.run(advise, ["192.0.2.1:7000"])
        self.assertEqual(unsafe.code, 2)
        self.assertRegex(unsafe.err, "^catchment advise: .*--insecure")


if __name__ == "__main__":
    reference.use_binary()
    unittest.main()
