#!/usr/bin/env python3
"""python/catchment/study/statistics.py against SciPy: what it has computed, in data/scipy.json, and itself
where it can be imported."""

import json
import math
import os
import unittest

from catchment.study import statistics

try:
    from scipy import stats
except ImportError:
    stats = None

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "scipy.json")) as file:
    SCIPY = json.load(file)


class StatisticsTest(unittest.TestCase):
    def close(self, value, expected):
        self.assertLess(abs(value - expected), 1e-9 * max(1, abs(expected)), (value, expected))

    def test_quantiles(self):
        for confidence, dof, expected in SCIPY["quantiles"]:
            with self.subTest(confidence=confidence, dof=dof):
                self.close(statistics.student_t_quantile(confidence, dof), expected)
                if stats:
                    self.close(expected, stats.t.ppf(0.5 + confidence / 2, dof))

    def test_distribution(self):
        for t, dof, expected in SCIPY["cdf"]:
            with self.subTest(t=t, dof=dof):
                self.close(statistics.student_t_cdf(t, dof), expected)
                if stats:
                    self.close(expected, stats.t.cdf(t, dof))

    def test_ratios_are_those_of_the_paired_t_test_on_logarithms(self):
        for values, base, pairs, *expected in SCIPY["ratios"]:
            with self.subTest(values=values, pairs=pairs):
                ratio = statistics.ratio_of(dict(enumerate(values)), dict(enumerate(base)), pairs)
                self.assertTrue(ratio.has_interval)
                for value, one in zip(ratio[:3], expected):
                    self.close(value, one)
                if stats:
                    logs = [[math.log(x) for x in one] for one in (values, base)]
                    interval = stats.ttest_rel(*logs).confidence_interval(1 - 0.05 / pairs)
                    self.close(ratio.low, math.exp(interval.low))
                    self.close(ratio.high, math.exp(interval.high))

    def test_spread(self):
        self.assertEqual(statistics.spread_of([3, 1, 5]), (3, 3, 1, 5))
        self.assertEqual(statistics.spread_of([]), (0, 0, 0, 0))

    def test_ratio_of_few(self):
        ratio = statistics.ratio_of({1: 4.0, 2: 3.0}, {1: 2.0, 5: 1.0})
        self.assertEqual((ratio.value, ratio.has_interval, ratio.beyond_noise), (2, False, False))
        self.assertEqual(statistics.ratio_of({1: 4.0}, {2: 2.0}).value, 1)

    def test_effects_of_a_seed_on_both_are_not_noise(self):
        ratio = statistics.ratio_of({1: 2.0, 2: 20.0, 3: 200.0}, {1: 1.0, 2: 10.1, 3: 99.0})
        self.assertAlmostEqual(ratio.value, 2, places=2)
        self.assertTrue(ratio.beyond_noise)
        either_sign = statistics.ratio_of({1: 2.0, 2: 1.0, 3: 2.0}, {1: 1.0, 2: 2.0, 3: 1.0})
        self.assertFalse(either_sign.beyond_noise)

    def test_the_other_way_round_is_its_inverse(self):
        a, b = {1: 2.0, 2: 3.0, 3: 4.0}, {1: 5.0, 2: 7.0, 3: 6.0}
        ratio, inverse = statistics.ratio_of(a, b), statistics.ratio_of(b, a)
        self.close(ratio.value * inverse.value, 1)
        self.close(ratio.low * inverse.high, 1)

    def test_times_may_be_0(self):
        cases = [({1: 4.0}, {1: 0.0}, math.inf), ({1: 0.0}, {1: 4.0}, 0), ({1: 0.0}, {1: 0.0}, 1)]
        cases += [({1: 4.0, 2: 1.0}, {1: 0.0, 2: 1.0}, math.inf)]
        for values, base, expected in cases:
            ratio = statistics.ratio_of(values, base)
            self.assertEqual((ratio.value, ratio.beyond_noise), (expected, False))

    def test_intervals_may_be_very_wide(self):
        ratio = statistics.ratio_of({1: 1e-7, 2: 1.0}, {1: 1.0, 2: 1e-7}, 45)
        self.assertEqual((ratio.high, ratio.beyond_noise), (math.inf, False))


if __name__ == "__main__":
    unittest.main()
