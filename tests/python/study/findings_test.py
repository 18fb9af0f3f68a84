#!/usr/bin/env python3
"""Findings, answers, charts and pages of a comparison with simple numbers."""

import dataclasses
import math
import random
import re
import unittest

from catchment.study import answer, axis, charts, figures, findings, markup, page, report_json, run_result
from catchment.study.axis import Axis, Unit
from catchment.study.comparison import (
    AlgorithmFacts,
    Comparison,
    Machine,
    SearchTrialResult,
    describe_stragglers,
)
from catchment.study.run_result import RunResult, TestScore

METRICS = """{"wall_seconds": 1, "test_accuracy": null}
{"test_accuracy": 0.5, "test_loss": 1.5, "tested_at_samples": 100, "tested_at_seconds": 1}
{"test_accuracy": 0.5, "test_loss": 1.5, "tested_at_samples": 100, "tested_at_seconds": 1}
[1]
{"test_accuracy": 0.9, "test_loss": 0.5, "tested_at_samples": 300, "tested_at_seconds": 3}
{"test_accuracy": 0.8, "test_loss": 0.7, "tested_at_samples": 400, "tested_at_seconds": 4}
{"test_accuracy": 0.95, "test_lo"""


def made_run(algorithm, workers, seed, seconds, best):
    """Returns a run whose accuracy rises linearly from 0 to `best`, in `seconds` and 1000 samples."""
    many = workers > 1
    return RunResult(
        algorithm,
        workers,
        seed,
        "runs/%s-%d-%d" % (algorithm, workers, seed),
        done=True,
        learning_rate=0.05,
        momentum=0.9,
        seconds=seconds,
        samples=1000.0,
        samples_per_second=1000 / seconds,
        accuracy=best,
        loss=1 - best,
        scores=[TestScore(0, 0, 0, 1), TestScore(seconds, 1000, best, 1 - best)],
        staleness={0: 1, 2: 1} if many else {0: 1},
        staleness_mean=1.0 if many else 0.0,
        staleness_p99=2.0 if many else 0.0,
        compute_seconds=seconds,
        pull_seconds=seconds / 2,
        bytes_pushed=4000.0,
        bytes_pulled=4000.0,
    )


def made(**changes):
    """sync and downpour, with 1 and 4 workers, three seeds: with 4 workers downpour takes half of sync's
    time, and ends with more errors; with 1 worker they are equal."""
    runs = []
    for seed in (1, 2, 3):
        noise = 0.1 * seed
        runs.append(made_run("sync", 1, seed, 10 + noise, 0.98))
        runs.append(made_run("downpour", 1, seed, 10.3 - noise, 0.98))
        runs.append(made_run("sync", 4, seed, 8 + noise, 0.98 + 0.001 * noise))
        runs.append(made_run("downpour", 4, seed, 4 + noise, 0.96 + 0.001 * noise))
    comparison = Comparison(
        "catchment compare job --algorithms=sync,downpour",
        "catchment test",
        "made",
        'name: "made"\n',
        "samples:1000",
        [AlgorithmFacts("sync", True, "SGD", True), AlgorithmFacts("downpour", False, "SGD", True)],
        [1, 4],
        runs,
        stragglers=["1:4x"],
        seeds=3,
        machine=Machine("a processor", 2, 4e9, "a system"),
    )
    return dataclasses.replace(comparison, **changes)


def without_scores(comparison):
    for run in comparison.runs:
        run.scores, run.accuracy, run.loss = [], None, None
    return comparison


def answered(comparison):
    return answer.answer(comparison, findings.find(comparison))


