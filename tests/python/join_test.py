#!/usr/bin/env python3
"""join(master=...) of a program that no worker has started, with a stand-in for catchment_worker."""
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

CELLS = """
import array, os, signal, sys
sys.path.insert(0, %r)
import catchment
print("before join", flush=True)
worker = catchment.join({"w": memoryview(array.array("f", [0.0] * 4))}, 8, master="node0:7000")
%s
print("after the loop", flush=True)
"""
LOOP = """for samples in worker.minibatches():
    worker.gradient[0] = worker.weights[0]; worker.step(samples[0])
"""
# Does the daemon's half of proto/attach.proto for three steps, and says what it is sent.
WORKER = """#!%s
import array, contextlib, mmap, os, socket, struct, subprocess, sys
sys.path.insert(0, %r)
from catchment import _messages

def say(*words):
    print("worker:", *words, flush=True)

def receive():
    try:
        data = ours.recv(100000)
    except ConnectionResetError:  # the program has left messages unread
        data = ours.recv(100000)
    return _messages.decode(_messages.FROM_PROGRAM, data) if data else (None, None)

def send(kind, **fields):
    with contextlib.suppress(BrokenPipeError):  # a program that fails may have ended
        ours.send(_messages.encode(_messages.TO_PROGRAM, kind, fields))

master, program = sys.argv[1:]
say(master)
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
memories = []
for name, size in (("weights", 16), ("gradient", 16), ("plan", 64 + 64 * 24)):
    fd = os.memfd_create("catchment-" + name)
    os.ftruncate(fd, size)
    memories.append((fd, mmap.mmap(fd, size)))
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind("")
listener.listen()
shell = subprocess.Popen(["/bin/sh", "-c", program[len("--program="):]], env=dict(
    os.environ, CATCHMENT_ATTACH="97,98,99,100", CATCHMENT_ATTACH_ADDRESS=listener.getsockname()[1:].decode()))
connection = listener.accept()[0]
fds = array.array("i", [theirs.fileno()] + [fd for fd, _ in memories])
connection.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds.tobytes())])
connection.close()
theirs.close()
say("hello", receive()[1]["tensors"])
send("welcome", job="job", batch_size=2, traces=True)
plan = memories[2][1]
struct.pack_into("=4Q", plan, 0, 3, 0, 64, 24)
for step in (1, 2, 3):
    struct.pack_into("=2Q2I", plan, 64 + 24 * (step - 1), step, 2, step + 10, 0)
kind = "done"
for step in (1, 2, 3):
    struct.pack_into("=f", memories[0][1], 0, step / 2)
    send("begin", step=step)
    send("here", values=4)
    kind, fields = receive()
    while kind == "span":
        say("span", fields["name"], "of thread", fields["thread"], "ends after it begins:",
            fields["end"] >= fields["begin"])
        kind, fields = receive()
    if kind != "done":
        break
    say("step", fields["step"], "loss", fields["loss"], "gradient", struct.unpack_from("=f", memories[1][1])[0], *fields.get("metrics", []))
say("last message", kind, fields.get("why", "") if fields else "")
if kind == "done":
    struct.pack_into("=Q", plan, 8, 4)
    send("stop", why="the job is over")
say("shell", shell.wait())
"""
# As under a seccomp filter of a container (x86-64): the filter makes memfd_create fail with ENOSYS.
WITHOUT_MEMFD = """
import ctypes, os, struct, sys
sys.path.insert(0, %r)
from catchment import _plan
lines = ((0x20, 0, 0, 0), (0x15, 0, 1, 319), (0x06, 0, 0, 0x50000 | 38), (0x06, 0, 0, 0x7fff0000))
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
kernel = ctypes.CDLL(None)
assert kernel.prctl(38, 1, 0, 0, 0) == 0
assert kernel.prctl(22, 2, ctypes.byref(Filter(len(lines), ctypes.addressof(code)))) == 0
try:
    os.memfd_create("any")
    sys.exit("the filter has no effect")
except OSError:
    pass
copy = _plan.PlanCopy(64 + 24)
copy.write((1, 24, 1, 0, [(64, struct.pack("=2Q2I", 1, 2, 7, 8))]))
reader = _plan.Plan.__new__(_plan.Plan)
reader.__setstate__(copy.__getstate__())  # as unpickling does in another process
print(list(reader.samples(1)))
"""
TRAINED = ["worker: step 1 loss 11.0 gradient 0.5", "worker: step 2 loss 12.0 gradient 1.0",
           "worker: step 3 loss 13.0 gradient 1.5", "worker: last message done "]


