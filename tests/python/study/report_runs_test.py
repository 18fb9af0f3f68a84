#!/usr/bin/env python3
"""`catchment report DIR...` in Python, with the jobs of the C++ binary ($CATCHMENT_BINARY)."""

import io
import json
import os
import re
import shutil
import tempfile
import unittest

import kept
import reference
from catchment.study import core, report, report_runs
from catchment.study.command_line import Stream, Streams

BASE = (
    "name: 'job' data { drawn_digits {} } epochs: 1 model { layers { flatten {} } "
    "layers { dense { units: %d } } layers { dense { units: 10 } } } %s %s"
)
SLOWED = "faults { stragglers { worker: 1 slowdown_factor: 4 } }"
LOCAL = "contribution { pseudo_gradient { local_optimizer { learning_rate: 0.5 } } }"
NAMES = [  # jobs, and their names
    (["", "algorithm { preset: 'downpour' } seed: 3 workers: 4"], ["sync", "downpour"]),
    (["", "optimizer { learning_rate: 0.25 }"], ["sync", "sync, learning_rate 0.25"]),
    (
        [
            "algorithm { preset: 'diloco' } optimizer { learning_rate: 0.25 }",
            "algorithm { preset: 'diloco' %s }" % LOCAL,
        ],
        ["diloco, optimizer.learning_rate 0.25", "diloco, local_optimizer.learning_rate 0.5"],
    ),
    (
        ["batch_size: 16", "algorithm { preset: 'easgd' } batch_size: 32"],
        ["sync, batch_size 16", "easgd, batch_size 32"],
    ),
    (["checkpoint { every_seconds: 5 }", "faults { heartbeat_timeout_seconds: 7 }"], ["sync", "sync"]),
    (
        ["", SLOWED],
        ["sync, without stragglers", "sync, stragglers [{ worker: 1 slowdown_factor: 4 }]"],
    ),
]


def text_of(more, units=10):
    return BASE % (units, "" if "workers:" in more else "workers: 2", more)


class ReportRunsTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.root)
        self.addCleanup(core.DOOR.close)  # which has the directory in which it began

    def run_of(self, name, more, accuracy=0.9, phase="DONE", reason="", units=10):
        """Writes what a run leaves, and returns its directory."""
        os.makedirs(name)
        summary = dict(
            phase=phase, reason=reason, wall_seconds=10, samples=100, samples_per_second=10, servers=2
        )
        line = dict(test_accuracy=accuracy, test_loss=1, tested_at_seconds=10, tested_at_samples=100)
        texts = {
            "job.textproto": text_of(more, units),
            "summary.json": json.dumps(dict(summary, test_accuracy=accuracy)),
            "metrics.jsonl": json.dumps(line) + "\n",
        }
        for file, text in texts.items():
            with open(os.path.join(name, file), "w", encoding="utf-8") as stream:
                stream.write(text)
        return name

    def report(self, *args, code=0):
        """Returns what the command prints."""
        out, err = io.StringIO(), io.StringIO()
        self.assertEqual(report.main(args, Streams(Stream(out), Stream(err))), code, err.getvalue())
        return err.getvalue() if code else out.getvalue()

    def test_jobs_are_named_by_preset_and_by_what_else_differs(self):
        for jobs, names in NAMES:
            with self.subTest(names):
                found = [core.DOOR.job(text=text_of(more), fields=True) for more in jobs]
                self.assertEqual(report_runs.name_jobs(found), names)

    def check_kept(self, name, args, out):
        page, report = kept.read(name, "page.txt"), json.loads(kept.read(name, "report.json"))
        expected = dict(report, version=core.version_line())
        printed = self.report(*args, "--out=" + out)
        sentences = (report["answer"]["sentence"], report["answer"]["where_synchronous_wins"])
        self.assertEqual(
            printed, "%s\n%s\n\nreport  %s/report.html\nfigures %s/report.json\n" % (*sentences, out, out)
        )
        with open(out + "/report.json", encoding="utf-8") as stream:
            text = stream.read()
        version = (json.dumps(report["version"]), json.dumps(expected["version"]))
        self.assertEqual(reference.as_then(text), kept.read(name, "report.json").replace(*version))
        with open(out + "/report.html", encoding="utf-8") as stream:
            self.assertEqual(
                kept.words_of(reference.as_then(stream.read())),
                page.replace(report["version"], expected["version"]),
            )

    def test_runs_that_were_made_by_hand(self):
        kept.restore("report", ".")
        names = ['single "run" <b>', "two\nlines", "comparison", "slowed", "failed", "diverged"]
        self.check_kept("report", names, "out")

    def test_a_comparison_that_was_killed(self):
        kept.restore("interrupted", "interrupted")
        self.check_kept("interrupted", ["interrupted"], "interrupted")

    def test_runs_and_those_of_a_comparison(self):
        single = self.run_of("single", "algorithm { preset: 'downpour' } workers: 4")
        self.run_of("comparison/runs/a", "seed: 1", 0.95)
        self.run_of("comparison/runs/b", "seed: 2", 0.97)
        os.makedirs("comparison/runs/begun")
        comparison = report_runs.collect_runs([single, "comparison"])
        self.assertEqual((comparison.workers, comparison.seeds, comparison.servers), ([2, 4], 2, 2))
        self.assertEqual((comparison.budget, comparison.machine), ("epochs:1", None))
        self.assertEqual([facts.name for facts in comparison.algorithms], ["downpour", "sync"])

    def test_runs_that_are_not_done(self):
        done, failed = self.run_of("done", ""), self.run_of("failed", "seed: 2", phase="FAILED")
        self.report(done, failed, "--out=out")
        with open("out/report.html", encoding="utf-8") as stream:
            self.assertIn("not done: FAILED", stream.read())
        other = self.run_of("other", "seed: 3", phase="FAILED")
        self.assertIn("no run has finished", self.report(failed, other, "--out=out", code=1))

    def test_one_run_has_the_page_of_a_run(self):
        diverged = self.run_of("diverged", "", 0, "FAILED", "training has <diverged>")
        self.run_of("comparison/runs/a", "", phase="STOPPED", reason="Ctrl-C")
        for directory, words in (
            (diverged, "Failed: training has <diverged>"),
            ("comparison", "Stopped: Ctrl-C"),
        ):
            with self.subTest(directory):
                self.assertIn(
                    words.replace(":", " at 0.5 % of its budget:"), self.report(directory, "--out=out")
                )
                with open("out/report.html", encoding="utf-8") as stream:
                    page = stream.read()
                self.assertIn(words.split(":")[1].replace("<", "&lt;").replace(">", "&gt;"), page)
                self.assertNotIn("Algorithms compared", page)

    def test_numbers_that_no_run_has_are_left_out(self):
        kept.restore("real", "kept")
        for value in ("NaN", "-1e308", "1" + "0" * 400, "-1"):
            pages = []
            for run in sorted(os.listdir("kept/runs"))[-2:]:
                shutil.copytree("kept/runs/" + run, run, dirs_exist_ok=True)
                for file in ("summary.json", "metrics.jsonl"):
                    with open("%s/%s" % (run, file), "r+", encoding="utf-8") as stream:
                        text = re.sub(r"(?<=[ :\[])-?\d[\d.e+-]*(?=[,\]}\n])", value, stream.read())
                        stream.seek(0)
                        stream.write(text)
                        stream.truncate()
                self.report(run, "--out=report-of-" + run)
                pages.append("report-of-%s/report.html" % run)
            self.report(*sorted(os.listdir("kept/runs"))[-2:], "--out=report")
            for page in [*pages, "report/report.html"]:
                with open(page, encoding="utf-8") as stream:
                    self.assertNotRegex(stream.read(), r"\b(nan|inf)\b")

    def test_what_cannot_be_compared_is_refused(self):
        one, same, other = (
            self.run_of("one", ""),
            self.run_of("same", ""),
            self.run_of("other", "seed: 2", units=12),
        )
        os.makedirs("empty")
        damaged = self.run_of("damaged", "seed: 3")
        with open("damaged/summary.json", "w") as stream:
            stream.write("[1]")
        os.makedirs("foreign")
        with open("foreign/report.html", "w") as stream:
            stream.write("mine")
        out = "--out=out"
        cases = [
            (["empty", out], 1, "empty contains neither a summary.json"),
            (["none", out], 1, "none is not a directory"),
            (
                [damaged, out],
                1,
                "damaged holds no run that has ended: damaged/summary.json is not a JSON object",
            ),
            (
                [one, same, out],
                1,
                "one and same are the same job (sync, 2 workers) with the same seed, 1; leave",
            ),
            ([one, one, out], 1, "one and one are the same job"),
            ([one, other, out], 1, "other and one train different models"),
            ([one, "--out=foreign"], 1, "foreign/report.html was not written by Catchment"),
            ([out], 2, "takes at least one DIR"),
            ([one], 2, "--out=DIR is required"),
            ([one, "--target=97", out], 2, "--target: must be a fraction below 1, such as 0.97"),
        ]
        for args, code, part in cases:
            with self.subTest(part):
                self.assertIn(part, self.report(*args, code=code))
        with open("foreign/report.html") as stream:
            self.assertEqual(stream.read(), "mine")


if __name__ == "__main__":
    reference.use_binary()
    unittest.main()
