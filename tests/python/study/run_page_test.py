#!/usr/bin/env python3
"""Tests the page of one run: its history, its content while it trains and at its end, and the server of
`catchment watch`."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, List, Tuple
from unittest import mock

import reference
from catchment.study import core, run_facts, run_page, watch
from catchment.study.errors import Refused
from catchment.study.history import MAX_MARKS, MAX_POINTS, RunHistory

JOB = (
    "name: 'digits' data { drawn_digits { train_samples: 1000 } } epochs: 1 workers: 3 "
    "model { layers { flatten {} } layers { dense { units: 10 } } }"
)
EVIL = "<img src=x>\x1b[31m\u202e$nonce"


def worker(index: int, **more: Any) -> Dict[str, Any]:
    """Returns the entry of a worker in a status."""
    one = dict(worker=index, host="node", pid=100 + index, device="cpu", samples_per_second=1000.0)
    one.update(
        compute_share=0.9, push_share=0.02, pull_share=0.05, data_share=0.03, seconds_since_heartbeat=0.4
    )
    one.update(staleness_mean=1.5, staleness_p99=3.0, pushes_applied=50, pushes_late=0, pushes_non_finite=0)
    return {**one, **more}


def warning(code: str, of: int) -> Dict[str, Any]:
    words = dict(found="worker %d" % of, why="because", advice="help it")
    return dict(code=code, worker=of, shard=None, measured=4, bound=2, **words)


def report(workers: List[Dict[str, Any]], **more: Any) -> Dict[str, Any]:
    """Returns a report of a job that trains."""
    status = dict(
        phase="TRAINING", reason="", percent=40.0, wall_seconds=12.0, seconds_left=18.0, samples=4000
    )
    status.update(total_samples=10000, updates=60, test_accuracy=0.97, test_loss=0.11, staleness_mean=1.5)
    status.update(
        planned_workers=3, preset="downpour", recoveries=0, last_checkpoint=None, events=[], warnings=[]
    )
    status["shards"] = [dict(shard=0, address="node:7000", parameters=50000, version=60, pushes_applied=150)]
    line = dict(wall_seconds=12.0, samples_per_second=2950.0, train_loss=0.5)
    return dict(job="digits", ended=False, line=line, status={**status, "workers": workers, **more})


def content(reported: Dict[str, Any], history: Any = None) -> str:
    return run_page.run_content(run_facts.of_report(reported, history or RunHistory()))


class RunHistoryTest(unittest.TestCase):
    def test_begins_with_metrics_and_forgets_what_is_trained_again(self) -> None:
        history = RunHistory()
        history.add_metrics(
            '{"wall_seconds": 1, "train_loss": 2.0, "tested_at_seconds": null}\n'
            '{"wall_seconds": 2, "train_loss": 1.5, "tested_at_seconds": 1.5, "test_loss": 1.7}\n'
            '{"wall_seconds": 3, "train_loss": 1.2, "tested_at_seconds": 1.5, "test_loss": 1.7}\n'
            '{"wall_seconds": 4, "train_l'
        )
        self.assertEqual(history.series["train_loss"], [(1, 2.0), (2, 1.5), (3, 1.2)])
        self.assertEqual(history.series["test_loss"], [(1.5, 1.7)])
        history.add({"wall_seconds": 2.5, "train_loss": 1.4}, trains=True)  # after a loss
        self.assertEqual(history.series["train_loss"], [(1, 2.0), (2, 1.5), (2.5, 1.4)])

    def test_leaves_out_what_means_nothing(self) -> None:
        history = RunHistory()
        history.add({"wall_seconds": 1, "train_loss": float("nan"), "samples_per_second": 0}, trains=True)
        history.add(
            {"wall_seconds": 2, "train_loss": 1, "tested_at_seconds": 2, "test_loss": 3}, trains=False
        )
        history.add({"wall_seconds": 3, "train_loss": 0.0, "samples_per_second": 0.0}, trains=True)
        self.assertEqual([key for key, series in history.series.items() if series], ["test_loss"])

    def test_is_bounded(self) -> None:
        history = RunHistory()
        for second in range(20000):
            history.add({"wall_seconds": second, "train_loss": 1}, trains=True)
        series = history.series["train_loss"]
        self.assertTrue(MAX_POINTS / 2 <= len(series) <= MAX_POINTS)
        self.assertEqual(series[-1].seconds, 19999)

    def test_marks_are_those_of_the_curve_that_is_shown(self) -> None:
        history = RunHistory()

        def line(seconds: float, *events: Any) -> None:
            history.add_metrics(
                json.dumps({"wall_seconds": seconds, "train_loss": 1, "events": events}) + "\n"
            )

        line(2, dict(wall_seconds=1, event="checkpoint 10 is saved", kind="checkpoint"))
        line(5, dict(wall_seconds=4, event="worker 1 (a:7) failed", kind="lost", worker=1), "damaged")
        line(
            6, dict(wall_seconds=1, event="went back", kind="recovered"), dict(wall_seconds=1, event="other")
        )
        line(3, dict(wall_seconds=2.5, event="checkpoint 20 is saved", kind="checkpoint", worker="x"))
        self.assertEqual(
            [(m.kind, m.seconds) for m in history.marks],
            [("checkpoint", 1), ("recovered", 1), ("checkpoint", 2.5)],
        )
        self.assertEqual(
            [event.text for event in history.events][1:3], ["worker 1 (a:7) failed", "went back"]
        )
        for update in range(3 * MAX_MARKS):
            line(10 + update, dict(wall_seconds=10 + update, event="saved", kind="checkpoint"))
        self.assertLessEqual(len(history.marks), MAX_MARKS)
        self.assertIn("recovered", {mark.kind for mark in history.marks}, "only checkpoints are thinned out")

    def test_reports_without_metrics_bring_the_events_since_the_one_before(self) -> None:
        history, events = RunHistory(), ["worker 0 (node:100) joined", "training"]
        lost, back = "worker 1 (node:101) failed: \x1b", "server 1 was lost; went back to checkpoint 40"
        for workers, more, new in (
            ([0, 1], {}, []),
            ([0], {"last_checkpoint": 40}, [lost, "checkpoint 40 is saved"]),
            ([0, 1], {"recoveries": 1, "last_checkpoint": 40}, ["worker 1 (node:9) joined", back]),
            ([1], {"recoveries": 1, "last_checkpoint": 80}, ["x"] * 30),
            ([], {"phase": "DONE", "recoveries": 1, "last_checkpoint": 80}, []),
        ):
            events = (events + new)[-30:]
            history.add_report(report(list(map(worker, workers)), events=events, **more))
        marks = [(mark.kind, mark.text, mark.worker) for mark in history.marks]
        self.assertEqual(
            marks,
            [
                ("lost", "worker 1 (node:101) failed: \\x1b", 1),
                ("checkpoint", "checkpoint 40 is saved", None),
                ("recovered", back, None),
                ("lost", "worker 0 (node:100) is gone", 0),
                ("checkpoint", "checkpoint: 80", None),
            ],
        )
        self.assertEqual(len(history.events), 4 + 30 + 2, "each once")


class ContentTest(unittest.TestCase):
    def test_shows_one_rate_and_where_the_time_of_workers_goes(self) -> None:
        page = content(report([worker(0), worker(1)]))
        self.assertEqual(page.count("samples a second"), 2, "as the title and the key of one figure")
        self.assertIn("<dd>2,950<small>last seconds", page)
        self.assertIn("Training: 40 % of its budget, 18 s left", page)
        self.assertIn('title="computing 90 %, waiting 7 %, data 3 %"', page)
        self.assertNotIn("<pre", page)

    def test_curves_have_marks_with_their_events(self) -> None:
        history = RunHistory()
        for second in range(1, 20):
            row = dict(wall_seconds=second, train_loss=1 / second, samples_per_second=10)
            events = (
                [dict(wall_seconds=5, event="worker 2 <was lost>", kind="lost", worker=2)]
                if second == 6
                else []
            )
            history.add_metrics(json.dumps(dict(row, events=events)) + "\n")
        page = content(report([worker(0)], events=["worker 2 <was lost>"]), history)
        self.assertEqual(re.findall(r'aria-label="([^"]+)', page), ["Loss", "Samples a second"])
        self.assertEqual(page.count("<title>5.0 s: worker 2 &lt;was lost&gt;</title>"), 2)
        self.assertIn("a worker was lost", page)
        self.assertNotIn("a checkpoint was complete", page)
        self.assertIn('<td class="left">5.0 s</td><td class="left">worker 2 &lt;was lost&gt;</td>', page)
        self.assertIn('<td class="left">2</td><td><b>lost</b></td>', page)

    def test_axes_show_what_changes(self) -> None:
        history = RunHistory()
        for second, accuracy in enumerate((0.1, 0.96, 0.97, 0.98, 0.984)):
            history.add({"tested_at_seconds": second, "test_accuracy": accuracy}, trains=True)
        labels = re.findall(r">([\d.]+) %</text>", content(report([]), history))
        self.assertEqual((labels[0], labels[-1]), ("97.0", "98.5"))
        flat = RunHistory()
        flat.add({"tested_at_seconds": 1, "test_accuracy": 1.0, "test_loss": 0.5}, trains=True)
        self.assertIn(">100 %</text>", content(report([]), flat), "of one value, which is the highest")

    def test_two_hundred_workers_are_sorted_by_what_is_wrong_and_fit(self) -> None:
        workers = [
            worker(
                i, device="a long name of a device, with %d threads" % i, host="node-%d.cluster.example" % i
            )
            for i in range(200)
        ]
        workers[17].update(staleness_mean=9.0)
        del workers[42]
        history = RunHistory()
        for second in range(600):
            rates = [
                dict(worker=i, samples_per_second=1000 + 7 * i * second % 50, compute_share=0.9)
                for i in range(200)
            ]
            row = dict(
                wall_seconds=second,
                train_loss=1 + second % 7,
                train_accuracy=0.5,
                samples_per_second=9 + second,
                staleness_mean=3,
            )
            events = [dict(wall_seconds=second, event="checkpoint %d is saved" % second, kind="checkpoint")]
            history.add_metrics(json.dumps(dict(row, worker_rates=rates, events=events)) + "\n")
        lost = dict(wall_seconds=600, event="worker 42 (node:142) was lost", kind="lost", worker=42)
        history.add_events([lost])
        page = content(
            report(
                workers,
                warnings=[warning("no_progress", 99), warning("straggler", 150), warning("straggler", 3)],
            ),
            history,
        )
        shown, folded = page[page.index("<h2>Workers") :].split("<details")
        self.assertEqual(re.findall(r'data-key="w(\d+)"', shown), ["42", "99", "3", "150", "17"])
        self.assertEqual(re.findall(r"<b>([^<]+)</b>", shown), ["lost", "stuck", "slow", "slow", "stale"])
        self.assertEqual(len(re.findall(r'data-key="w', folded)), 195)
        self.assertIn(
            "195 workers with nothing wrong, 1,000 to 1,000 samples/s, staleness 1.50 to 1.50", folded
        )
        self.assertLessEqual(len(page.encode()), 300_000)

    def test_earlier_events_are_folded_except_losses(self) -> None:
        history = RunHistory()
        texts = ["worker %d joined" % i for i in range(150)]
        history.add_events([dict(wall_seconds=1, event="worker 7 failed", kind="lost", worker=7)])
        history.add_events([dict(wall_seconds=2, event=text) for text in texts])
        facts = run_facts.of_report(report([worker(0)]), history)
        facts.events = history.events
        page = run_page.run_content(facts)
        shown, folded = page[page.index("<h2>Events") :].split("<details")
        events = re.findall(r'data-key="e([^"]+)"', shown)
        self.assertEqual((events[0], events[1], len(events)), ("worker 7 failed1", "worker 138 joined1", 13))
        self.assertIn("138 earlier events, of which the last 100 are here", folded)
        self.assertEqual(folded.count('data-key="e'), 101, "with that of what is folded")

    def test_texts_of_others_are_escaped(self) -> None:
        bad = [worker(0, host=EVIL, device=EVIL), worker(1)]
        found = dict(warning("straggler", 0), found=EVIL, why=EVIL, advice=EVIL)
        reported = report(bad, warnings=[found], events=[EVIL, EVIL], reason=EVIL, preset=EVIL)
        page = content(dict(reported, job=EVIL))
        self.assertNotIn("<img", page)
        self.assertNotRegex(page, "[\x1b\u202e]")
        self.assertEqual(page.count("&lt;img src=x&gt;\\x1b[31m\\u202e$nonce"), 12)

    def test_a_job_without_a_budget_members_or_measurements(self) -> None:
        page = content(
            report([], percent=None, seconds_left=None, shards=[], phase="WAITING", reason="for 2 workers")
        )
        self.assertIn("Waiting: for 2 workers", page)
        for absent in ("<progress", "<svg", "<table"):
            self.assertNotIn(absent, page)


class EndTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.addCleanup(core.DOOR.close)
        self.run = directory.name

    def write(self, name: str, text: str) -> None:
        with open(os.path.join(self.run, name), "w", encoding="utf-8") as file:
            file.write(text)

    def page(self, summary: Any, *warnings: run_facts.Advice) -> str:
        self.write("summary.json", json.dumps(summary))
        return run_page.run_page(run_facts.of_directory(self.run, warnings))

    def test_tells_how_the_run_has_ended(self) -> None:
        self.write("job.textproto", JOB)
        for summary, words in (
            (
                dict(phase="STOPPED", reason="SIGINT to `catchment train`", samples=20),
                "Stopped at 2 % of its budget by Ctrl-C of `catchment train`",
            ),
            (dict(phase="FAILED", reason="a <b>"), "Failed: a &lt;b&gt;"),
            (dict(phase="DONE", wall_seconds=61, samples=1000), "Done after 1 min 01 s of training"),
            (
                dict(phase="DONE", ended_early="test loss 0.5 reached", samples=500),
                "Done at 50 % of its budget: test loss",
            ),
            (dict(phase=7), "It is not known how the run has ended"),
        ):
            page = self.page(summary)
            self.assertIn(words, page)
            self.assertIn("--servers=1", page)
            self.assertNotIn("Algorithms compared", page)
            self.assertNotIn("--resume", page)
        self.assertIn(
            "--out=%s \\\n    --resume" % self.run, self.page(dict(phase="STOPPED", last_checkpoint=9))
        )

    def test_has_curves_workers_events_and_warnings(self) -> None:
        lines = [
            dict(
                wall_seconds=s,
                train_loss=2 / s,
                test_accuracy=0.9 + s / 100,
                test_loss=1 / s,
                tested_at_seconds=s,
                worker_rates=[
                    dict(worker=w, samples_per_second=100 if w < 2 else 40, compute_share=0.8)
                    for w in range(3)
                    if w != 1 or s < 5
                ],
            )
            for s in range(1, 9)
        ]
        lines[4]["events"] = [dict(wall_seconds=4.5, event="worker 1 (a:1) failed: x", kind="lost", worker=1)]
        self.write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines) + '{"wall_sec')
        pushes = [dict(worker=w, pushes_applied=30 - w, staleness_mean=1.5) for w in range(2)]
        summary = dict(
            phase="DONE",
            recoveries=1,
            updates_computed_again=9,
            per_worker=pushes,
            per_shard=[dict(shard=0, pushes_applied=59)],
        )
        page = self.page(summary, run_facts.Advice("the last warning"))
        self.assertEqual(re.findall(r'aria-label="([^"]+)', page), ["Accuracy", "Loss"])
        self.assertEqual(re.findall(r'data-key="w(\d)"', page), ["1", "2", "0"])
        self.assertEqual(re.findall(r"<b>(lost|slow)</b>", page), ["lost", "slow"])
        for words in (
            "<b>1 worker was lost</b> See the events",
            "<b>worker 2 computed 25 ms a sample, 2.5 times the median of 10 ms</b> Check",
            "9 updates computed again",
            "the last warning",
            "worker 1 (a:1) failed: x",
            ">59</td>",
            '<polyline points="0,1',
        ):
            self.assertTrue(words in page, words)
        self.assertFalse("How to repeat it" in page, "there is no job file")

    def test_a_loss_that_going_back_has_undone_is_none_at_the_end(self) -> None:
        rates = [dict(worker=w, samples_per_second=100, compute_share=1) for w in range(2)]
        lost = [dict(wall_seconds=9, event="worker 1 failed", kind="lost", worker=1)]
        back = [dict(wall_seconds=4, event="server 1 was lost; went back", kind="recovered")]
        lines = [
            dict(wall_seconds=8, worker_rates=rates),
            dict(wall_seconds=9, worker_rates=rates[:1], events=lost),
            dict(wall_seconds=6, worker_rates=rates, events=back),
        ]
        self.write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        page = self.page(dict(phase="DONE"))
        self.assertNotIn("<b>lost</b>", page)
        self.assertIn("1 worker was lost", page, "an event stays")

    def test_damaged_files_are_refused_or_left_out(self) -> None:
        with self.assertRaisesRegex(Refused, "summary.json"):
            run_facts.of_directory(self.run)
        self.write("job.textproto", "not a job")
        self.write(
            "metrics.jsonl",
            '[1]\n{"worker_rates": 3, "events": {}}\n{"worker_rates": [7, {"worker": "x"}]}\n',
        )
        odd = dict(
            phase="DONE",
            per_worker={"a": 1},
            per_shard=[3, {"shard": "x", "pushes_applied": "many"}],
            servers="2",
            workers=[],
            job=3,
        )
        page = self.page(odd)
        self.assertIn("Done", page)
        self.assertIn("not a job", page)


class ServerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.content = watch._Content()
        self.content.change(lambda: "<p>now</p>")
        self.server = watch._Server(0, self.content)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.port = int(self.server.server_address[1])
        self.query = "?token=" + self.server.token

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 600)

    def send(self, request: str) -> str:
        """Returns the answer; an empty text if the connection is closed without one."""
        answer = b""
        with contextlib.suppress(ConnectionError), self.connect() as connection:
            connection.sendall(request.encode())
            for part in iter(lambda: connection.recv(65536), b""):
                answer += part
        return answer.decode()

    def test_a_content_is_made_once_and_only_sent_when_it_has_changed(self) -> None:
        made: List[str] = []

        def make() -> str:
            made.append("<p>%d</p>" % len(made))
            return made[-1]

        self.content.change(make)
        self.content.change(make)
        self.assertEqual(made, [], "nobody has asked")
        request = "GET /content%s HTTP/1.0\r\nHost: localhost\r\nIf-None-Match: %%s\r\n\r\n" % self.query
        first = self.send(request % "")
        tag = re.findall(r'ETag: ("\d+")', first)[0]
        self.assertTrue(first.endswith("<p>0</p>"))
        again = self.send(request % tag)
        self.assertIn(" 304 ", again.split("\r\n")[0])
        self.assertNotIn("<p>", again)
        self.assertEqual(len(made), 1)
        self.content.change(make)
        self.content.change(make)
        self.assertEqual(len(made), 2, "before it is asked for, but only once")
        self.assertTrue(self.send(request % tag).endswith("<p>2</p>"))

    def get(self, path: str, host: str = "127.0.0.1") -> Tuple[int, str]:
        answer = self.send("GET %s HTTP/1.0\r\nHost: %s\r\n\r\n" % (path, host))
        return int(answer.split(" ")[1]), answer

    def test_answers_who_has_the_token(self) -> None:
        self.assertEqual(self.server.address, "http://127.0.0.1:%d/%s" % (self.port, self.query))
        code, page = self.get("/" + self.query, "localhost:8080")
        self.assertEqual(code, 200)
        self.assertIn("content" + self.query, page)
        self.assertNotIn("http:", page, "the page needs nothing from elsewhere")
        self.assertTrue(self.get("/content" + self.query)[1].endswith("\r\n\r\n<p>now</p>"))
        self.assertEqual(self.get("/none" + self.query)[0], 404)
        for path in ("/", "/content", "/report", "/?token=", "/content?token=" + 32 * "0"):
            code, answer = self.get(path)
            self.assertEqual(code, 403, path)
            self.assertIn("`catchment watch` printed", answer)

    def test_answers_only_by_the_names_of_this_machine(self) -> None:
        for host in ("example.org", "127.0.0.1.example.org", "localhost:80@example.org", "", "[::1"):
            self.assertEqual(self.get("/content" + self.query, host)[0], 403, host)
        self.assertIn(" 403 ", self.send("GET /content%s HTTP/1.0\r\n\r\n" % self.query))

    def test_only_reads(self) -> None:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer = self.send("%s /content%s HTTP/1.0\r\nHost: localhost\r\n\r\n" % (method, self.query))
            self.assertIn(" 501 ", answer.split("\r\n")[0])

    def test_executes_no_script_but_its_own(self) -> None:
        pages = [self.get("/" + self.query)[1] for _ in range(2)]
        nonces = [
            re.findall(r"nonce-([^']+)'", page) + re.findall(r'<script nonce="([^"]+)"', page)
            for page in pages
        ]
        self.assertEqual([len(set(nonce)) for nonce in nonces], [1, 1])
        self.assertNotEqual(nonces[0], nonces[1], "each answer has its own")
        self.assertEqual(pages[0].count("<script"), 1)
        self.content.change(lambda: "$nonce")
        self.assertTrue(self.get("/content" + self.query)[1].endswith("$nonce"), "a job's name may say so")

    def test_connections_are_bounded_in_number(self) -> None:
        held = [self.connect() for _ in range(watch._CONNECTIONS)]
        for connection in held:
            connection.sendall(b"GET / HT")
        with self.connect() as another:
            self.assertEqual(another.recv(1), b"", "one more is closed")
        for connection in held:
            connection.close()
        answer = ""
        while not answer:  # until the server has noticed the end of one
            answer = self.send("GET /none%s HTTP/1.0\r\nHost: localhost\r\n\r\n" % self.query)
        self.assertIn(" 404 ", answer)

    def test_a_request_that_takes_too_long_is_cut(self) -> None:
        with mock.patch.object(watch, "_CONNECTION_SECONDS", 0.1), self.connect() as connection:
            connection.sendall(b"GET / HT")
            self.assertEqual(connection.recv(1), b"")

    def test_refuses_a_port_in_use(self) -> None:
        with self.assertRaisesRegex(Refused, "cannot listen on 127.0.0.1:%d: " % self.port):
            watch._Server(self.port, self.content)
        with self.assertRaisesRegex(Refused, "cannot listen on 127.0.0.1:70000: "):
            watch._Server(70000, self.content)


class CommandTest(unittest.TestCase):
    def run_watch(self, *args: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "catchment.study", "watch", *args]
        return subprocess.run(command, capture_output=True, text=True)

    def test_names_what_it_cannot_reach(self) -> None:
        for args, code, words in (
            ([reference.DATA], 3, "no master uses this --out"),
            (["127.0.0.1:1"], 3, "127.0.0.1:1"),
            (["nowhere"], 2, "is neither a directory"),
            (["192.0.2.1:7000"], 2, "--insecure"),
            (["127.0.0.1:1", "--port=-1"], 2, "at least 0"),
            ([], 2, "takes one HOST:PORT|DIR, for example: catchment watch node0:7000"),
        ):
            done = self.run_watch(*args)
            self.assertEqual(done.returncode, code, args)
            self.assertRegex(done.stderr, "^catchment watch: ")
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    reference.use_binary()
    unittest.main()