class RunResultTest(unittest.TestCase):
    def setUp(self):
        self.result = RunResult()
        summary = {
            "wall_seconds": 5,
            "samples": 500,
            "test_accuracy": 0.9,
            "test_loss": None,
            "updates": True,
        }
        summary["staleness_counts"] = [[3, 1], [0, 3], [1], [-1, 2], "x"]
        run_result.read_result(summary, METRICS, self.result)

    def test_scores_are_of_the_moment_of_their_weights_and_once(self):
        scores = [(one.seconds, one.samples, one.accuracy) for one in self.result.scores]
        self.assertEqual(scores, [(1, 100, 0.5), (3, 300, 0.9), (4, 400, 0.8)])
        self.assertEqual(run_result.best_accuracy(self.result), 0.9)

    def test_values_that_were_not_measured_are_absent(self):
        result = self.result
        self.assertEqual((result.seconds, result.updates, result.accuracy, result.loss), (5, 0, 0.9, None))
        self.assertEqual(list(result.staleness.items()), [(0, 3), (3, 1)])
        for damaged in (None, 7, {}, "x"):
            run_result.read_result({"staleness_counts": damaged, "device": 7}, "", result)
            self.assertEqual((result.staleness, result.device), ({}, ""))

    def test_a_crossing_lies_on_the_line_between_two_scores(self):
        seconds, samples = run_result.first_reached(self.result.scores, 0.8)
        self.assertAlmostEqual(seconds, 2.5)
        self.assertAlmostEqual(samples, 250)
        self.assertEqual(run_result.first_reached(self.result.scores, 0.4), (1, 100))
        self.assertIsNone(run_result.first_reached(self.result.scores, 0.91))


class FindingsTest(unittest.TestCase):
    def test_half_of_the_algorithms_reach_the_target_in_every_run(self):
        comparison = made()
        self.assertAlmostEqual(findings.choose_target(comparison), 0.98)
        comparison.algorithms.append(comparison.algorithms[1]._replace(name="easgd"))
        self.assertAlmostEqual(findings.choose_target(comparison), 0.96)
        comparison.wanted_target = 0.5
        self.assertEqual(findings.choose_target(comparison), 0.5)
        self.assertEqual(findings.choose_target(without_scores(comparison)), 0)

    def test_the_first_with_the_most_workers_and_its_lead(self):
        found = findings.find(made(wanted_target=0.96))
        self.assertEqual([one.algorithm for one in found.with_workers(4)], ["downpour", "sync"])
        self.assertAlmostEqual(found.lead.value, 8.2 * 0.96 / 0.98 / 4.2, places=2)
        self.assertTrue(found.lead.beyond_noise)
        self.assertEqual(found.lead_over_synchronous, found.lead)

    def test_who_did_not_reach_the_target_comes_after_those_who_did(self):
        comparison = made(wanted_target=0.97)
        for i, run in enumerate(comparison.runs):
            if run.algorithm == "downpour":
                best = 0.969 if run.seed == 3 else 0.99
                comparison.runs[i] = made_run("downpour", run.workers, run.seed, 4, best)
        found = findings.find(comparison)
        self.assertEqual([one.reached for one in found.with_workers(4)], [True, False])
        self.assertIsNone(found.lead)
        self.assertIn("sync reached 97.0 % test accuracy first", answered(comparison))
        self.assertIn("Not in every run: downpour (2 of 3", answered(comparison))

    def test_where_waiting_wins(self):
        found = findings.find(made(wanted_target=0.96))
        winners = {(duel.measure, duel.workers): duel.winner for duel in found.duels}
        self.assertEqual(winners["seconds_to_target", 4], "asynchronous")
        self.assertEqual(winners["errors", 4], "synchronous")
        self.assertEqual({winners[measure, 1] for measure in findings.MEASURES}, {None})
        words = answer.where_synchronous_wins(found)
        self.assertIn("with 4 workers, sync ended with fewer errors than downpour", words)
        self.assertIn("with 4 workers, downpour reached the target sooner than sync", words)

    def test_the_best_of_many_equal_algorithms_differ_by_no_more_than_noise(self):
        beyond_noise, numbers = 0, random.Random(7)
        for _ in range(200):
            names = ["sync"] + ["downpour%d" % i for i in range(9)]
            facts = [AlgorithmFacts(name, name == "sync", "SGD") for name in names]
            runs = [made_run(n, 4, seed, 10 + numbers.random(), 0.98) for n in names for seed in (1, 2, 3)]
            found = findings.find(made(workers=[4], wanted_target=0.96, algorithms=facts, runs=runs))
            beyond_noise += found.duels[0].ratio.beyond_noise
            self.assertEqual((found.lead.pairs, found.duels[0].ratio.pairs), (45, 9))
        self.assertLessEqual(beyond_noise, 10)

    def test_momentum(self):
        facts = AlgorithmFacts("a", False, "SGD", implicit=True)
        cases = [  # settings, given, staleness, expected
            ({}, 0.9, 3, (0.9, 0.75)),
            ({}, 0.9, 0, (0.9, 0)),
            ({}, None, 1, (None, 0.5)),
            ({"open_loop_minimum": 0.0}, 0.9, 1, (0.4, 0.5)),
            ({"open_loop_minimum": 0.1}, 0.9, 99, (0.1, 0.99)),
            ({"implicit": False, "closed_loop": True}, 0.9, 1, (None, None)),
        ]
        for settings, given, staleness, expected in cases:
            with self.subTest(settings=settings, staleness=staleness):
                momentum = findings.momentum_of(facts._replace(**settings), given, staleness)
                for value, wanted in zip(momentum, expected):
                    self.assertEqual(value is None, wanted is None)
                    self.assertAlmostEqual(value or 0, wanted or 0)


