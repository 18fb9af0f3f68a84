#!/usr/bin/env python3
"""python/catchment/study/plan.py: the same jobs, byte for byte, as those of the comparisons in
data/plans.json, whose plans were C++; and what is said of jobs that are not planned."""

import hashlib
import json
import os
import re
import tempfile
import unittest
from unittest import mock

import reference
from catchment.study import core
from catchment.study.errors import Refused, Unavailable
from catchment.study.halving import cost_of
from catchment.study.hyperparameters import Hyperparameters
from catchment.study.options import CompareBudget, CompareOptions, Straggler, compare_command_line
from catchment.study.plan import job_with_share, make_plan, plan_searches, plan_trial, untuned_rates
from catchment.study.text import float32

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "plans.json")
MLP = "examples/mnist_mlp.textproto"


def digest(job):
    return hashlib.sha256(reference.as_then(job.text).encode()).hexdigest()[:16]


def given_job(sets=(), path=MLP):
    return core.load_job(path, sets, complete=False)


def options_with(**changes):
    options = CompareOptions(algorithms=["sync", "downpour"], workers=[1, 4], seeds=2)
    options.budget.samples = 120000
    for name, value in changes.items():
        setattr(options, name, value)
    return options


class RecordedPlansTest(unittest.TestCase):
    def check(self, case, options, given):
        found = {(name, workers): Hyperparameters(*rates) for name, workers, rates in case["found"]}
        plan = make_plan(options, given, found)
        jobs = {run.directory: digest(run.job) for run in plan.runs}
        wanted = {name: job for name, job in case["jobs"].items() if name.startswith("runs/")}
        self.assertEqual(jobs, wanted)
        self.assertEqual([list(out[:2]) for out in plan.left_out], case["left_out"])
        searches = {(one.algorithm, one.workers): one for one in plan_searches(options, given)}
        first_rung = set()
        for (algorithm, workers), search in searches.items():
            name = "search/%s-%d-workers-trial-" % (algorithm, workers)
            first_rung |= {"%s%d-rung-1" % (name, i + 1) for i in range(len(search.trials))}
        self.assertEqual(first_rung, {name for name in case["jobs"] if name.endswith("-rung-1")})
        for name, job in case["jobs"].items():
            match = re.fullmatch(r"search/(.+)-(\d+)-workers-trial-(\d+)-rung-(\d+)", name)
            if match:
                search = searches[match[1], int(match[2])]
                trial, rung = int(match[3]) - 1, int(match[4]) - 1
                run = plan_trial(options, given, search, trial, rung, search.rungs[rung].share)
                self.assertEqual((run.directory, digest(run.job)), (name, job), run.job.text)

    def test_recorded_plans(self):
        with open(DATA) as file:
            cases = json.load(file)
        for name, case in cases.items():
            with self.subTest(name=name), tempfile.TemporaryDirectory() as directory:
                path = case["args"][0]
                if "text" in case:
                    path = os.path.join(directory, "job.textproto")
                    with open(path, "w") as file:
                        file.write(case["text"])
                options = CompareOptions()
                compare_command_line(options).parse([path, *case["args"][1:]])
                self.check(case, options, given_job(options.set, path))


class PlanTest(unittest.TestCase):
    def test_every_combination_once_seed_by_seed(self):
        runs = make_plan(options_with(), given_job(), {}).runs
        self.assertEqual(len({run.directory for run in runs}), 8)
        self.assertEqual(runs[1].directory, "runs/downpour-1-workers-seed-1")
        self.assertEqual([run.seed for run in runs], [1] * 4 + [2] * 4)
        for run in runs:
            job = run.job.json
            self.assertEqual((job["samples"], job["batch_size"]), (120000, 64))
            found = (job["algorithm"]["preset"], job["workers"], job["seed"])
            self.assertEqual(found, (run.algorithm, run.workers, run.seed))
            self.assertEqual(job["checkpoint"]["every_updates"], 0)
            self.assertAlmostEqual(job["evaluation"]["every_epochs"], 2 / 15, 6)

    def test_a_straggler_is_only_where_its_worker_is(self):
        options = options_with(stragglers=[Straggler(1, 4.0)])
        for run in make_plan(options, given_job(), {}).runs:
            slow = run.job.json.get("faults", {}).get("stragglers", [])
            self.assertEqual(slow, [dict(worker=1, slowdown_factor=4.0)] if run.workers == 4 else [])

    def test_an_algorithm_that_does_not_support_what_is_set_is_refused(self):
        sets = ["algorithm.compensation.open_loop_momentum.averaging=0.5"]
        options = options_with(set=sets, algorithms=["staleness_aware", "sync"])
        with self.assertRaises(Refused) as caught:
            make_plan(options, given_job(sets), {})
        self.assertIn("sync supports none of --workers:\n", caught.exception.message)
        self.assertIn("open_loop_momentum", caught.exception.message)

    def test_seconds_end_a_run_and_the_rate_stays(self):
        for run in make_plan(options_with(budget=CompareBudget(seconds=2.5)), given_job(), {}).runs:
            self.assertEqual(run.seconds, 2.5)
            self.assertGreater(run.job.json["samples"], 1e11)
            self.assertEqual(run.job.json["optimizer"]["schedule"]["decay"], "CONSTANT")

    def test_unsupported_runs_are_left_out_with_the_reason(self):
        options = options_with(algorithms=["sync", "hybrid"])
        plan = make_plan(options, given_job(), {})
        self.assertEqual(len(plan.runs), 6)
        ((algorithm, workers, reason),) = plan.left_out
        self.assertEqual((algorithm, workers), ("hybrid", 1))
        self.assertIn("every group needs a worker", reason)
        with self.assertRaises(Refused) as caught:
            make_plan(options_with(algorithms=["sync", "hybrid"], workers=[1]), given_job(), {})
        self.assertIn("hybrid supports none of --workers", caught.exception.message)

    def test_found_hyperparameters_are_of_their_algorithm_and_its_workers(self):
        found = {("downpour", 4): Hyperparameters(0.5, float32(0.3))}
        for run in make_plan(options_with(), given_job(), found).runs:
            own = 0.8 if run.algorithm == "downpour" else 0.9
            momentum = 0.3 if (run.algorithm, run.workers) == ("downpour", 4) else own
            self.assertAlmostEqual(run.job.facts["momentum"], momentum, 6)

    def test_finish_job_changes_each_job(self):
        options = options_with(finish_job=lambda job: core.edit(job, ["name=x"], complete=False))
        self.assertEqual({run.job.facts["name"] for run in make_plan(options, given_job(), {}).runs}, {"x"})

    def test_a_share_of_the_budget(self):
        job = job_with_share(options_with(), given_job(["algorithm.preset=easgd"]), 4, 7, 0.25)
        found = (job.json["samples"], job.json["seed"], job.json["workers"], job.preset)
        self.assertEqual(found, (30000, 7, 4, "easgd"))