OTHER_USER = 65534


class JoinTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.environment = {"PATH": self.directory.name + ":/usr/bin:/bin"}
        self.python = os.path.abspath("python")
        self.write("catchment_worker", WORKER % (sys.executable, self.python))

    def write(self, name, text):
        path = os.path.join(self.directory.name, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def run_python(self, *arguments, text=None):
        done = subprocess.run([sys.executable, "-B", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT,
                              text=True, env=self.environment, input=text)
        return done.stdout

    def cells(self, loop=LOOP, package=None):
        return CELLS % (package or self.python, loop)

    def check_trained(self, output):
        lines = [line for line in output.splitlines() if "worker: hello" not in line]
        self.assertEqual(lines, ["before join", "worker: --master=node0:7000", *TRAINED, "worker: shell 0",
                                 "after the loop"], output)

    def test_attaches_this_very_process_however_it_was_started(self):
        program = self.write("a program.py", self.cells())
        self.check_trained(self.run_python(program))
        self.check_trained(self.run_python("-c", self.cells()))
        self.check_trained(self.run_python("-", text=self.cells()))
        imports, rest = self.cells().split("print(", 1)
        self.check_trained(self.run_python("-", text="exec(%r)\nexec(%r)\n" % (imports, "print(" + rest)))

    def test_error_at_a_prompt_does_not_end_the_worker(self):
        fails_once = LOOP.replace("worker.step", "samples[0] != 12 or undefined; worker.step")
        output = self.run_python("-i", "-q", text=self.cells(fails_once + "\n" + LOOP))
        self.assertIn("NameError", output)
        for line in [*TRAINED, "worker: shell 0", "after the loop"]:
            self.assertIn(line, output)
        # Without a prompt it does.
        output = self.run_python("-", text=self.cells(fails_once))
        self.assertIn("worker: last message failed NameError: name 'undefined' is not defined", output)

    def test_metrics_are_sent_with_the_step(self):
        logs = 'worker.log({"norm": samples[0], "one": True}); samples[0] > 11 or worker.log({"norm": 1}); worker.step'
        output = self.run_python("-", text=self.cells(LOOP.replace("worker.step", logs)))
        one = "{'name': 'one', 'sum': 1.0, 'count': 1}"
        for value, sum, count in ((11, 12.0, 2), (12, 12.0, 1), (13, 13.0, 1)):
            self.assertRegex(output, r"loss %s.0 gradient \S+ {'name': 'norm', 'sum': %s, 'count': %s} %s\n" %
                             (value, sum, count, one))

    def test_skipped_step_has_a_gradient_of_zeros(self):
        loop = LOOP.replace("worker.step(samples[0])", "worker.skip() if samples[0] == 12 else "
                                                       "worker.step(samples[0])")
        output = self.run_python("-", text=self.cells(loop))
        skipped = "worker: step 2 loss 11.0 gradient 0.0\n"
        self.assertIn(skipped, output)
        self.check_trained(output.replace(skipped, TRAINED[1] + "\n"))

    def test_spans_are_sent_as_they_end(self):
        loop = LOOP.replace("worker.gradient", 'with worker.span("augment"): pass\n    worker.gradient', 1)
        output = self.run_python("-", text=self.cells(loop))
        self.assertEqual(len(re.findall(r"worker: span augment of thread \d+ ends after it begins: True\n",
                                        output)), 3, output)
        self.assertIn("worker: last message done", output)

    def test_metrics_that_cannot_be_written_end_the_program(self):
        for metrics, why in (("{'loss': float('inf')}", "inf for the metric loss, but a metric must be one "
                                                        "finite number"),
                             ("{'a': '1'}", "'1' for the metric a"), ("{'a': [1, 2]}", "[1, 2] for the "
                                                                                       "metric a"),
                             ("{'': 1}", "the name '': names have 1 to 100 bytes"),
                             ("{101 * 'x': 1}", "names have 1 to 100 bytes"),
                             ("{'a\\n': 1}", "the name 'a\\n'"),
                             ("{str(i): i for i in range(65)}", "one name too many, 64, after 64 others"),
                             ("5", "int: give it a dict")):
            with self.subTest(why):
                output = self.run_python("-", text=self.cells(LOOP.replace("worker.step", "worker.log(%s); "
                                                                                          "worker.step" %
                                                                           metrics)))
                self.assertRegex(output,
                                 "worker: last message failed (Value|Type)Error: worker.log.. got .*" +
                                 re.escape(why))

    def test_statistic_that_is_named_like_a_parameter_ends_the_program(self):
        output = self.run_python("-", text=self.cells("worker._attachment.statistic('w', bytes(4))"))
        self.assertIn("worker: last message failed ValueError: the statistic w of a batch norm is also a "
                      "parameter of the model",
                      output)

    def test_joining_again_ends_the_worker_of_before(self):
        join = self.cells().splitlines()[5]
        assert "join(" in join
        output = self.run_python("-", text=self.cells(join + "\n" + LOOP))
        lines = [line for line in output.splitlines() if line.startswith("worker: ") and "hello" not in line]
        self.assertEqual(lines, ["worker: --master=node0:7000"] * 2 + [
            "worker: last message failed the program has called join() again", "worker: shell 0", *TRAINED,
            "worker: shell 0"], output)

    def test_worker_notices_the_end_of_the_process(self):
        dies = LOOP.replace("worker.step", "os.kill(os.getpid(), signal.SIGKILL); worker.step")
        output = self.run_python("-", text=self.cells(dies))
        self.assertEqual(output.splitlines()[-2:], ["worker: last message None ", "worker: shell 0"], output)

    def test_takes_the_worker_of_the_wheel_before_one_on_the_path(self):
        package = os.path.join(self.directory.name, "site", "catchment")
        os.makedirs(package + "/_bundle/bin")
        for name in os.listdir(self.python + "/catchment"):
            if name.endswith(".py"):
                with open(os.path.join(self.python, "catchment", name)) as file:
                    self.write("site/catchment/" + name, file.read())
        self.write("site/catchment/_bundle/bin/catchment_worker", "#!/bin/sh\necho the wheel\\'s\nexit 3\n")
        output = self.run_python("-", text=self.cells(package=os.path.dirname(package)))
        self.assertTrue(output.startswith("before join\nthe wheel's\n"), output)
        self.assertIn("catchment_worker, started by join(master=...), ended with exit code 3", output)

    def test_says_what_is_missing(self):
        os.unlink(os.path.join(self.directory.name, "catchment_worker"))
        self.assertIn("needs the program catchment_worker", self.run_python("-", text=self.cells()))
        text = self.cells().replace(', master="node0:7000"', "")
        self.assertIn("this program was not started by a Catchment worker", self.run_python("-", text=text))

    def test_takes_no_descriptors_from_another_user(self):
        user = os.geteuid()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(listener.close)
        listener.bind("")
        try:
            os.seteuid(OTHER_USER)
        except OSError:
            self.skipTest("becoming another user needs root")
        listener.listen()
        os.seteuid(user)
        self.environment["CATCHMENT_ATTACH"] = "97,98,99,100"  # closed by a launcher
        self.environment["CATCHMENT_ATTACH_ADDRESS"] = listener.getsockname()[1:].decode()
        output = self.run_python("-", text=self.cells())
        self.assertIn("user %d listens at the address of the worker that started this program, which user %d "
                      "runs" %
                      (OTHER_USER, user), output)

    def test_copies_of_the_plan_need_no_memfd(self):
        output = self.run_python(self.write("copy.py", WITHOUT_MEMFD % self.python))
        self.assertEqual(output, "[7, 8]\n")

    def test_describes_itself_where_it_is_asked_to(self):
        self.environment["CATCHMENT_DESCRIBE"] = self.directory.name
        self.assertEqual(self.run_python("-", text=self.cells()), "before join\n")
        self.assertTrue(os.path.exists(self.directory.name + "/model.textproto"))


if __name__ == "__main__":
    unittest.main()