class AnswerTest(unittest.TestCase):
    def test_sentences(self):
        scored = {"wanted_target": 0.96}
        losses = without_scores(made())
        for run in losses.runs:
            run.loss = 0.25 if run.algorithm == "sync" else 0.5
        diverged, some = made(), made()
        for comparison in (diverged, some):
            for run in comparison.runs:
                run.done = run.workers == 1
                run.diverged = not run.done and (comparison is diverged or run.algorithm == "sync")
        one_seed = made(**scored)
        one_seed.runs = one_seed.runs[:4]
        cases = [
            (
                made(**scored),
                "With 4 workers, worker 1 slowed 4 times, downpour reached 96.0 % test accuracy",
            ),
            (made(**scored), " over 3 seeds. sync took "),
            (
                made(**scored),
                ", 1.91 times as long in the geometric mean: statistically significant (95 % conf",
            ),
            (made(**scored), "confidence interval 1.86 to 1.97)"),
            (made(workers=[1], **scored), "not statistically significant"),
            (one_seed, "one seed cannot show whether this is significant"),
            (made(untuned="Not tuned.", **scored), "Not tuned. With 4 workers, "),
            (
                without_scores(made(untuned="Not tuned.")),
                "With 4 workers, worker 1 slowed 4 times: downpour trained the",
            ),
            (
                losses,
                "sync had the lowest test loss at the end, 0.25 (0.25 to 0.25). Accuracy is not defined",
            ),
            (diverged, "With 4 workers, worker 1 slowed 4 times, training diverged in every run; a smaller"),
            (some, "No run with the most workers has finished."),
            (made(simulated="step constant:50ms", **scored), "Simulated, with 4 workers, "),
            (
                made(simulated="gradient quadratic:1:1", **scored),
                "Simulated on a quadratic function, with 4 workers",
            ),
            (made(simulated="gradient quadratic:1:1", **scored), "reached a 96.0 % lower loss first"),
        ]
        for comparison, part in cases:
            with self.subTest(part):
                self.assertIn(part, answered(comparison))
        self.assertNotIn("tuned", answered(cases[7][0]))

    def test_workers_that_are_slowed_alike_are_named_together(self):
        stragglers = ["0:10x", "1:40x", "2:10x", "3:10x", "1%steps:5x", "2%:3x"]
        self.assertEqual(
            describe_stragglers(made(stragglers=stragglers)),
            "1 % of the steps slowed 5 times, 2 % of the workers slowed 3 times, workers 0, 2 and 3 slowed "
            "10 times, worker 1 slowed 40 times",
        )


