#!/usr/bin/env python3
"""Tests searches whose trials are runs: which runs begin, which are not repeated, and what is printed."""

import json
import os
import unittest

from catchment.study.errors import Refused
from catchment.study.halving import Rung
from catchment.study.launchers import SequentialLauncher
from catchment.study.run_directory import prepare_run_directory
from catchment.study.runs import label_of
from catchment.study.search import Search, run_searches
from launcher_case import LauncherCase, planned


class ScriptedLauncher(SequentialLauncher):
    """Writes the summaries that `score` returns; None: the run fails."""

    def __init__(self, score, concurrent=False):
        self.score, self.concurrent, self.trained = score, concurrent, []

    def train(self, run, work):
        path = work.directory.path_of(run)
        prepare_run_directory(path, run.job.text)
        self.trained.append(os.path.basename(path))
        summary = self.score(len(self.trained), run)
        if summary is not None:
            with open(path + "/summary.json", "w") as file:
                json.dump({"phase": "DONE", **summary}, file)
        work.progress.begin(label_of(run))
        work.progress.end("ended")


def plan(trial, rung, share):
    name = "search/sync-2-workers-trial-%d-rung-%d" % (trial + 1, rung + 1)
    return planned("sync", directory=name, trial="rate %d" % trial)


def trial_of(run):
    return int(run.trial.split()[1])


class SearchTest(LauncherCase):
    def run_search(self, launcher, rungs=((9, 0.1), (3, 0.3), (1, 1.0)), kept=-1, plan=plan, label="sync"):
        search = Search(label, [Rung(*rung) for rung in rungs], plan, kept)
        directory = self.directory()
        try:
            (result,) = run_searches([search], directory, launcher, self.streams())
        finally:
            directory.close()
        return result

    def test_the_best_of_each_rung_go_on_and_nothing_is_repeated(self):
        launcher = ScriptedLauncher(lambda _, run: {"test_accuracy": trial_of(run) / 10})
        result = self.run_search(launcher)
        self.assertEqual(result.halving.best, 8)
        self.assertEqual([rung.trials for rung in result.halving.rungs], [list(range(9)), [8, 7, 6], [8]])
        self.assertEqual([run.accuracy for run in result.runs[1]], [0.8, 0.7, 0.6])
        self.assertPrinted(
            "sync, rung 1: 10.00 % of the budget\n[1/9] sync, 2 workers, rate 0: ended",
            "[9/9] sync, 2 workers, rate 8: ended\nsync, rung 2: 30.00 % of the budget\n[10/12] ",
            "sync, rung 3: 100.00 % of the budget\n[13/13] sync, 2 workers, rate 8: ended\n",
        )
        again = ScriptedLauncher(lambda _, run: {})
        self.assertEqual(self.run_search(again, label=""), result)
        self.assertEqual(again.trained, [])
        self.assertEqual(self.out.getvalue(), "13 of 13 runs are already done\n")

    def test_a_search_that_was_interrupted_continues_with_the_missing_runs(self):
        def interrupted(number, run):
            if number == 11:
                raise Refused("interrupted")
            return {"test_accuracy": 0.5, "test_loss": trial_of(run)}

        first = ScriptedLauncher(interrupted)
        self.refused(self.run_search, first)
        second = ScriptedLauncher(lambda _, run: {"test_accuracy": 0.5, "test_loss": trial_of(run)})
        result = self.run_search(second)
        names = ["sync-2-workers-trial-%d-rung-%d" % of for of in ((2, 2), (3, 2), (1, 3))]
        self.assertEqual(second.trained, names)
        self.assertPrinted(
            "sync, 10 of 12 runs are already done\nsync, rung 2: 30.00 % of the budget\n[1/2] "
        )
        self.assertEqual(result.halving.best, 0)

    def test_runs_that_fail_and_jobs_that_are_not_valid_lose(self):
        def refusing(trial, rung, share):
            if trial == 1:
                raise Refused("momentum: must be below 1")
            return plan(trial, rung, share)

        launcher = ScriptedLauncher(
            lambda _, run: None if trial_of(run) == 0 else {"test_loss": trial_of(run)}
        )
        result = self.run_search(launcher, rungs=((4, 0.5), (1, 1.0)), kept=0, plan=refusing)
        self.assertEqual(result.halving.best, 2)
        reasons = [run.reason for run in result.runs[0]]
        self.assertEqual(reasons[:2], ["it did not write summary.json", "momentum: must be below 1"])
        nothing = self.run_search(ScriptedLauncher(lambda _, run: None), rungs=((2, 0.5),), label="b")
        self.assertEqual(nothing.halving.best, -1)

    def test_searches_of_old_data_are_done_again(self):
        for samples in (600, 300):
            launcher = ScriptedLauncher(
                lambda number, run: {"test_loss": trial_of(run), "train_samples": samples}
            )
            if samples == 300:
                os.remove(self.options.out + "/search/sync-2-workers-trial-1-rung-2/summary.json")
            self.run_search(launcher, rungs=((3, 0.5), (1, 1.0)))
        self.assertPrinted("the data have changed: 300 training samples, which were 600; runs of the old")
        names = [name[len("sync-2-workers-") :] for name in launcher.trained]
        self.assertEqual(names, ["trial-1-rung-2", "trial-1-rung-1", "trial-2-rung-1", "trial-3-rung-1"])

    def test_trials_go_on_at_once_where_runs_train_side_by_side(self):
        launcher = ScriptedLauncher(lambda _, run: {"test_loss": trial_of(run)}, concurrent=True)
        self.run_search(launcher, rungs=((9, 0.25), (3, 0.75)))
        self.assertLess(launcher.trained.index("sync-2-workers-trial-1-rung-2"), 12)
        self.assertEqual(len(launcher.trained), 12)
        again = ScriptedLauncher(lambda _, run: {}, concurrent=True)
        self.run_search(again, rungs=((9, 0.25), (3, 0.75)))
        self.assertEqual(again.trained, [], "those that are done end before others begin")


if __name__ == "__main__":
    unittest.main()
