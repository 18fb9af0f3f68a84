#!/usr/bin/env python3
"""join(master=...) of a program that no worker has started, with a stand-in for catchment_worker."""

import copy
import os
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "python")
from catchment import _vectors

numpy = _vectors.numpy  # None if it is not installed, as in `bazel test`

CELLS = """
import array, os, signal, sys
sys.path.insert(0, %r)
import catchment
print("before join", flush=True)
values = lambda *numbers: memoryview(array.array("f", numbers))
worker = catchment.join({"w": values(0, 0, 0, 0)}, 8, master="node0:7000")
%s
print("after the loop", flush=True)
"""
LOOP = """for samples in worker.minibatches():
    worker.gradient[0] = worker.weights[0]; worker.step(samples[0])
"""
# Each writes a gradient that begins with the first weight.
ASSIGNMENTS = [
    'worker.gradients["w"] = values(worker.weights[0], 0, 0, 0)',
    "worker.gradient = values(worker.weights[0], 0, 0, 0)",
    'worker.gradients = {"w": values(worker.weights[0], 0, 0, 0)}',
    "worker.gradients.update(w=values(worker.weights[0], 0, 0, 0))",
    'worker.gradients["w"][0] = worker.weights[0]',
    "part = worker.gradient; part[0] = worker.weights[0]; worker.gradient = part",
]
READ_ONLY = [
    'worker.parameters["w"] = values(1, 2, 3, 4)',
    "worker.weights = values(1, 2, 3, 4)",
    "worker.parameters = {}",
    'worker.parameters.update({"w": values(1, 2, 3, 4)})',
    'del worker.parameters["w"]',
    "worker.weights[0] = 1",
    'worker.parameters["w"][0] = 1',
]
if numpy is not None:
    ASSIGNMENTS += [
        'worker.gradients["w"] += values(worker.weights[0], 0, 0, 0)',
        "worker.gradient += values(worker.weights[0], 0, 0, 0)",
        'worker.gradients["w"][...] = worker.parameters["w"]',
        'worker.gradients["w"] = worker.weights[:1].tolist() + [0, 0, 0]',
    ]
    READ_ONLY += [
        'worker.parameters["w"] -= 1',
        "worker.weights *= 0.5",
        'worker.parameters["w"][1:] += 1',
        'worker.parameters["w"].fill(1)',
        "worker.weights.reshape(2, 2).T[0, 0] = 1",
        "import numpy; numpy.subtract(worker.weights, 1, out=worker.weights)",
        "import numpy; numpy.add.at(worker.weights, [0], 1)",
    ]
# Does the daemon's half of proto/attach.proto for three steps or, if join gets a test set, evaluations, and
# says what it is sent.
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
address = listener.getsockname()[1:].decode()
shell = subprocess.Popen(
    ["/bin/sh", "-c", program[len("--program="):]],
    env=dict(os.environ, CATCHMENT_ATTACH="97,98,99,100", CATCHMENT_ATTACH_ADDRESS=address))
connection = listener.accept()[0]
fds = array.array("i", [theirs.fileno()] + [fd for fd, _ in memories])
connection.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds.tobytes())])
connection.close()
theirs.close()
hello = receive()[1]
say("hello", hello["tensors"])
send("welcome", job="job", batch_size=2, traces=True, evaluates=bool(hello.get("test_samples")))
plan = memories[2][1]
struct.pack_into("=4Q", plan, 0, 3, 0, 64, 24)
for step in (1, 2, 3):
    struct.pack_into("=2Q2I", plan, 64 + 24 * (step - 1), step, 2, step + 10, 0)
kind = "done"
for step in (1, 2, 3):
    struct.pack_into("=f", memories[0][1], 0, step / 2)
    if hello.get("test_samples"):
        send("evaluate")
    else:
        send("begin", step=step)
        send("here", values=4)
    kind, fields = receive()
    while kind == "span":
        say("span", fields["name"], "of thread", fields["thread"], "ends after it begins:",
            fields["end"] >= fields["begin"])
        kind, fields = receive()
    if kind == "scored":
        say("scored", fields)
        continue
    if kind != "done":
        break
    gradient = struct.unpack_from("=f", memories[1][1])[0]
    say("step", fields["step"], "loss", fields["loss"], "gradient", gradient, *fields.get("metrics", []))
