#!/usr/bin/env python3
"""Commands on terminals of several widths, one of which is resized: no line is wider than the terminal, and
nothing is left of a line that was redrawn. The terminal is emulated: it breaks lines again when its width
changes, as tmux does."""

import concurrent.futures
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

PROGRAM = os.path.abspath("cli/catchment")
DAEMONS = [os.path.abspath(path) for path in ("server/catchment_server", "worker/catchment_worker")]
JOB = os.path.abspath("examples/drawn_digits.textproto")
WIDTHS = (40, 80, 120)
PATIENCE = 120  # seconds; a command that prints nothing for so long has failed
BARS = "━─"
SEQUENCE = re.compile("\x1b\\[([?\\d;]*)([A-Za-z])")
# A small network: several polls pass in each epoch of many samples, few in a comparison.
SMALL = ["--set=data.drawn_digits={train_samples: 320 test_samples: 64}", "--set=batch_size=32"]


class Screen:
    """Lines as long as they were printed, which the terminal breaks every `width` columns."""

    def __init__(self, width):
        self.width, self.lines, self.row, self.column = width, [""], 0, 0
        self.wide, self._began, self._saved, self._rest = [], {}, None, ""

    def feed(self, text):
        text, i = self._rest + text, 0
        self._rest = ""
        while i < len(text):
            if text[i] == "\x1b":
                found = SEQUENCE.match(text, i)
                if not found:
                    self._rest = text[i:]  # The rest is in the next block.
                    return
                self._control(*found.groups())
                i = found.end()
                continue
            self._print(text[i])
            i += 1

    def _print(self, c):
        if c == "\r":
            self.column = self._start()
        elif c == "\n":
            self._end_line()
            self.row, self.column = self.row + 1, 0
            if self.row == len(self.lines):
                self.lines.append("")
        else:
            line = self.lines[self.row]
            if self.column == 0:
                self._began[self.row] = self.width
            self.lines[self.row] = line[: self.column].ljust(self.column) + c + line[self.column + 1 :]
            self.column += 1
            if self._began.get(self.row) == self.width == self.column - 1:
                self.wide.append((self.width, self.row))

    def _start(self):
        """Returns the first column of the cursor's row; at the right edge it is still in the row before."""
        return max(0, self.column - 1) // self.width * self.width if self.column else 0

    def _end_line(self):
        """Replaces the rows of lines that were too wide by their text."""
        self.wide = [
            (width, self.lines[row] if row == self.row else row) if isinstance(row, int) else (width, row)
            for width, row in self.wide
        ]

    def _control(self, argument, kind):
        if kind == "K":
            end = self._start() + self.width
            line = self.lines[self.row]
            rest = line[end:]
            self.lines[self.row] = line[: self.column] + (" " * (end - self.column) + rest if rest else "")
        elif kind == "J":
            del self.lines[self.row + 1 :]
            self.lines[self.row] = self.lines[self.row][: self.column]
        elif kind == "A":
            for _ in range(int(argument or 1)):
                start = self._start()
                if start:
                    self.column -= self.width
                elif self.row:
                    self.row -= 1
                    self.column = max(0, len(self.lines[self.row]) - 1) // self.width * self.width
        elif kind == "H":
            self.row = self.column = 0
        elif argument == "?1049":
            if kind == "h":
                self._saved, self.lines, self.row, self.column = (self.lines, self.row), [""], 0, 0
            else:
                (self.lines, self.row), self.column = self._saved, 0

    def too_wide(self):
        """Returns the lines that were wider than the terminal, except single words, such as paths."""
        self._end_line()
        return [
            (width, line)
            for width, line in self.wide
            if isinstance(line, str) and " " in re.sub(r"^ *(-> )?| *\\?$", "", line)
        ]


