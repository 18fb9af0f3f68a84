#!/usr/bin/env python3
"""A worker's program for attached_test.cc: a small perceptron in plain Python on the rows of a CSV file.

    attached_program.py CSV [FAULT]

FAULT: what it does wrong, in its third step where it takes part in training at all; late: after its last
step. VICTIM-MESSAGE, such as daemon-done, kills the program, the daemon or both after that message of the
third step was sent (begin: received).
"""

import array
import math
import os
import resource
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "python")
import catchment
from catchment import _attachment

FEATURES, HIDDEN, CLASSES = 6, 8, 3
SHAPES = {
    "dense1.weight": (HIDDEN, FEATURES),
    "dense1.bias": (HIDDEN,),
    "dense2.weight": (CLASSES, HIDDEN),
    "dense2.bias": (CLASSES,),
}


def zeros(shape):
    flat = array.array("f", [0.0] * math.prod(shape))
    return memoryview(flat).cast("B").cast("f", shape)


def read_rows(path):
    """Returns (features, class) of each row."""
    with open(path) as file:
        rows = [[float(word) for word in line.split(",")] for line in file if line.strip()]
    return [(row[:FEATURES], int(row[FEATURES])) for row in rows]


def forward(parameters, x):
    """Returns the hidden layer's values, and each class's probability."""
    w1, b1, w2, b2 = (parameters[name] for name in SHAPES)
    hidden = [max(0.0, b1[i] + sum(w1[i, j] * x[j] for j in range(FEATURES))) for i in range(HIDDEN)]
    outputs = [b2[k] + sum(w2[k, i] * hidden[i] for i in range(HIDDEN)) for k in range(CLASSES)]
    exponentials = [math.exp(z - max(outputs)) for z in outputs]
    return hidden, [e / sum(exponentials) for e in exponentials]


def train(parameters, gradients, rows):
    """Writes the mean gradient over the rows; returns the mean loss and how many are right."""
    sums = {name: [0.0] * math.prod(shape) for name, shape in SHAPES.items()}
    g1, c1, g2, c2 = sums.values()
    w2 = parameters["dense2.weight"]
    loss, correct = 0.0, 0
    for x, label in rows:
        hidden, p = forward(parameters, x)
        loss -= math.log(p[label]) / len(rows)
        correct += p.index(max(p)) == label
        delta = [(p[k] - (k == label)) / len(rows) for k in range(CLASSES)]
        for k in range(CLASSES):
            c2[k] += delta[k]
            for i in range(HIDDEN):
                g2[k * HIDDEN + i] += delta[k] * hidden[i]
        for i in range(HIDDEN):
            if hidden[i] == 0.0:
                continue
            back = sum(delta[k] * w2[k, i] for k in range(CLASSES))
            c1[i] += back
            for j in range(FEATURES):
                g1[i * FEATURES + j] += back * x[j]
    for name, values in sums.items():
        memoryview(gradients[name]).cast("B")[:] = array.array("f", values).tobytes()
    return loss, correct


def kill(victim):
    if victim in ("daemon", "both"):
        os.kill(os.getppid(), signal.SIGKILL)
    if victim in ("program", "both"):
        os.kill(os.getpid(), signal.SIGKILL)


def kill_after(victim, message):
    """Kills when that message has been sent: hello, or another one of the third step."""
    send = _attachment.Attachment._send

    def send_and_kill(self, kind, fields):
        send(self, kind, fields)
        if kind == message and (kind == "hello" or self.step >= 3):
            kill(victim)

    _attachment.Attachment._send = send_and_kill


def compute_forever():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("the program computes forever", flush=True)
    while True:
        pass


def misbehave(fault, worker):
    """Does what a fault does before the third step's end. Returns the loss to report,
    or None to go on as ever."""
    if fault == "raise":
        raise ValueError("no such thing\nas a second line")
    if fault == "traceback":
        frames = "".join('  File "module_%d.py", line %d, in load\n    load()\n' % (i, i) for i in range(200))
        raise RuntimeError(
            "Caught OSError in process 0.\nTraceback (most recent call last):\n"
            + frames
            + "OSError: no space is left in /dev/shm\n"
        )
    if fault == "long":
        raise ValueError("the configuration " + "x" * 20000 + " has no end")
    if fault == "stream":
        worker._attachment.leave("the stream has ended and cannot be read again")
    if fault.endswith("-begin"):
        kill(fault.split("-")[0])
    if fault.endswith("-final"):
        worker._attachment.final(FEATURES)
    if fault == "exit":
        sys.exit(3)
    if fault == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        bytearray(1 << 30)
    if fault == "killed":
        kill("program")
    if fault == "hang":
        signal.pause()
    if fault == "busy":
        compute_forever()
    if fault == "print":
        os.write(worker._attachment._socket.fileno(), b"a line of text\n")
    if fault == "twice":
        worker.step(0.5)
        worker.step(0.5)
    if fault == "nan":
        worker.gradients["dense2.bias"][1] = float("nan")


def main():
    rows = read_rows(sys.argv[1])
    fault = sys.argv[2] if len(sys.argv) > 2 else ""
    if fault == "leave":
        return
    if "-" in fault:
        kill_after(*fault.split("-"))
    if fault == "version":
        _attachment.VERSION = 99
    shapes = dict(SHAPES, **({"dense1.weight": (HIDDEN, FEATURES + 1)} if fault == "shape" else {}))
    if fault == "name":
        shapes = {name.replace("dense2", "output"): shape for name, shape in SHAPES.items()}
    test_samples = len(rows) if os.environ.get("TEST_SAMPLES") else 0
    worker = catchment.join(
        {name: zeros(shape) for name, shape in shapes.items()},
        len(rows),
        test_samples,
        master=os.environ.get("MASTER"),
    )
    if worker.evaluates and fault != "unscored":

        def score():
            if fault == "scoreless":
                signal.pause()
            right = [forward(worker.parameters, x)[1] for x, _ in rows]
            loss = -sum(math.log(p[label]) for p, (_, label) in zip(right, rows)) / len(rows)
            return loss, sum(p.index(max(p)) == label for p, (_, label) in zip(right, rows))

        worker.evaluate(score)
    steps = 0
    for samples in worker.minibatches():
        steps += 1
        loss, correct = train(worker.parameters, worker.gradients, [rows[i] for i in samples])
        if steps >= 3:
            misbehave(fault, worker)
        if fault == "skip" and steps == 3:
            continue
        worker.step(loss, correct)
    print("the program trained", steps, "steps", flush=True)
    if fault == "endless":
        compute_forever()
    if fault == "late":
        raise ValueError("the result cannot be saved")


main()