class ChartsTest(unittest.TestCase):
    def test_axis(self):
        self.assertEqual([Axis(10, 20, 200, 100).at(value) for value in (10, 15)], [200, 150])
        workers = Axis(1, 100, 0, 200, logarithmic=True)
        self.assertEqual([workers.at(value) for value in (1, 10, 100)], [0, 100, 200])
        self.assertEqual(Axis(0, 23, 0, 1).ticks(5), [0, 5, 10, 15, 20])
        for tick, expected in zip(Axis(0.913, 0.984, 0, 1).ticks(4), (0.92, 0.94, 0.96, 0.98)):
            self.assertAlmostEqual(tick, expected)
        labels = [
            (Axis(0, 120000, 0, 1).label(40000, 5, Unit.NUMBER), "40,000"),
            (Axis(0, 2, 0, 1).label(0.5, 5, Unit.NUMBER), "0.5"),
            (Axis(0.96, 0.98, 0, 1).label(0.975, 5, Unit.PERCENT), "97.5 %"),
            (Axis(0, 1, 0, 1).label(Axis(0, 1, 0, 1).ticks(5)[0], 5, Unit.PERCENT), "0 %"),
            (Axis(0, 1, 0, 1).label(0.4, 5, Unit.PERCENT), "40 %"),
        ]
        for label, expected in labels:
            self.assertEqual(label, expected)
        self.assertEqual([axis.round_up(value, 5) for value in (9.2, 10, 0)], [10, 10, 1])
        self.assertEqual(Axis(0, 0, 0, 1).at(0), 0)

    def test_labels_are_within_the_picture_and_beside_the_name_of_the_axis(self):
        text = re.compile(r'<text x="([0-9.]+)" y="[0-9.]+" text-anchor="([a-z]+)"[^>]*>([0-9,]+)</text>')
        for high in (6.0, 60000.0, 60000000.0, 6e12):
            points = [charts.CurvePoint(n, n, n, n) for n in (0, high)]
            curve = charts.Curve("a", axis.look_of(0), points)
            picture = charts.draw(charts.LineChart("made", "samples", [curve], x_high=high, y_high=high))
            labels = text.findall(picture)
            self.assertGreaterEqual(len(labels), 8)
            for x, anchor, words in labels:
                width = markup.text_width(words, 11)
                if anchor == "end":
                    self.assertGreater(float(x) - width, 14)
                else:
                    self.assertLessEqual(float(x) + width / 2, 480.1)

    def test_a_curve_is_the_mean_of_its_runs(self):
        fast, slow = made_run("a", 1, 1, 8, 0.8), made_run("a", 1, 2, 10, 0.6)
        curve = figures.accuracy_over("seconds", [fast, slow])
        for value, expected in zip(curve[len(curve) // 2], (5, 0.4, 0.3, 0.5)):
            self.assertAlmostEqual(value, expected)
        self.assertAlmostEqual(curve[-1].high, 0.8)
        slow.scores[0] = slow.scores[0]._replace(seconds=3)
        self.assertAlmostEqual(figures.accuracy_over("seconds", [fast, slow])[0].x, 3)
        slow.scores = []
        self.assertEqual(figures.accuracy_over("samples", [fast, slow]), [])
        self.assertEqual(figures.accuracy_over("samples", []), [])

    def test_times_to_the_target_are_drawn_if_all_runs_reached_it(self):
        comparison = made(wanted_target=0.9)

        def parts():
            found = findings.find(comparison)
            return figures.over_workers(comparison, found, "seconds", "title", "label").count(
                axis.look_of(1).color
            )

        before = parts()
        comparison.runs[-1] = made_run("downpour", 4, 3, 4, 0.5)
        self.assertEqual(parts(), before - 1)


class PageTest(unittest.TestCase):
    def page(self, **changes):
        comparison = made(**changes)
        return page.report_page(comparison, findings.find(comparison))

    def test_it_loads_nothing(self):
        text = self.page().replace("http://www.w3.org/2000/svg", "")
        for word in ("http:", "https:", "<script", "<link", "<img", "@import", "src=", "url(h"):
            self.assertNotIn(word, text)

    def test_texts_of_users_are_escaped(self):
        evil = "<script>\"'&\n\u202e"
        facts = [AlgorithmFacts("sync", True, evil), AlgorithmFacts(evil, False, "SGD")]
        comparison = made(
            job=evil, job_name=evil, command=evil, version=evil, budget=evil, simulated=evil, algorithms=facts
        )
        for run in comparison.runs:
            run.algorithm = run.algorithm if run.algorithm == "sync" else evil
            run.directory = run.device = evil
        comparison.runs.append(RunResult(evil, 4, 9, evil, reason=evil))
        comparison.searched.append(SearchTrialResult(1, 0.1, comparison.runs[0], True))
        found = findings.find(comparison)
        text = page.report_page(comparison, found)
        self.assertNotIn("<script", text)
        self.assertGreater(text.count("&lt;script&gt;&quot;"), 40)
        self.assertEqual(report_json.report_json(comparison, found)["job"], evil)

    def test_ids_are_unique_and_those_that_are_named_exist(self):
        text = self.page(stragglers=[])
        ids = re.findall(r' id="([^"]*)"', text)
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(set(re.findall(r"url\(#([^)]*)\)", text)), set(ids))

    def test_nothing_is_not_a_number(self):
        nothing = without_scores(made())
        zero = made()
        for run in nothing.runs + zero.runs:
            run.samples = run.samples_per_second = run.compute_seconds = run.pull_seconds = 0.0
            run.bytes_pushed = run.bytes_pulled = 0.0
        for run in zero.runs:
            run.accuracy, run.scores = 0.0, [TestScore(0, 0, 0, 1), TestScore(1, 10, 0, 1)]
        for comparison in (made(), nothing, zero, made(runs=[]), made(wanted_target=1e-9)):
            text = page.report_page(comparison, findings.find(comparison))
            self.assertEqual(re.findall(r"[\"> ,(-](?:nan|inf)\b", text), [])

    def test_a_command_has_a_flag_in_each_line(self):
        command = "catchment compare job --set='name: \"a --b\"' --program='a'\\'' --c' --seeds=1"
        self.assertEqual(
            markup.html_command(command),
            '<pre class="command">catchment compare job \\\n'
            "    --set='name: &quot;a --b&quot;' \\\n"
            "    --program='a'\\'' --c' \\\n"
            "    --seeds=1</pre>\n",
        )

    def test_heads_name_their_columns(self):
        self.assertIn(
            '<tr><th scope="col" class="left">a</th><th scope="col">b</th></tr>\n'
            '<tr><td class="left">1</td><td>2</td></tr>',
            markup.html_table([["a", "b"], ["1", "2"]]),
        )

    def test_values_in_report_json_are_finite_and_known(self):
        report = report_json.report_json(made(), findings.find(made()))
        run = report["runs"][2]
        self.assertAlmostEqual(run["seconds_to_target"], 8.1 * 0.98 / 0.9801)
        self.assertEqual(run["staleness"]["counts"], [(0, 1), (2, 1)])
        self.assertEqual(run["momentum"], {"given": 0.9, "implicit": 0.5})
        self.assertIsNone(report["runs"][3]["seconds_to_target"])
        self.assertTrue(all(math.isfinite(run["wall_seconds"]) for run in report["runs"]))


if __name__ == "__main__":
    unittest.main()