class Terminal:
    """A command on a terminal."""

    def __init__(self, *args, width=80, cwd=None, **environment):
        master, slave = pty.openpty()
        self._master, self.screen, self.text = master, Screen(width), ""
        self._set_width(width)
        environment = {**os.environ, "TERM": "xterm-256color", **environment}
        self.process = subprocess.Popen(
            args,
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={name: value for name, value in environment.items() if value is not None},
        )
        os.close(slave)

    def resize(self, width):
        """Resizes the terminal while the command waits, since a line that it has printed or is about to print
        for the width before may be too wide, or be left."""
        while not self._stop_waiting():
            self.process.send_signal(signal.SIGCONT)
            time.sleep(0.01)
        self._set_width(width)
        self.process.send_signal(signal.SIGCONT)

    def _stop_waiting(self):
        """Stops the command. Returns whether it is still in a wait that began before, and all that it has
        printed has been read; a command that waits for room to print leaves something to read."""
        while self._prints(0):
            self.read()
        call = self._call()
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return call[0].isdigit() and call == self._call() and not self._prints(0)

    def _call(self):
        """Returns the system call in which the main thread is blocked, with its arguments: proc(5)."""
        with open("/proc/%d/syscall" % self.process.pid) as file:
            return file.read()

    def _prints(self, seconds):
        return bool(select.select([self._master], [], [], seconds)[0])

    def _set_width(self, width):
        self.screen.width = width
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))

    def read(self):
        """Reads what is printed next. Returns false at the end."""
        if not self._prints(PATIENCE):
            raise AssertionError("nothing is printed any more after %r" % self.text[-500:])
        block = b""
        with contextlib.suppress(OSError):  # Linux's way to say that the other side is closed
            block = os.read(self._master, 65536)
            # A character may be in two blocks.
            while block and block[-1] & 0x80 and not self._is_whole(block):
                block += os.read(self._master, 1)
        self.text += block.decode()
        self.screen.feed(block.decode())
        return bool(block)

    @staticmethod
    def _is_whole(block):
        try:
            block.decode()
        except UnicodeDecodeError:
            return False
        return True

    def read_until(self, pattern):
        """Reads until the pattern is in what is printed from here on."""
        begin = len(self.text)
        while not re.search(pattern, self.text[begin:]):
            if not self.read():
                raise AssertionError("the command has ended: %r" % self.text[-2000:])

    def end(self):
        """Reads to the end, and returns the exit code."""
        while self.read():
            pass
        os.close(self._master)
        return self.process.wait()


