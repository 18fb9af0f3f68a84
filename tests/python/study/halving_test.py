#!/usr/bin/env python3
"""python/catchment/study/halving.py: the decisions of a search, on objectives whose optimum is known."""

import math
import random
import unittest

from catchment.study.errors import Refused
from catchment.study.halving import (
    HALVING_FACTOR,
    Halving,
    TrialRun,
    best_trials,
    cost_of,
    parse_dimension,
    plan_rungs,
    plan_rungs_that_cost,
)

NAN = math.nan
BY_RUNG, AT_ONCE = False, True

BEST = [
    ([4, 5, 6, 7], [(0.9, -2), (0.9, -1), (0.95, -9), (0.1, 0)], 3, [6, 5, 4]),
    ([3, 1], [(1, 1), (1, 1)], 1, [3]),
    ([0, 1, 2, 3], [(NAN, 0), None, (0.1, NAN), (0.1, -1)], 3, [3]),
    ([0], [None], 1, []),
]

WRONG = [
    ("learning_rate", "takes PATH="),
    ("=1..2", "takes PATH="),
    ("a=", "takes PATH="),
    ("a=2..1", "empty range"),
    ("a=1..inf", "empty range"),
    ("a=nan..1", "empty range"),
    ("a=1..1", "empty range"),
    ("a=log:0..1", "above 0"),
    ("a=log:1", "two numbers"),
    ("a=sync", "one value"),
    ("a=b,,c", "empty"),
    ("a=b,c,b", "twice"),
    ("a=0.001-1", "a range is written with two points: a=0.001..1, or a=log:0.001..1 for equal ratios"),
    ("a=1 to -3", "a=1..-3,"),
    ("a=1e-3:2", "a=1e-3..2,"),
    ("a=-1--0.5", "a=-1..-0.5,"),
]

POINTS = [(draw.random(), draw.random()) for draw in [random.Random(0)] for _ in range(54)]  # of trials


def halve(rungs, score, promotion=BY_RUNG, draw=None, kept=-1):
    """Carries out a search whose trials have the scores of score(rung, share, trial). `draw` draws which of
    the open runs ends next; None: they end in their order."""
    halving = Halving(rungs, promotion, kept)
    open_runs = halving.next_runs()
    while open_runs:
        run = open_runs.pop(draw.randrange(len(open_runs)) if draw else 0)
        halving.report(run, score(run.rung, halving.share_of(run.rung), run.trial))
        open_runs += halving.next_runs()
    return halving.result()


class RungsTest(unittest.TestCase):
    def test_each_rung_has_a_third_of_the_trials_with_three_times_the_share(self):
        self.assertEqual(plan_rungs(27), [(27, 1 / 3 / 3 / 3), (9, 1 / 3 / 3), (3, 1 / 3), (1, 1)])
        self.assertAlmostEqual(cost_of(plan_rungs(27)), 4)

    def test_any_number_of_trials(self):
        for trials in range(1, 100):
            rungs = plan_rungs(trials)
            self.assertEqual((rungs[0].trials, rungs[-1].share), (trials, 1))
            self.assertTrue(1 <= rungs[-1].trials < HALVING_FACTOR, trials)

    def test_rungs_that_cost_a_run_end_with_a_choice(self):
        for trials in range(2, 60):
            rungs = plan_rungs_that_cost(trials, 1)
            self.assertAlmostEqual(cost_of(rungs), 1, 12)
            self.assertGreater(rungs[-1].trials, 1)

    def test_best_trials(self):
        for trials, scores, keep, best in BEST:
            self.assertEqual(best_trials(trials, scores, keep), best)


