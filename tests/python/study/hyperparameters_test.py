#!/usr/bin/env python3
"""python/catchment/study/hyperparameters.py on the jobs of the binary's door."""

import unittest

import reference
from catchment.study import core
from catchment.study.hyperparameters import (
    Hyperparameters,
    describe,
    hyperparameters_of,
    search_grid,
    space_of,
)
from catchment.study.text import float32

JOB = "model { layers { flatten {} } layers { dense { units: 10 } } } data { drawn_digits {} } "

# The points that all algorithms with SGD have in common.
COMMON = [
    *((rate, 0.0) for rate in (0.1, 0.2, 0.5, 1, 2)),
    *((rate, 0.9) for rate in (0.01, 0.02, 0.05, 0.1, 0.2)),
]

# preset, workers, overrides of the job file, overrides of --set, points without the first; None: COMMON
GRIDS = [
    *(
        (preset, 4, [], [], None)
        for preset in ("sync", "downpour", "staleness_aware", "easgd", "dana", "gem", "local_sgd")
    ),
    ("diloco", 4, [], [], [(rate, None) for rate in (0.0002, 0.0004, 0.001, 0.004)]),
    (
        "sync",
        4,
        ["optimizer.learning_rate=0.02", "optimizer.momentum=0.8"],
        [],
        [
            *((rate, 0.0) for rate in (0.02, 0.04, 0.1, 0.2, 0.4)),
            *((rate, 0.9) for rate in (0.002, 0.004, 0.01, 0.02, 0.04)),
        ],
    ),
    (
        "downpour",
        40,
        [],
        [],
        [
            *((rate, 0.0) for rate in (0.0005, 0.001, 0.0025, 0.005)),
            *((rate, 0.9) for rate in (0.00005, 0.0001, 0.00025, 0.0005, 0.001)),
        ],
    ),
    ("sync", 40, [], [], None),
    ("sync", 4, [], ["optimizer.learning_rate=0.125"], [(0.125, 0.0)]),
    (
        "sync",
        4,
        [],
        ["optimizer.momentum=0.5"],
        [(rate, 0.5) for rate in (0.05, 0.1, 0.25, 0.5, 1)],
    ),
    ("sync", 4, [], ["optimizer.learning_rate=1", "optimizer.momentum=0.5"], []),
]


def job_of(preset, workers=4, given=(), fixed=(), **request):
    sets = [*given, *fixed, "algorithm.preset=" + preset, "workers=%d" % workers]
    return core.parse_job(JOB, sets, space=list(fixed), **request)


def as_floats(points):
    return {(float32(rate), momentum if momentum is None else float32(momentum)) for rate, momentum in points}


class GridTest(unittest.TestCase):
    def test_grids(self):
        """An algorithm must not win because its preset is nearer to the optimum, nor lose to its own."""
        for preset, workers, given, fixed, points in GRIDS:
            with self.subTest(preset=preset, workers=workers, given=given, fixed=fixed):
                job = job_of(preset, workers, given, fixed)
                grid = search_grid(space_of(job.space))
                own = hyperparameters_of(job)
                self.assertEqual(grid[0], own)
                self.assertEqual(len(set(grid)), len(grid), "none is tried twice")
                expected = as_floats(COMMON if points is None else points) | {tuple(own)}
                if fixed == ["optimizer.momentum=0.5"]:
                    self.assertEqual(len(grid), 5, "the rate of the preset is one of them")
                self.assertEqual(set(grid), expected)

    def test_words(self):
        self.assertEqual(
            describe(Hyperparameters(float32(0.03), float32(0.6))), "learning rate 0.03, momentum 0.6"
        )
        self.assertEqual(describe(Hyperparameters(float32(0.002))), "learning rate 0.002")


class DoorTest(unittest.TestCase):
    def test_a_constant_rate_is_of_servers_and_workers_after_the_warm_up(self):
        for preset in ("sync", "easgd", "local_sgd"):
            job = job_of(preset, given=["optimizer.schedule.warmup=0.25"], constant_rate=True).json
            schedules = [job["optimizer"]["schedule"]]
            self.assertEqual(schedules[0]["warmup"], 0.25)
            contribution = job["algorithm"]["contribution"]
            if "pseudo_gradient" in contribution:
                schedules.append(contribution["pseudo_gradient"]["local_optimizer"]["schedule"])
            self.assertEqual({schedule["decay"] for schedule in schedules}, {"CONSTANT"}, preset)

    def test_hyperparameters_of_every_preset(self):
        """A value that is set can be read again, and gives a valid job."""
        for preset in core.presets():
            own = hyperparameters_of(job_of(preset))
            momentum = None if own.momentum is None else float32(0.3)
            changed = Hyperparameters(float32(own.learning_rate / 10), momentum)
            job = job_of(preset, hyperparameters=changed._asdict())
            self.assertEqual(hyperparameters_of(job), changed, preset)

    def test_without_momentum_there_is_no_nesterov(self):
        self.assertTrue(job_of("eamsgd").json["optimizer"]["nesterov"])
        job = job_of("eamsgd", hyperparameters=dict(learning_rate=0.1, momentum=0.0))
        self.assertFalse(job.json["optimizer"]["nesterov"])


if __name__ == "__main__":
    reference.use_binary()
    unittest.main()