class TerminalTest(unittest.TestCase):
    def setUp(self):
        self.scratch = os.path.join(os.environ["TEST_TMPDIR"], self.id().rpartition(".")[2])
        os.makedirs(self.scratch)

    def terminal(self, *args, **options):
        terminal = Terminal(PROGRAM, *args, cwd=self.scratch, **options)
        self.addCleanup(terminal.process.wait)
        self.addCleanup(terminal.process.kill)
        return terminal

    def assert_fits(self, terminal):
        self.assertEqual(terminal.screen.too_wide(), [])

    def assert_nothing_is_left(self, terminal):
        """No bar is on the screen any more."""
        left = [line for line in terminal.screen.lines if any(c in line for c in BARS)]
        self.assertEqual(left, [], terminal.text)

    def test_train_and_status_while_the_terminal_is_resized(self):
        for width in WIDTHS:
            with self.subTest(width):
                out = "o%d" % width
                endless = [*SMALL, "--set=epochs=1000000"]
                train = self.terminal("train", JOB, *endless, "--out=" + out, width=width)
                try:
                    self.check_train(train, out, width)
                finally:
                    train.process.kill()

    def check_train(self, train, out, width):
        train.read_until("[%s]" % BARS)
        for other in (40, 120, 40, 80, width):
            train.resize(other)
            train.read_until("[%s]" % BARS)
        while "test accuracy" not in train.text:
            self.assertTrue(train.read(), train.text)
        self.check_status(out, width)
        train.process.send_signal(signal.SIGINT)
        self.assertEqual(train.end(), 128 + signal.SIGINT)
        self.assert_fits(train)
        self.assert_nothing_is_left(train)
        screen = "\n".join(train.screen.lines)
        summary = re.search(r"\n\n((?: .*\n)+)(To resume|\nwarnings\n)", screen)
        self.assertTrue(summary, screen)
        names = re.findall(r"(?m)^  (\w+)", summary.group(1))
        self.assertEqual(names, ["test", "outcome", "trained", "time", "weights"], screen)
        self.assertNotIn("is worker", screen)

    def check_status(self, out, width):
        """Checks the status of the running job: once, watched while the terminal is resized, in a pipe."""
        once = self.terminal("status", out, width=width)
        self.assertEqual(once.end(), 0, once.text)
        self.assert_fits(once)
        self.assertIn("\x1b[1mdrawn_digits", once.text)
        watch = self.terminal("status", out, "--watch=0.1", width=width)
        for other in (40, 120, width):
            watch.resize(other)
            watch.read_until("rate +[▁▂▃▄▅▆▇█]{2}")
        watch.process.send_signal(signal.SIGINT)
        self.assertEqual(watch.end(), 128 + signal.SIGINT)
        self.assert_fits(watch)
        piped = subprocess.run(
            [PROGRAM, "status", out], cwd=self.scratch, capture_output=True, text=True, check=True
        ).stdout
        for absent in ("\x1b", "…", "no room"):
            self.assertNotIn(absent, piped)
        self.assertRegex(piped, r"device\n +\d.*cpu: oneDNN")

    def test_compare_while_the_terminal_is_resized(self):
        args = [
            "compare",
            JOB,
            "--algorithms=sync,downpour",
            "--workers=2",
            "--seeds=1",
            "--search=none",
            "--out=c",
        ]
        compare = self.terminal(*args, *SMALL, "--budget=samples:16000")
        for width in (40, 120, 40):
            compare.read_until("[%s]" % BARS)
            compare.resize(width)
        self.assertEqual(compare.end(), 0, compare.text)
        self.assert_fits(compare)
        self.assert_nothing_is_left(compare)
        self.assertNotIn("is worker", compare.text)

    def test_tables_stay_aligned(self):
        """Each value of a table that does not fit is still below the name of its column."""
        values = {"compensation at most": "0 B", "optimizer state": r"[\d.]+ MB", "total": r"[\d.]+ MB"}
        for width in WIDTHS:
            validate = self.terminal("validate", JOB, width=width)
            self.assertEqual(validate.end(), 0, validate.text)
            self.assert_fits(validate)
            lines = validate.screen.lines
            begin = next(i for i, line in enumerate(lines) if line.startswith("memory of each server"))
            end = next(i for i, line in enumerate(lines) if line.startswith("memory of each worker"))
            for name, value in values.items():
                with self.subTest(name, width=width):
                    head = next(i for i in range(begin, end) if re.search(r"  %s(  |$)" % name, lines[i]))
                    right = lines[head].index("  " + name) + 2 + len(name)
                    self.assertRegex(lines[head + 1][:right], "^ +0  .*%s$" % value)

    def test_the_help_of_every_command_fits(self):
        help = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
        names = re.findall(r"(?m)^  (?!catchment)(\w+) ", help)
        self.assertIn("compare", names)
        programs = [[PROGRAM], *([PROGRAM, name] for name in names), *([path] for path in DAEMONS)]
        cases = [(width, [*program, "-h"]) for width in WIDTHS for program in programs]
        cases += [(WIDTHS[0], [*program, "--help"]) for program in programs]

        def run(case):
            width, args = case
            terminal = Terminal(*args, width=width, cwd=self.scratch)
            return terminal, terminal.end()

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for (width, args), (terminal, code) in zip(cases, pool.map(run, cases)):
                with self.subTest(args=args, width=width):
                    self.assertEqual(code, 0, terminal.text)
                    self.assert_fits(terminal)
                    if args[-1] == "-h" and len(args) > 2 and width == 80:
                        self.assertLessEqual(len(terminal.screen.lines), 32, terminal.text)

    def test_the_help_in_a_pipe_has_80_columns_and_groups(self):
        help = subprocess.run(
            [PROGRAM, "compare", "--help"], capture_output=True, text=True, check=True
        ).stdout
        self.assertLessEqual(max(map(len, help.splitlines())), 80)
        flags, slurm, kubernetes = (
            help.index(words) for words in ("\nFlags:\n", "\nRuns on Slurm:\n", "\nRuns on Kubernetes:\n")
        )
        self.assertLess(flags, slurm)
        self.assertLess(slurm, help.index("\n  --partition"))
        self.assertLess(help.index("\n  --partition"), kubernetes)
        self.assertLess(kubernetes, help.index("\n  --storage_class"))

    def test_terminals_without_colours_or_a_cursor_get_plain_text(self):
        for environment, sequences in (
            (dict(NO_COLOR="1"), {"K"}),
            (dict(TERM="dumb"), set()),
            (dict(TERM=None, COLUMNS="0"), set()),
        ):
            with self.subTest(environment):
                train = self.terminal(
                    "train", JOB, *SMALL, "--set=epochs=40", "--overwrite", "--out=o", **environment
                )
                self.assertEqual(train.end(), 0, train.text)
                self.assertEqual({kind for _, kind in SEQUENCE.findall(train.text)}, sequences)
                self.assert_fits(train)
        plain = self.terminal("status", "o", TERM=None)
        self.assertEqual(plain.end(), 0, plain.text)
        self.assert_fits(plain)
        zero = self.terminal("status", "o", width=0)
        zero.screen.width = 80
        self.assertEqual(zero.end(), 0, zero.text)
        self.assert_fits(zero)

    def test_closed_streams_do_no_harm(self):
        command = """"$0" train "$@" --out=o >&- 2>&- && "$0" status o >&- 2>&-
"$0" train -h >&-
"$0" compare -h >&- 2>/dev/null
echo end"""
        ended = subprocess.run(
            ["bash", "-c", command, PROGRAM, JOB, *SMALL], cwd=self.scratch, capture_output=True, text=True
        )
        self.assertEqual(ended.stdout, "end\n", ended.stderr)
        self.assertNotIn("Traceback", ended.stderr)
        # No file has the place of a stream.
        found = subprocess.run(
            ["grep", "-rl", "training drawn_digits", "o"], cwd=self.scratch, capture_output=True
        )
        self.assertEqual(found.stdout, b"")
        self.assertTrue(os.path.exists(self.scratch + "/o/summary.json"), ended.stderr)


if __name__ == "__main__":
    unittest.main()
