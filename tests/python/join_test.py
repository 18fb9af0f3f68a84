#!/usr/bin/env python3
"""join(master=...) of a program that was not started by a worker, with a worker that only says how it was started."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

PROGRAM = """
import array, sys
sys.path.insert(0, sys.argv[1])
import catchment
print("before join", flush=True)
catchment.join({"w": memoryview(array.array("f", [0.0] * 4))}, 8, master="node0:7000")
print("after join", flush=True)
"""
# Starts the program as a worker does, with descriptors that are none.
WORKER = """#!/bin/sh
for word in "$0" "$@"; do echo "worker: $word"; done
[ -z "$AGAIN" ] || exit 1
export CATCHMENT_ATTACH=97,98,99 AGAIN=1
sh -c "${2#--program=}"
"""


class JoinTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.program = self.write("a program.py", PROGRAM)
        self.environment = {"PATH": self.directory.name + ":/usr/bin:/bin"}
        self.python = os.path.abspath("python")

    def write(self, name, text):
        path = os.path.join(self.directory.name, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def run_program(self, *command, **more):
        done = subprocess.run([sys.executable, "-B", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=self.environment, **more)
        return done.stdout

    def test_becomes_a_worker_that_starts_the_program_anew(self):
        self.write("catchment_worker", WORKER)
        output = self.run_program(self.program, self.python, "it's one")
        lines = output.splitlines()
        self.assertEqual(lines[:3], ["before join", "worker: %s/catchment_worker" % self.directory.name,
                                     "worker: --master=node0:7000"], output)
        self.assertIn("'it'\"'\"'s one'", lines[3])
        self.assertEqual(lines[4], "before join", output)
        # Its worker has given it no descriptors: it has tried to attach, and has started no further worker.
        self.assertEqual(sum(line.startswith("worker: --master") for line in lines), 1)
        self.assertIn("Bad file descriptor", lines[-1])

    def test_takes_the_worker_of_the_wheel_before_one_on_the_path(self):
        self.write("catchment_worker", "#!/bin/sh\necho another\n")
        package = os.path.join(self.directory.name, "site", "catchment")
        os.makedirs(package + "/_bundle/bin")
        for name in os.listdir(self.python + "/catchment"):
            if name.endswith(".py"):
                with open(os.path.join(self.python, "catchment", name)) as file:
                    self.write("site/catchment/" + name, file.read())
        self.write("site/catchment/_bundle/bin/catchment_worker", "#!/bin/sh\necho the wheel\\'s\n")
        output = self.run_program(self.program, os.path.dirname(package))
        self.assertEqual(output, "before join\nthe wheel's\n")

    def test_says_what_is_missing(self):
        self.assertIn("needs the program catchment_worker", self.run_program(self.program, self.python))
        self.write("catchment_worker", "#!/bin/sh\n")
        with open(self.program) as file:
            text = "import sys; sys.argv = ['', %r]\n" % self.python + file.read()
        self.assertIn("put the program into a file", self.run_program("-i", "-q", input=text))

    def test_describes_itself_where_it_is_asked_to(self):
        self.environment["CATCHMENT_DESCRIBE"] = self.directory.name
        self.assertEqual(self.run_program(self.program, self.python), "before join\n")
        self.assertTrue(os.path.exists(self.directory.name + "/model.textproto"))


if __name__ == "__main__":
    unittest.main()
