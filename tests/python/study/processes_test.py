#!/usr/bin/env python3
"""Tests child processes and the signals of a command."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from catchment.study import processes
from catchment.study.errors import Refused


class ProcessesTest(unittest.TestCase):
    def test_arguments_are_quoted_for_a_shell(self):
        args = ["a/b", "--out=x,y:z+@%", "", "it's", "a b", "$HOME", "ä", "--set=data={a: 1}"]
        command = processes.shell_command("printf '%s|'", args)
        self.assertTrue(command.startswith("printf '%s|' a/b --out=x,y:z+@% '' 'it'\\''s' 'a b' '$HOME' "))
        self.assertEqual(subprocess.check_output(["sh", "-c", command]).decode(), "|".join(args) + "|")

    def test_control_characters_are_escaped_for_a_shell(self):
        args = ["a\x1b[31m\n'\\t", "\u202e", "\udcff"]
        command = processes.shell_command("printf '%s|'", args)
        self.assertTrue(command.isascii() and command.isprintable(), command)
        printed = subprocess.check_output(["bash", "-c", command], env=dict(os.environ, LC_ALL="C.UTF-8"))
        self.assertEqual(os.fsdecode(printed), "|".join(args) + "|")

    def test_ends_are_described(self):
        for code, text in ((0, "exit code 0"), (3, "exit code 3"), (-9, "killed by SIGKILL (9)")):
            self.assertEqual(processes.describe_end(code), text)

    def test_the_last_lines_are_those_that_are_not_empty(self):
        self.assertEqual(processes.last_lines("a\n \nb\nc\n\n", 2), ["b", "c"])
        self.assertEqual(processes.last_lines("", 2), [])

    def test_a_command_has_its_output_in_a_log_and_an_end(self):
        with tempfile.TemporaryDirectory() as root:

            def run(line, seconds=600):
                return processes.execute(["/bin/sh", "-c", line], root + "/log", seconds)

            self.assertEqual(run("echo a; echo b >&2; exit 3"), (3, "a\nb\n"))
            self.assertEqual(run("cat; echo c"), (0, "c\n"), "it has no input, and the log begins again")
            self.assertIsNone(run("exec sleep 1000", 0.1)[0])
            with self.assertRaisesRegex(Refused, "cannot start none: %s/none: No such file" % root):
                processes.execute([root + "/none"], root + "/log", 1)

    def test_signals_are_received_in_calls_and_not_by_children(self):
        with processes.SignalWaiter() as signals:
            self.assertEqual(signals.wait(0), 0)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU):
                os.kill(os.getpid(), number)
                self.assertEqual(signals.wait(600), number)
            child = processes.start("sleep", ["sleep", "100"], subprocess.DEVNULL, None)
            self.assertEqual(os.getpgid(child.pid), child.pid, "Ctrl-C does not reach it")
            child.send_signal(signal.SIGINT)
            self.assertEqual(signals.wait(600), signal.SIGCHLD)
            self.assertEqual(child.wait(600), -signal.SIGINT, "its signals are not blocked")
            os.kill(os.getpid(), signal.SIGTERM)  # ends nothing any more

    def test_signals_that_the_process_ignores_are_not_awaited(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with processes.SignalWaiter() as signals:
                os.kill(os.getpid(), signal.SIGHUP)
                self.assertEqual(signals.wait(0.05), 0)
        finally:
            signal.signal(signal.SIGHUP, before)

    def test_children_end_with_a_process_that_is_killed(self):
        program = (
            "import subprocess, time; from catchment.study.processes import start\n"
            "print(start('sleep', ['sleep', '1000'], subprocess.DEVNULL, None).pid, flush=True)\n"
            "time.sleep(1000)"
        )
        parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        parent.stdout.close()
        deadline = time.monotonic() + 120
        while self.runs(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.runs(child):
            os.kill(child, signal.SIGKILL)
            self.fail("it runs without its parent")

    def runs(self, pid):
        try:
            with open("/proc/%d/stat" % pid) as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False


if __name__ == "__main__":
    unittest.main()
