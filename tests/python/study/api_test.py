#!/usr/bin/env python3
"""Tests catchment.study.load() on comparisons that were kept, and on runs that were made by hand. What needs
matplotlib and pandas (tests/python/requirements/tune.txt) is skipped without them."""

import contextlib
import io
import json
import os
import shutil
import tempfile
import unittest
from unittest import mock

import catchment
import kept
import reference
import report_test
from catchment import study
from catchment.study import report as report_command
from catchment.study.command_line import Stream, Streams

try:
    import matplotlib

    matplotlib.use("agg")
except ImportError:
    matplotlib = None
try:
    import pandas
except ImportError:
    pandas = None


class StudyCase(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        # Reports name the directories of runs from where `catchment report` was started.
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.root)

    def restored(self, name, report=True):
        """Returns the directory of a kept comparison."""
        out = os.path.join(self.root, name)
        kept.restore(name, out)
        if report:
            with open(out + "/report.json", "w", encoding="utf-8") as file:
                file.write(kept.read(name, "report.json"))
        return out


class LoadTest(StudyCase):
    def test_a_report_that_is_written_again_is_the_same(self):
        for name in kept.NAMES:
            with self.subTest(name):
                loaded = study.load(self.restored(name))
                page = loaded.report(os.path.join(self.root, name, "again"))
                with open(os.path.join(os.path.dirname(page), "report.json"), encoding="utf-8") as file:
                    self.assertEqual(file.read(), report_test.report_of(name))
                with open(page, encoding="utf-8") as file:
                    self.assertEqual(kept.words_of(file.read()), kept.read(name, "page.txt"))

    def test_runs_and_answer_are_those_of_the_report(self):
        out = self.restored("real")
        report = json.loads(kept.read("real", "report.json"))
        loaded = study.load(out)
        self.assertEqual(loaded.answer, report["answer"]["sentence"])
        self.assertEqual(loaded.report, report)
        self.assertEqual(len(loaded.runs), len(report["runs"]))
        for run, one in zip(loaded.runs, report["runs"]):
            self.assertEqual(run["test_accuracy"], one["test_accuracy"])
            self.assertFalse([value for value in run.values() if isinstance(value, (dict, list))])
        self.assertEqual(loaded.page, os.path.join(out, "report.html"))
        self.assertIs(catchment.Comparison, study.Study)
        self.assertEqual(catchment.Comparison(out).answer, loaded.answer)

    def test_curves_have_each_measurement_once(self):
        out = self.restored("real")
        loaded = study.load(out)
        series = [
            (run["algorithm"], run["workers"], run["seed"], score["samples"], score["test_accuracy"])
            for run in loaded.report["runs"]
            for score in run["series"]
        ]
        keys = ("algorithm", "workers", "seed", "samples", "test_accuracy")
        self.assertEqual([tuple(row[key] for key in keys) for row in loaded.curves()], series)
        self.assertTrue(series)
        self.assertEqual(loaded.curves("no_such_metric"), [])

    def test_a_target_changes_the_times(self):
        loaded = study.load(self.restored("real"), target=0.5)
        self.assertEqual(loaded.report["target"], {"test_accuracy": 0.5, "given": True})

    def test_runs_made_by_hand_are_joined_as_catchment_report_does(self):
        directories = [self.restored("real", report=False), self.restored("one_seed", report=False)]
        for chosen in (
            directories[:1],
            [directories[0] + "/runs/" + os.listdir(directories[0] + "/runs")[0]],
        ):
            out = os.path.join(self.root, "report")
            streams = Streams(Stream(io.StringIO()), Stream(io.StringIO()))
            self.assertEqual(report_command.main([*chosen, "--out=" + out], streams), 0)
            with open(out + "/report.json") as file:
                report = json.load(file)
            loaded = study.load(*chosen)
            self.assertEqual(loaded.report["runs"], report["runs"])
            self.assertEqual(loaded.answer, report["answer"]["sentence"])
            self.assertEqual(study.load(out).report, report)

    def test_pictures_are_those_of_the_page(self):
        out = self.restored("real")
        pictures = study.load(out).pictures
        with open(study.load(out).report(self.root + "/again"), encoding="utf-8") as file:
            page = file.read()
        self.assertEqual(len(pictures), page.count("<svg "))
        for title, picture in pictures.items():
            self.assertIn('aria-label="%s"' % title, picture)
            self.assertIn("#ffffff", picture._repr_svg_())
        shown = study.load(out)._repr_html_()
        self.assertEqual((shown.count("<svg "), shown.count("<table>")), (1, 1))

    def test_bad_directories_are_named_in_a_sentence(self):
        damaged = os.path.join(self.root, "damaged")
        os.mkdir(damaged)
        cases = [(os.path.join(self.root, "none"), "is not a directory")]
        for text, words in (
            ("{", "is not a JSON object"),
            ('{"schema": 1}', "another version"),
            ("{}", "version"),
        ):
            with open(damaged + "/report.json", "w") as file:
                file.write(text)
            with self.subTest(text), self.assertRaisesRegex(RuntimeError, words):
                study.load(damaged)
        for path, words in cases:
            with self.assertRaisesRegex(RuntimeError, words):
                study.load(path)
        with mock.patch.dict(os.environ, CATCHMENT_BINARY="/no/catchment"), contextlib.suppress(RuntimeError):
            self.assertTrue(study.load(self.restored("one_seed")).answer)  # Only facts of jobs are missing.

    def test_missing_packages_are_named_with_the_remedy(self):
        loaded = study.load(self.restored("real"))
        with mock.patch.dict("sys.modules", {"pandas": None, "matplotlib.pyplot": None}):
            with self.assertRaisesRegex(ImportError, "pip install pandas"):
                loaded.frame()
            with self.assertRaisesRegex(ImportError, "pip install matplotlib"):
                loaded.plot()


class PackagesTest(StudyCase):
    @unittest.skipUnless(pandas, "needs pandas")
    def test_a_frame_has_a_row_for_each_run(self):
        loaded = study.load(self.restored("real"))
        frame = loaded.frame()
        self.assertEqual(list(frame["test_accuracy"]), [run["test_accuracy"] for run in loaded.runs])

    @unittest.skipUnless(matplotlib, "needs matplotlib")
    def test_a_plot_has_the_means_over_seeds(self):
        loaded = study.load(self.restored("real"))
        for name, magic in (("a.pdf", b"%PDF"), ("a.svg", b"<?xml"), ("a.png", b"\x89PNG")):
            path = os.path.join(self.root, name)
            figure = loaded.plot(path)
            with open(path, "rb") as file:
                self.assertTrue(file.read().startswith(magic))
        algorithms = [one["algorithm"] for one in loaded.report["algorithms"]]
        for axes, workers in zip(figure.axes, loaded.report["workers"]):
            self.assertEqual([line.get_label() for line in axes.lines], algorithms)
            for line, algorithm in zip(axes.lines, algorithms):
                last = [
                    one["series"][-1]["test_accuracy"]
                    for one in loaded.report["runs"]
                    if (one["algorithm"], one["workers"]) == (algorithm, workers)
                ]
                self.assertAlmostEqual(line.get_ydata()[-1], sum(last) / len(last))
        self.assertTrue(loaded.plot(metric="test_loss", x="samples").axes)
        with self.assertRaisesRegex(ValueError, "no run has measured"):
            loaded.plot(metric="no_such_metric")


if __name__ == "__main__":
    reference.use_binary()
    if not (pandas and matplotlib):
        print("SKIPPED: tables and plots, since pandas and matplotlib are not installed", flush=True)
    unittest.main()