say("last message", kind, fields.get("why", "") if fields else "")
if kind in ("done", "scored", "left"):
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
TRAINED = [
    "worker: step 1 loss 11.0 gradient 0.5",
    "worker: step 2 loss 12.0 gradient 1.0",
    "worker: step 3 loss 13.0 gradient 1.5",
    "worker: last message done ",
]


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
        done = subprocess.run(
            [sys.executable, "-B", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
            input=text,
        )
        return done.stdout

    def cells(self, loop=LOOP, package=None):
        return CELLS % (package or self.python, loop)

    def check_trained(self, output):
        lines = [line for line in output.splitlines() if "worker: hello" not in line]
        self.assertEqual(
            lines,
            ["before join", "worker: --master=node0:7000", *TRAINED, "worker: shell 0", "after the loop"],
            output,
        )

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
        logs = (
            'worker.log({"norm": samples[0], "one": True}); samples[0] > 11 or worker.log({"norm": 1}); '
            "worker.step"
        )
        output = self.run_python("-", text=self.cells(LOOP.replace("worker.step", logs)))
        one = "{'name': 'one', 'sum': 1.0, 'count': 1}"
        for value, sum, count in ((11, 12.0, 2), (12, 12.0, 1), (13, 13.0, 1)):
            self.assertRegex(
                output,
                r"loss %s.0 gradient \S+ {'name': 'norm', 'sum': %s, 'count': %s} %s\n"
                % (value, sum, count, one),
            )

    def test_skipped_step_has_a_gradient_of_zeros(self):
        loop = LOOP.replace(
            "worker.step(samples[0])", "worker.skip() if samples[0] == 12 else worker.step(samples[0])"
        )
        output = self.run_python("-", text=self.cells(loop))
        skipped = "worker: step 2 loss 11.0 gradient 0.0\n"
        self.assertIn(skipped, output)
        self.check_trained(output.replace(skipped, TRAINED[1] + "\n"))

    def test_each_assignment_writes_the_gradient(self):
        for assignment in ASSIGNMENTS:
            with self.subTest(assignment):
                self.check_trained(
                    self.run_python(
                        "-",
                        text=self.cells(LOOP.replace("worker.gradient[0] = worker.weights[0]", assignment)),
                    )
                )

    def test_a_gradient_that_a_step_does_not_write_is_zero(self):
        loop = LOOP.replace(
            "    worker.gradient[0] = worker.weights[0];",
            "    if samples[0] != 12: worker.gradient[0] = worker.weights[0]\n   ",
        )
        output = self.run_python("-", text=self.cells(loop))
        self.assertIn("worker: step 2 loss 12.0 gradient 0.0\n", output)
        self.assertIn(TRAINED[2], output)

    def fails(self, loop):
        """Returns the exception that ended the program, as the worker's log has it."""
        output = self.run_python("-", text=self.cells(loop))
        return (
            re.search("worker: last message failed (.*)", output).group(1)
            if "last message failed" in output
            else output
        )

    def test_weights_are_read_only(self):
        for statement in READ_ONLY:
            with self.subTest(statement):
                failure = self.fails(LOOP.replace("worker.gradient[0] = worker.weights[0]", statement))
                self.assertRegex(
                    failure, r"^\w+Error: .*write the gradient, worker.gradients\[NAME\] = gradient"
                )

    def test_gradients_that_do_not_fit_end_the_program(self):
        for statement, failure in (
            (
                'worker.gradients["w"] = values(1, 2)',
                r"the gradient of w has shape \(2,\), but the parameter has \(4,\)",
            ),
            ("worker.gradient = values(1, 2)", r"worker.gradient has shape \(4,\), but got \(2,\)"),
            ('worker.gradients["v"] = values(1, 2)', "the job has no parameter 'v': it has 'w'"),
            ("worker.gradients = values(1, 2)", "worker.gradients got memoryview: give it a dict"),
            ('worker.gradients["w"] = "text"', "the gradient of w (has|got) values of type "),
            ('del worker.gradients["w"]', "which cannot be removed"),
        ):
            with self.subTest(statement):
                self.assertRegex(self.fails(statement), failure)

    def test_number_of_right_samples_is_one(self):
        for value in ("2", "2.0", "True", "0"):
            self.check_trained(
                self.run_python("-", text=self.cells(LOOP.replace("samples[0])", "samples[0], %s)" % value)))
            )
        for value in ("0.97", "-1", "3", "float('nan')", "float('inf')", "'2'", "None", "values(1, 0)"):
            with self.subTest(value):
                failure = self.fails(LOOP.replace("samples[0])", "samples[0], %s)" % value))
                self.assertRegex(
                    failure,
                    r"^ValueError: step's second value is a number of samples, from 0 to 2, got .*: "
                    r"worker.step\(loss, \(z.argmax\(1\) == y\).sum\(\)\)",
                )

    def test_warnings_point_at_the_line_of_the_program(self):
        first = self.cells("").count("\n", 0, self.cells("").rindex("\nprint(")) + 1
        for text, line, words in (
            (self.cells(LOOP * 2), first + 2, "the job is over, so this loop has no minibatches"),
            (
                self.cells(LOOP.replace("minibatches()", "minibatches(iter([1, 2]))")),
                first,
                "the stream of samples ended at step 2",
            ),
            (self.scores("(0.5, 1.0)"), first, "evaluate's second value is a number of samples, and got 1.0"),
        ):
            output = self.run_python("-", text=text)
            self.assertIn("<stdin>:%d: UserWarning: %s" % (line, words), output)

    def scores(self, result):
        return self.cells("worker.evaluate(lambda: %s)" % result).replace("}, 8,", "}, 8, 400,")

    def test_scores_are_checked(self):
        output = self.run_python("-", text=self.scores("(0.5, 388.0)"))
        self.assertEqual(
            output.count("worker: scored {'samples': 400, 'loss_sum': 200.0, 'correct': 388}"), 3, output
        )
        self.assertNotIn("Warning", output)
        # It may be a number of samples, as of a sum of floats.
        output = self.run_python("-", text=self.scores("(0.5, 1.0)"))
        self.assertIn(
            "Warning: evaluate's second value is a number of samples, and got 1.0, which is one of 400",
            output,
        )
        right = (
            "evaluate's second value is a number of samples, from 0 to 400, got %s: "
            "return (z.argmax(1) == y).sum()"
        )
        for result, failure in (
            ("(0.5, 0.97)", right % "0.97"),
            ("(0.5, 10 ** 6)", right % "1000000"),
            ("(0.5, -1)", right % "-1"),
            ("(0.5, float('nan'))", right % "nan"),
            ("(388, 0.5)", right % "0.5"),
            ("0.5", "evaluate's function returned 0.5: it returns two"),
            ("(0.5, 3, 4)", "evaluate's function returned (0.5, 3, 4): it returns two numbers"),
            ("(None, 3)", "evaluate's function returned (None, 3): it returns two numbers"),
        ):
            with self.subTest(result):
                output = self.run_python("-", text=self.scores(result))
                self.assertIn("worker: last message failed ValueError: " + failure, output)

    def test_sizes_of_data_sets_are_whole_numbers(self):
        for sizes, name in (
            ("8.5", "join's train_samples"),
            ("0", "join's train_samples"),
            ("-8", "join's train_samples"),
            ("float('nan')", "join's train_samples"),
            ("True", "join's train_samples"),
            ("8, 0.5", "join's test_samples"),
            ("8, -1", "join's test_samples"),
        ):
            with self.subTest(sizes):
                output = self.run_python("-", text=self.cells().replace("}, 8,", "}, %s," % sizes))
                self.assertRegex(
                    output,
                    "ValueError: %s is the number of samples of a data set, a whole number from" % name,
                )

    def test_a_second_loop_after_the_end_is_named(self):
        output = self.run_python("-", text=self.cells(LOOP * 3))
        self.assertEqual(
            output.count("UserWarning: the job is over, so this loop has no minibatches"), 1, output
        )
        output = self.run_python(
            "-", text=self.cells(LOOP.replace("worker.step", "worker.leave(); break; worker.step") + LOOP)
        )
        self.assertNotIn("Warning", output)

    def test_a_process_that_runs_the_programs_file_again_is_named(self):
        program = self.write(
            "spawns.py",
            """
import multiprocessing, sys
sys.path.insert(0, %r)
import catchment
%s
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=print)
    process.start()
    process.join()
"""
            % (self.python, "if __name__ != '__main__': catchment.join({}, 8, master='node0:7000')"),
        )
        output = self.run_python(program)
        self.assertIn("runs the program's file again", output)
        self.assertIn('if __name__ == "__main__":', output)
        self.assertNotIn("worker: ", output)

    def test_spans_are_sent_as_they_end(self):
        loop = LOOP.replace("worker.gradient", 'with worker.span("augment"): pass\n    worker.gradient', 1)
        output = self.run_python("-", text=self.cells(loop))
        self.assertEqual(
            len(re.findall(r"worker: span augment of thread \d+ ends after it begins: True\n", output)),
            3,
            output,
        )
        self.assertIn("worker: last message done", output)

    def test_metrics_that_cannot_be_written_end_the_program(self):
        for metrics, why in (
            ("{'loss': float('inf')}", "inf for the metric loss, but a metric must be one finite number"),
            ("{'a': '1'}", "'1' for the metric a"),
            ("{'a': [1, 2]}", "[1, 2] for the metric a"),
            ("{'': 1}", "the name '': names have 1 to 100 bytes"),
            ("{101 * 'x': 1}", "names have 1 to 100 bytes"),
            ("{'a\\n': 1}", "the name 'a\\n'"),
            ("{str(i): i for i in range(65)}", "one name too many, 64, after 64 others"),
            ("5", "int: give it a dict"),
        ):
            with self.subTest(why):
                output = self.run_python(
                    "-", text=self.cells(LOOP.replace("worker.step", "worker.log(%s); worker.step" % metrics))
                )
                self.assertRegex(
                    output,
                    "worker: last message failed (Value|Type)Error: worker.log.. got .*" + re.escape(why),
                )

    def test_statistic_that_is_named_like_a_parameter_ends_the_program(self):
        output = self.run_python("-", text=self.cells("worker._attachment.statistic('w', bytes(4))"))
        self.assertIn(
            "worker: last message failed ValueError: the statistic w of a batch norm is also a "
            "parameter of the model",
            output,
        )

    def test_joining_again_ends_the_worker_of_before(self):
        join = self.cells().splitlines()[6]
        assert "join(" in join
        output = self.run_python("-", text=self.cells(join + "\n" + LOOP))
        lines = [line for line in output.splitlines() if line.startswith("worker: ") and "hello" not in line]
        self.assertEqual(
            lines,
            ["worker: --master=node0:7000"] * 2
            + [
                "worker: last message failed the program has called join() again",
                "worker: shell 0",
                *TRAINED,
                "worker: shell 0",
            ],
            output,
        )

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
        self.assertIn(
            "user %d listens at the address of the worker that started this program, which user %d "
            "runs" % (OTHER_USER, user),
            output,
        )

    def test_copies_of_the_plan_need_no_memfd(self):
        output = self.run_python(self.write("copy.py", WITHOUT_MEMFD % self.python))
        self.assertEqual(output, "[7, 8]\n")

    def test_describes_itself_where_it_is_asked_to(self):
        self.environment["CATCHMENT_DESCRIBE"] = self.directory.name
        self.assertEqual(self.run_python("-", text=self.cells()), "before join\n")
        self.assertTrue(os.path.exists(self.directory.name + "/model.textproto"))


@unittest.skipIf(numpy is None, "NumPy is not installed")
class VectorsTest(unittest.TestCase):
    """Tests that a value computed from weights, or from their copies, is an array as any other."""

    def setUp(self):
        self.memory = bytearray(4 * 7)
        tensors = [("a", (2, 3)), ("b", ())]
        self.weights, self.gradients = (
            kind(self.memory, tensors) for kind in (_vectors.Parameters, _vectors.Gradients)
        )

    def test_parts_share_the_memory(self):
        self.gradients["a"] = [[1, 2, 3], [4, 5, 6]]
        self.gradients["b"] = 7
        self.assertEqual(self.weights.flat.tolist(), [1, 2, 3, 4, 5, 6, 7])
        self.gradients["a"] *= 2
        self.gradients["b"] -= 1
        self.assertEqual(self.weights["a"].tolist(), [[2, 4, 6], [8, 10, 12]])
        self.assertEqual(self.weights["b"].shape, ())
        self.assertEqual(float(self.weights["b"]), 6)
        self.gradients.set_to_zero()
        self.assertFalse(self.weights.flat.any())

    def test_results_may_be_written(self):
        a = self.weights["a"]
        for result in (
            a + 1,
            a @ a.T,
            numpy.tanh(a),
            a.sum(0),
            numpy.ones((1, 2)) @ a,
            a.copy(),
            numpy.array(a),
            a.astype(numpy.float64),
            copy.deepcopy(self.weights)["a"],
            pickle.loads(pickle.dumps(self.weights))["a"],
        ):
            result += 1
            result[0] = 1
        self.assertIs(type(a @ a.T), numpy.ndarray)
        self.assertFalse(self.weights.flat.any())

    def test_only_real_numbers_of_the_parameters_shape_are_gradients(self):
        for values in (numpy.ones((3, 2)), numpy.ones((1, 2, 3)), numpy.ones(3), 1.0):
            with self.assertRaisesRegex(
                ValueError, r"the gradient of a has shape .*, but the parameter has \(2, 3\)"
            ):
                self.gradients["a"] = values
        for values in (numpy.ones((2, 3), complex), None):
            with self.assertRaisesRegex(
                TypeError, "the gradient of a got values of type (complex128|object)"
            ):
                self.gradients["a"] = values


if __name__ == "__main__":
    unittest.main()