class HalvingTest(unittest.TestCase):
    def test_if_all_fail_the_rung_before_decides(self):
        result = halve(plan_rungs(9), lambda rung, share, trial: (-abs(trial - 4), 0) if rung == 0 else None)
        self.assertEqual((result.best, len(result.rungs)), (4, 2))
        result = halve(plan_rungs(3), lambda *run: None)
        self.assertEqual((result.best, len(result.rungs)), (-1, 1))

    def test_runs_have_the_shares_of_the_rungs(self):
        shares = []
        halve(
            plan_rungs_that_cost(14, 1),
            lambda rung, share, trial: (shares.append(share) or 0, 0),
        )
        self.assertEqual(len(shares), 14 + 4)
        self.assertAlmostEqual(shares[-1], 3 * shares[0])

    def test_rung_by_rung_the_order_in_which_runs_end_changes_nothing(self):
        def score(rung, share, trial):  # equal scores, too
            return trial % 4, 0

        in_order = halve(plan_rungs(27), score)
        for seed in range(1, 20):
            result = halve(plan_rungs(27), score, BY_RUNG, random.Random(seed))
            self.assertEqual([rung.trials for rung in result.rungs], [rung.trials for rung in in_order.rungs])

    def test_at_once_a_trial_goes_on_before_its_rung_has_ended(self):
        """Li et al.'s figure 1 and algorithm 2: as soon as it is among the best third of those that have
        ended."""
        halving = Halving(plan_rungs(9), AT_ONCE)
        self.assertEqual(len(halving.next_runs()), 9)
        for trial, score, following in (
            (7, 0.2, []),
            (3, 0.5, []),
            (5, 0.1, [3]),
            (0, 0.9, [0]),  # the best of four, although one of them has gone on
            (1, 0.6, []),
            (2, 0.3, [1]),  # among the best two of six
        ):
            halving.report(TrialRun(trial, 0), (score, 0))
            self.assertEqual(halving.next_runs(), [(after, 1) for after in following])
        halving.report(TrialRun(3, 1), (0.6, 0))
        halving.report(TrialRun(0, 1), (0.95, 0))
        self.assertEqual(halving.next_runs(), [])
        halving.report(TrialRun(1, 1), None)
        self.assertEqual(halving.next_runs(), [(0, 2)])
        self.assertEqual(halving.result().best, 0, "that of the last rung with a score")

    def test_at_once_the_best_of_each_rung_go_on_in_any_order_and_few_more(self):
        def score(rung, share, trial):
            return None if trial % 5 == 0 else (trial * 7 % 27, 0)

        rungs, runs, seeds = plan_rungs(27), 0, 200
        in_order = halve(rungs, score)
        for seed in range(seeds):
            result = halve(rungs, score, AT_ONCE, random.Random(seed))
            self.assertEqual(len(result.rungs), len(rungs))
            # The scores of a trial are the same in each rung, so that the best one always goes on.
            self.assertEqual(result.best, in_order.best)
            self.assertLessEqual(set(in_order.rungs[1].trials), set(result.rungs[1].trials))
            runs += sum(rung.rung.share * len(rung.trials) for rung in result.rungs) / seeds
        self.assertTrue(cost_of(rungs) < runs < 1.6 * cost_of(rungs), runs)

    def test_a_trial_that_is_kept_is_compared_in_the_last_rung(self):
        def score(rung, share, trial):  # 5 is the worst of the first rung, and the best of the last
            return 0.1 * trial if trial != 5 else -1 if rung == 0 else 2, 0

        cheap = plan_rungs_that_cost(11, 1)
        for promotion in (BY_RUNG, AT_ONCE):
            for seed in range(1, 20):
                for rungs, kept, best in ((plan_rungs(9), 5, 5), (cheap, 5, 5), (cheap, -1, 10)):
                    result = halve(rungs, score, promotion, random.Random(seed), kept)
                    self.assertEqual(result.best, best)
        self.assertEqual(halve(cheap, score, kept=5).rungs[1].trials, [10, 9, 5])

    def test_a_trial_that_is_kept_may_lose(self):
        result = halve(
            plan_rungs_that_cost(9, 1), lambda rung, share, trial: None if trial == 5 else (trial, 0), kept=5
        )
        self.assertEqual(result.rungs[1].trials, [8, 7, 6])
        result = halve(plan_rungs(9), lambda rung, share, trial: (trial, 0), kept=0)
        self.assertEqual((result.best, result.rungs[2].trials), (8, [8, 0]))

    def test_finds_the_optimum_with_half_of_the_budget_of_a_random_search(self):
        """The loss falls with the budget, sooner with a higher rate, to a floor that depends on the distance
        to the optimum. Short runs prefer higher rates than long ones do, so that they mislead."""
        rungs, draw, objectives = plan_rungs(54), random.Random(1), 200
        self.assertLessEqual(cost_of(rungs), 16 / 2)
        halved = searched = 0
        for _ in range(objectives):
            rate, momentum = draw.uniform(0.1, 0.9), draw.uniform(0.1, 0.9)

            def floor(at, rate=rate, momentum=momentum):
                return 4 * (at[0] - rate) ** 2 + (at[1] - momentum) ** 2

            def score(rung, share, trial, floor=floor):
                at = POINTS[trial]
                return -(floor(at) + 0.02 * (1 - at[0]) * (1 / share - 1) / 27), 0

            found = floor(POINTS[halve(rungs, score).best])
            self.assertLess(found, 0.1)
            halved += found / objectives
            points = [(draw.random(), draw.random()) for _ in range(16)]
            searched += min(map(floor, points)) / objectives
        self.assertLess(halved, min(0.02, searched))


class DimensionTest(unittest.TestCase):
    def test_choices_may_have_commas_in_brackets(self):
        choices = parse_dimension("a.x={a: [1, 2], b: 'c,d'},{}").choices
        self.assertEqual(choices, ["{a: [1, 2], b: 'c,d'}", "{}"])

    def test_what_is_not_a_dimension_is_refused(self):
        for text, reason in WRONG:
            with self.subTest(text=text), self.assertRaises(Refused) as caught:
                parse_dimension(text)
            self.assertIn(reason, caught.exception.message)


if __name__ == "__main__":
    unittest.main()