class SearchTest(unittest.TestCase):
    def test_each_algorithm_with_each_number_of_workers_at_the_cost_of_a_run(self):
        options, given, directories = options_with(), given_job(), set()
        searches = plan_searches(options, given)
        self.assertEqual(len(searches), 4)
        for search in searches:
            self.assertEqual(len(search.trials), 10 if search.algorithm == "sync" else 11)
            self.assertAlmostEqual(cost_of(search.rungs), 1)
            samples = 0
            for number, rung in enumerate(search.rungs):
                for trial in range(rung.trials):
                    run = plan_trial(options, given, search, trial, number, rung.share)
                    samples += run.job.json["samples"]
                    self.assertEqual(run.seed, 3, "the runs have 1 and 2")
                    directories.add(run.directory)
            self.assertAlmostEqual(samples, 120000, delta=20)
        self.assertEqual(len(directories), 4 * (10 + 3) + 2, "downpour's own rate is not one of the ten")

    def test_leaves_out_what_an_algorithm_does_not_support(self):
        searches = plan_searches(options_with(algorithms=["gap_aware", "hybrid"]), given_job())
        self.assertEqual(len(searches), 3, "hybrid needs two workers")
        self.assertEqual({trial.momentum for trial in searches[0].trials}, {float32(0.9)})
        self.assertEqual(searches[0].trials[0].learning_rate, float32(0.03), "the preset's own comes first")

    def test_a_door_that_has_died_leaves_no_run_out(self):
        given = given_job()
        with mock.patch.object(core.DOOR, "ask", side_effect=Unavailable("it has ended")):
            for plan in (
                lambda: make_plan(options_with(), given, {}),
                lambda: untuned_rates(options_with(), given),
            ):
                self.assertRaises(Unavailable, plan)

    def test_none_if_there_is_nothing_to_find(self):
        self.assertEqual(untuned_rates(options_with(), given_job()), "")
        none = options_with(search="none")
        self.assertEqual(plan_searches(none, given_job()), [])
        self.assertIn("not tuned (--search=none)", untuned_rates(none, given_job()))
        sets = ["optimizer.learning_rate=0.125"]
        options, given = options_with(set=sets), given_job(sets)
        self.assertEqual(len(plan_searches(options, given)[0].trials), 2, "momentum alone")
        self.assertIn("comes from --set and was not tuned", untuned_rates(options, given))
        sets.append("optimizer.momentum=0.5")
        self.assertEqual(plan_searches(options, given_job(sets)), [])
        synthetic = given_job(["model={synthetic {parameters: 100}}", "data={synthetic {}}"])
        self.assertEqual(plan_searches(options_with(), synthetic), [])
        self.assertIn("model.synthetic does not learn", untuned_rates(options_with(), synthetic))

    def test_epochs_of_a_table_are_counted_by_workers(self):
        table = "data={table {train: 'a.csv' shape: [1, 28, 28] classes: 10}}"
        given, options = given_job(["epochs=10", table]), options_with(budget=CompareBudget())
        for run in make_plan(options, given, {}).runs:
            self.assertEqual(run.job.json["epochs"], 10)
            self.assertTrue(0 < run.job.json["evaluation"]["every_epochs"] < 1)
        with self.assertRaises(Refused) as caught:
            plan_searches(options, given)
        self.assertIn("give the budget in samples, or add --search=none", caught.exception.message)


if __name__ == "__main__":
    reference.use_binary()
    unittest.main()
