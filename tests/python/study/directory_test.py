#!/usr/bin/env python3
"""Tests the directories of runs and comparisons: whose files are theirs, locks, and what is done again."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from catchment.study import files, run_directory
from catchment.study.errors import Refused

# Files of other programs and of the user with each of the names that a run writes.
OTHERS = (
    "job.textproto",
    "initial.safetensors",
    "program.txt",
    "logs/notes.txt",
    "logs/server-0.log",
    "metrics.jsonl",
    "tensorboard/events.out.tfevents.1.node0",
    "summary.json",
    "model.safetensors",
    "model-best.safetensors",
    "master.address",
    "master.run",
    "checkpoints/epoch3.pt",
    "checkpoints/checkpoint-500/model.safetensors",
)
RUNS = (
    "metrics.jsonl",
    "model-best.safetensors",
    "logs/worker-0.log",
    "logs/slurm.log",
    "tensorboard/events.out.tfevents.1.node0",
    "checkpoints/checkpoint-1/shard-0-of-1.safetensors",
    "checkpoints/checkpoint-2.unusable/manifest.textproto",
    "checkpoints/checkpoint-1/worker-3.safetensors.0123456789abcdef.tmp",
    "checkpoints/catchment.claim",
    "summary.json",
)
MINE = (
    "notes.txt",
    "logs/notes.txt",
    "tensorboard/plan.md",
    "checkpoints/epoch3.pt",
    "checkpoints/checkpoint-1/optimizer.pt",
    "checkpoints/checkpoint-500/model.safetensors",
)


class Case(unittest.TestCase):
    def setUp(self):
        self.path = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.path)

    def put(self, name, text="mine"):
        os.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
        files.write_file(self.at(name), text)

    def at(self, name):
        return os.path.join(self.path, name)

    def has(self, name):
        return os.path.lexists(self.at(name))

    def refused(self, function, *args, **keywords):
        with self.assertRaises(Refused) as caught:
            function(*args, **keywords)
        return caught.exception.message

    def prepare(self, job="name: 'a'\n"):
        run_directory.prepare_run_directory(self.path, job)


class FilesTest(Case):
    def test_named_pipes_and_links_are_neither_read_nor_written(self):
        os.mkfifo(self.at("summary.json"))
        for function in (files.read_summary, lambda path: files.write_file(path, "{}")):
            message = self.refused(function, self.at("summary.json"))
            self.assertEqual(message, self.at("summary.json") + ": is not a regular file")
        self.put("mine")
        os.symlink(self.at("mine"), self.at("link"))
        message = self.refused(files.write_file, self.at("link"), "theirs")
        self.assertEqual(message, self.at("link") + ": is not a regular file")
        self.assertEqual(files.read_text(self.at("mine")), "mine")
        self.assertEqual(self.refused(files.read_text, self.path), self.path + ": is not a regular file")

    def test_a_file_is_written_completely_or_not_at_all(self):
        self.put("a", "old")
        files.write_atomically(self.at("a"), "new")
        self.assertEqual(files.read_text(self.at("a")), "new")
        os.mkdir(self.at("b"))
        self.put("b/c")
        message = self.refused(files.write_atomically, self.at("b"), "new")
        self.assertEqual(message, "cannot write %s, which needs 3 bytes: Is a directory" % self.at("b"))
        self.assertEqual(sorted(os.listdir(self.path)), ["a", "b"])

    def test_a_summary_that_is_no_object_is_named(self):
        for text in ('{"epochs": ', "[1]", "", "[" * 100000):
            self.put("summary.json", text)
            message = self.refused(files.read_summary, self.at("summary.json"))
            self.assertEqual(message, self.at("summary.json") + " is not a JSON object")
        self.assertEqual(
            self.refused(files.read_summary, "/nothing"), "cannot open /nothing: No such file or directory"
        )
        self.put("summary.json", '\ufeff{"epochs": 2}')
        self.assertEqual(files.read_summary(self.at("summary.json")), {"epochs": 2})


class RunDirectoryTest(Case):
    def test_files_of_others_with_its_names_are_refused_and_kept(self):
        names = ("logs", "summary.json", "runs")
        for other in ("logs/notes.txt", "summary.json", "runs"):
            self.put(other)
            message = self.refused(run_directory.claim_names, self.path, names)
            name = self.at(other.split("/")[0])
            self.assertEqual(
                message,
                "%s was not written by Catchment (%s/catchment.claim does not list it), and would be "
                "overwritten: choose another --out, or move it" % (name, self.path),
            )
            self.assertEqual(os.listdir(self.path), [other.split("/")[0]])
            (shutil.rmtree if os.path.isdir(name) else os.remove)(name)

    def test_names_are_claimed_once_and_recorded_in_order(self):
        os.mkdir(self.at("logs"))
        run_directory.claim_names(self.path, ("logs", "b"))
        self.put("b")
        run_directory.claim_names(self.path, ("a", "b"))
        record = files.read_text(self.at("catchment.claim"))
        self.assertEqual(
            record,
            "# Catchment writes these names in this directory, and deletes them to start again.\n"
            "a\nb\nlogs\n",
        )
        self.put("catchment.claim", "my own")
        message = self.refused(run_directory.claim_names, self.path, ("c",), ours=True)
        what = self.at("catchment.claim")
        self.assertEqual(
            message, what + " was not written by Catchment: move it, or choose another directory"
        )

    def test_a_run_is_replaced_and_files_of_others_remain(self):
        self.prepare()
        for name in (*RUNS, *MINE):
            self.put(name)
        self.prepare("name: 'b'\n")
        for name in RUNS:
            self.assertFalse(self.has(name), name)
        for name in MINE:
            self.assertTrue(self.has(name), name)
        self.assertEqual(files.read_text(self.at("job.textproto")), "name: 'b'\n")
        run_directory.delete_run(self.path)
        left = [os.path.join(top, file) for top, _, names in os.walk(self.path) for file in names]
        self.assertEqual(sorted(left), sorted(map(self.at, MINE)))

    def test_a_run_record_is_deleted_and_no_other_file_of_its_name(self):
        self.put("checkpoints/run.textproto", 'run_id: 7\nphase: "DONE"\n')
        run_directory.delete_run_checkpoints(self.path)
        self.assertFalse(self.has("checkpoints"))
        self.put("checkpoints/run.textproto", "my notes\n")
        run_directory.delete_run_checkpoints(self.path)
        self.assertTrue(self.has("checkpoints/run.textproto"))

    def test_nothing_is_deleted_through_a_link(self):
        elsewhere = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, elsewhere)
        files.write_file(elsewhere + "/server-0.log", "another run's")
        os.mkdir(elsewhere + "/checkpoint-1")
        files.write_file(elsewhere + "/checkpoint-1/manifest.textproto", "another run's")
        self.prepare()
        self.put("metrics.jsonl")
        os.rmdir(self.at("logs"))
        for name in ("logs", "checkpoints"):
            os.symlink(elsewhere, self.at(name))
            message = self.refused(self.prepare)
            self.assertEqual(
                message,
                "%s is a symbolic link, whose files are not deleted: remove the link, or choose another --out"
                % self.at(name),
            )
            os.remove(self.at(name))
        self.assertTrue(self.has("metrics.jsonl") and os.path.exists(elsewhere + "/server-0.log"))
        os.mkdir(self.at("checkpoints"))
        os.symlink(elsewhere + "/checkpoint-1", self.at("checkpoints/checkpoint-1"))
        self.prepare()
        self.assertTrue(os.path.exists(elsewhere + "/checkpoint-1/manifest.textproto"))

    def test_a_job_that_is_the_same_is_not_written_again(self):
        self.prepare()
        before = os.stat(self.at("job.textproto")).st_mtime_ns
        self.prepare()
        self.assertEqual(os.stat(self.at("job.textproto")).st_mtime_ns, before)

    def test_a_running_master_keeps_its_files(self):
        self.prepare()
        self.put("logs/server-0.log")
        master = run_directory.DirectoryLock(self.path)
        self.assertIn("is in use by another master on host ", self.refused(self.prepare))
        self.assertTrue(self.has("logs/server-0.log"))
        master.close()
        self.prepare()
        self.assertFalse(self.has("logs/server-0.log"))


class DirectoryLockTest(Case):
    USER = ("command.lock", "another running `catchment compare`")

    def test_one_process_at_a_time_holds_it(self):
        first = run_directory.DirectoryLock(self.path, *self.USER)
        self.assertEqual(
            files.read_text(self.at("command.lock")), "%s %d\n" % (socket.gethostname(), os.getpid())
        )
        message = self.refused(run_directory.DirectoryLock, self.path, *self.USER)
        self.assertEqual(
            message,
            "%s is in use by another running `catchment compare` on host %s with pid %d: wait until it has "
            "ended, or choose another directory" % (self.path, socket.gethostname(), os.getpid()),
        )
        first.close()
        run_directory.DirectoryLock(self.path, *self.USER).close()

    def test_it_ends_with_its_process_and_not_before(self):
        program = (
            "import sys, time; from catchment.study.run_directory import DirectoryLock\n"
            "lock = DirectoryLock(%r, 'command.lock'); print(1, flush=True); time.sleep(1000)" % self.path
        )
        other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        other.stdout.readline()
        self.assertIn(
            "with pid %d:" % other.pid, self.refused(run_directory.DirectoryLock, self.path, *self.USER)
        )
        other.kill()
        other.wait()
        other.stdout.close()
        run_directory.DirectoryLock(self.path, *self.USER).close()

    def test_a_file_of_its_name_that_is_not_a_lock_is_kept(self):
        for text in ("my own text", "node 7 or so", "node x", "node " + "7" * 1000):
            self.put("command.lock", text)
            message = self.refused(run_directory.DirectoryLock, self.path, *self.USER)
            what = self.at("command.lock")
            self.assertEqual(
                message, what + " was not written by Catchment: move it, or choose another directory"
            )
            self.assertEqual(files.read_text(what), text)
        for text in ("", "node 7\n", "node ", "node 7"):
            self.put("command.lock", text)
            run_directory.DirectoryLock(self.path, *self.USER).close()

    def test_those_may_use_it_who_may_write_to_the_directory(self):
        for mode, wanted in ((0o755, 0o600), (0o775, 0o660), (0o777, 0o666), (0o1777, 0o660), (0o700, 0o600)):
            os.chmod(self.path, mode)
            run_directory.DirectoryLock(self.path, *self.USER).close()
            self.assertEqual(os.stat(self.at("command.lock")).st_mode & 0o7777, wanted, oct(mode))

    def test_readers_cannot_keep_it_from_being_taken(self):
        reader = os.open(self.path, os.O_RDONLY)
        fcntl.flock(reader, fcntl.LOCK_EX | fcntl.LOCK_NB)
        run_directory.DirectoryLock(self.path, *self.USER).close()
        os.close(reader)


if __name__ == "__main__":
    unittest.main()
