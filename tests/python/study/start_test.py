#!/usr/bin/env python3
"""Tests how the program `catchment` starts the commands that are in Python (cli/study.cc)."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import reference

# Prints its arguments, and the program that its commands use.
PACKAGE = """import os
def main(args):
    print([*args, os.environ["CATCHMENT_BINARY"]])
    return 7
"""
# A Python of another version, as far as a program can tell.
OLD = """#!/bin/sh
shift
exec %s -c 'import sys; sys.version_info = (3, 7, 0); exec(sys.argv.pop(1))' "$@"
"""


class StartTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = os.path.realpath(directory.name)
        self.binary = os.environ["CATCHMENT_BINARY"]

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def run_binary(self, *args, **environment):
        environment = {"CATCHMENT_PYTHON": sys.executable, **os.environ, **environment}
        end = subprocess.run([self.binary, *args], env=environment, capture_output=True, encoding="utf-8")
        return end.returncode, end.stdout, end.stderr

    def assertRefused(self, words, **environment):
        code, out, err = self.run_binary("compare", "--help", **environment)
        self.assertEqual((code, out), (1, ""))
        self.assertTrue(err.startswith("catchment compare: "), err)
        self.assertIn(words, err)

    def move_alone(self):
        """Makes the test use a copy of the binary that has nothing beside it."""
        os.mkdir(self.directory + "/bin")
        self.binary = shutil.copy(os.path.realpath(self.binary), self.directory + "/bin")

    def test_commands_find_their_package(self):
        for command in ("advise", "compare", "diff", "report", "runs", "simulate", "tune", "watch"):
            code, out, err = self.run_binary(command, "--help")
            self.assertEqual((code, err), (0, ""))
            self.assertTrue(out.startswith("catchment " + command), out)

    def test_arguments_are_passed_on(self):
        self.move_alone()
        for name, text in (("__init__.py", ""), ("study/__init__.py", ""), ("study/__main__.py", PACKAGE)):
            self.write("python/catchment/" + name, text)
        args = ["simulate", "a b", "", "--x='*'", "$HOME", "ä\n"]
        for given, expected in ((None, self.binary), ("/other", "/other")):
            environment = {"CATCHMENT_BINARY": given} if given else {}
            with mock.patch.dict(os.environ):
                os.environ.pop("CATCHMENT_BINARY")
                self.assertEqual(self.run_binary(*args, **environment), (7, "%s\n" % [*args, expected], ""))

    def test_a_door_needs_no_python(self):
        command = [self.binary, "simulate", "--door"]
        environment = dict(os.environ, CATCHMENT_PYTHON="/nothing")
        out = subprocess.check_output(command, input=b'{"about": true}\n', env=environment)
        self.assertIn(b'"processors"', out)

    def test_without_python_there_is_a_remedy(self):
        self.assertRefused("cannot start /nothing: install Python 3.8 or newer", CATCHMENT_PYTHON="/nothing")

    def test_an_old_python_is_named(self):
        old = self.write("python3", OLD % sys.executable)
        self.assertRefused(" is 3.7: set CATCHMENT_PYTHON to a newer one", CATCHMENT_PYTHON=old)

    def test_a_program_without_its_package_says_so(self):
        self.move_alone()
        self.assertRefused("its Python package, catchment/study, is not beside this program")


if __name__ == "__main__":
    reference.use_binary()
    unittest.main()
