"""DiLoCo by Catchment and by torchft, on the same model, data and machine, undisturbed and with a replica
that is killed.

--python is an interpreter with PyTorch and, for torchft, with torchft 0.2. Logs are kept in --keep. Two
replicas train the GPT of examples/python/tiny_gpt_diloco.py, smaller, with AdamW and an exchange every 20
steps:

    catchment             one server, the preset diloco, join(optimizer=...)
    catchment_decoupled   the same with decoupled_diloco: 20 fragments, an overlap of two steps
    torchft               DiLoCo with a lighthouse

Each runs twice. The second time replica 1 is killed (kill -9) after a quarter of its steps, and started again
three seconds after; --steps must be many enough that replica 0 still trains when it is back. As root, each
run has the loopback interface of a network namespace, which counts its bytes.

Rows of --json: system, fault, test_loss, seconds, exchange_seconds (of replica 0: what its steps of the
optimizer take beyond their median, the waiting included), longest_step (of replica 0, in seconds), megabytes
(over the loopback interface), busiest_second (the most megabytes in a second while both train, without a
fault), and steps (of both replicas).
"""

import contextlib
import json
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import jobs

SYSTEMS = ("catchment", "catchment_decoupled", "torchft")
SHAPE = dict(context=64, width=96, heads=4, layers=3)
BATCH, LOCAL_STEPS, REPLICAS, LEARNING_RATE = 16, 20, 2, 1e-3
FLAGS = dict(systems=SYSTEMS, steps=400, keep="")
GONE_SECONDS = 3
PATIENCE = 900

sys.dont_write_bytecode = True


# ----------------------------------------------------------------------------------------------- the replicas


class Steps:
    """Writes down when each step of the optimizer began, and how long it took."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8", buffering=1)

    def measure(self, step):
        begin = time.monotonic()
        step()
        self.file.write(f"{begin} {time.monotonic() - begin}\n")


def make():
    """Returns tiny_gpt_diloco, the training and the test set, the model, and AdamW for it."""
    sys.path[:0] = [os.path.join(jobs.ROOT, "examples/python"), os.path.join(jobs.ROOT, "python")]
    import torch

    import tiny_gpt_diloco as tiny

    torch.set_num_threads(1)
    torch.manual_seed(1)
    shape, characters = tiny.Shape(**SHAPE), tiny.pages()
    texts, tests = (tiny.Text(characters, shape.context, test=test) for test in (False, True))
    tests = torch.utils.data.Subset(tests, range(0, len(tests), 4))
    model = tiny.Gpt(len(texts.alphabet), shape)
    return tiny, texts, tests, model, torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)


def backward(tiny, model, x, y):
    from torch import nn

    loss = tiny.mean_loss(model, x, y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return loss


def replica_of_catchment(directory=""):
    import catchment.torch

    tiny, texts, tests, model, optimizer = make()
    worker = catchment.torch.join(model, texts, tests, optimizer=optimizer)
    if worker.evaluates:
        worker.evaluate(lambda: tiny.score(model, tests))
    steps = Steps(os.path.join(directory, os.environ["REPLICA"]))
    for x, y in worker.minibatches():
        loss = backward(tiny, model, x, y)
        steps.measure(lambda: worker.step(loss))


def replica_of_torchft(directory, index, rounds, lighthouse):
    from datetime import timedelta

    import torch
    from torch.distributed import TCPStore
    from torch.utils.data import DataLoader, Subset
    from torchft.local_sgd import DiLoCo
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo

    tiny, texts, tests, model, optimizer = make()

    def state():
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=60)),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=1,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"replica{index}",
        hostname="127.0.0.1",
    )
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    generator = torch.Generator().manual_seed(int(index))
    half_of_all = Subset(texts, range(int(index), len(texts), REPLICAS))
    own = DataLoader(half_of_all, BATCH, shuffle=True, drop_last=True, generator=generator)
    # They begin together: a replica that comes later counts as one that was lost.
    path = os.path.join(directory, "ready")
    with open(path, "a", encoding="utf-8") as file:
        file.write(".")
    while os.path.getsize(path) < REPLICAS:
        time.sleep(0.05)
    steps = Steps(os.path.join(directory, "replica" + index))
    with DiLoCo(manager, [model], optimizer, outer, sync_every=LOCAL_STEPS, pin_memory=False):
        while True:
            for x, y in own:
                if manager.current_step() >= int(rounds):
                    break
                optimizer.zero_grad()
                backward(tiny, model, x, y)
                steps.measure(optimizer.step)
            else:
                continue
            break
    if index == "0":
        with open(os.path.join(directory, "test_loss"), "w", encoding="utf-8") as file:
            file.write(str(tiny.score(model, tests)[0]))
    manager.shutdown(wait=False)


# -----------------------------------------------------------------------------------------------------------
# the runs


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


class Run:
    """The processes of a run. Each starts a session of its own, which is killed at the end."""

    def __init__(self, arguments, system, directory):
        self.arguments, self.system, self.directory, self.processes = arguments, system, directory, []
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.noted, self.of_seconds = None, []
        own = [os.path.join(jobs.ROOT, "python"), os.path.join(jobs.ROOT, "examples/python")]
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(own))

    def start(self, name, *command, **environment):
        with open(os.path.join(self.directory, name + ".log"), "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=dict(self.environment, **environment),
            )
        self.processes.append(process)
        return process

    def role(self, *words):
        return [self.arguments.python, os.path.abspath(__file__), *words]

    def start_coordinator(self):
        if self.system == "torchft":
            program = os.path.join(os.path.dirname(self.arguments.python), "torchft_lighthouse")
            self.start(
                "lighthouse",
                program,
                f"--bind={self.address}",
                "--min_replicas=1",
                "--join_timeout_ms=10000",
                TORCHFT_LIGHTHOUSE="http://" + self.address,
            )
            return
        decoupled = self.system == "catchment_decoupled"
        contribution = f"local_steps: {LOCAL_STEPS}" + (f", fragments: {LOCAL_STEPS}" if decoupled else "")
        job = os.path.join(self.directory, "job.textproto")
        command = [
            jobs.program(self.arguments, "cli/catchment"),
            "validate",
            "--program=" + shlex.join(self.role("catchment")),
            f"--workers={REPLICAS}",
            "--write=" + job,
        ]
        for field in (
            "algorithm.preset=" + ("decoupled_diloco" if decoupled else "diloco"),
            f"batch_size={BATCH}",
            f"samples={REPLICAS * self.arguments.steps * BATCH}",
            "evaluation.every_epochs=1000",
            "shared_memory=false",
            "algorithm.contribution.pseudo_gradient={%s}" % contribution,
        ):
            command += ["--set", field]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=self.environment)
        self.start(
            "server",
            jobs.program(self.arguments, "server/catchment_server"),
            "--job=" + job,
            "--index=0",
            "--servers=" + self.address,
            "--out=" + self.directory + "/out",
            "--evaluators=1",
        )

    def note_bytes(self):
        """Notes the bytes of each second in which both replicas train."""
        now = time.monotonic()
        if self.noted and now < self.noted[0] + 1:
            return
        total = loopback_bytes()
        train = all(2 <= len(self.steps(index)) < self.arguments.steps - 1 for index in range(REPLICAS))
        if self.noted and train:
            self.of_seconds.append((total - self.noted[1]) / (now - self.noted[0]) / 1e6)
        self.noted = (now, total) if train else None

    def start_replica(self, index):
        if self.system == "torchft":
            rounds = str(self.arguments.steps // LOCAL_STEPS)
            command = self.role("torchft", self.directory, str(index), rounds, "http://" + self.address)
        else:
            command = [
                jobs.program(self.arguments, "worker/catchment_worker"),
                "--master=" + self.address,
                "--program=" + shlex.join(self.role("catchment", self.directory)),
            ]
        return self.start(f"replica{index}", *command, REPLICA=f"replica{index}")

    def steps(self, index):
        path = os.path.join(self.directory, f"replica{index}")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return [tuple(map(float, line.split())) for line in file if line.endswith("\n")]

    def await_that(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.system}: not within {PATIENCE} s: {what}")
            self.note_bytes()
            time.sleep(0.05)

    def measure(self, fault):
        before = loopback_bytes()
        self.start_coordinator()
        replicas = [self.start_replica(index) for index in range(REPLICAS)]
        if self.system != "torchft":
            self.start(
                "evaluator",
                jobs.program(self.arguments, "worker/catchment_worker"),
                "--role=evaluator",
                "--master=" + self.address,
                "--program=" + shlex.join(self.role("catchment", self.directory)),
            )
        if fault:
            self.await_that(lambda: len(self.steps(1)) >= self.arguments.steps // 4, "a quarter of the steps")
            replicas[1].kill()
            replicas[1].wait()
            time.sleep(GONE_SECONDS)
            replicas[1] = self.start_replica(1)
        self.await_that(
            lambda: all(replica.poll() is not None for replica in replicas), "the end of the replicas"
        )
        codes = [replica.returncode for replica in replicas]
        if codes != [0] * REPLICAS:
            raise RuntimeError(
                f"{self.system}: replicas ended with {codes}; their logs are in {self.directory}"
            )
        own = self.steps(0)
        typical = statistics.median(duration for _, duration in own)
        return {
            "system": self.system,
            "fault": fault,
            "test_loss": self.test_loss(),
            "seconds": own[-1][0] + own[-1][1] - own[0][0],
            "exchange_seconds": sum(max(0, duration - typical) for _, duration in own),
            "longest_step": max(duration for _, duration in own),
            "megabytes": (loopback_bytes() - before) / 1e6,
            "busiest_second": None if fault else max(self.of_seconds, default=None),
            "steps": [len(self.steps(index)) for index in range(REPLICAS)],
        }

    def test_loss(self):
        if self.system == "torchft":
            with open(os.path.join(self.directory, "test_loss"), encoding="utf-8") as file:
                return float(file.read())
        self.await_that(lambda: os.path.exists(self.directory + "/out/summary.json"), "the summary")
        with open(self.directory + "/out/summary.json", encoding="utf-8") as file:
            return json.load(file)["test_loss"]

    def close(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def loopback_bytes():
    with open("/proc/net/dev", encoding="utf-8") as file:
        return int(file.read().partition("lo:")[2].split()[0])


def run(args):
    if os.geteuid() == 0 and os.environ.get("OWN_LOOPBACK") is None:
        os.environ["OWN_LOOPBACK"] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    if os.environ.get("OWN_LOOPBACK"):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes of a run are ended
    for system in args.systems:
        for fault in (False, True):
            with tempfile.TemporaryDirectory() as scratch:
                directory = os.path.join(args.keep or scratch, f"{system}{'-fault' if fault else ''}")
                os.makedirs(directory)
                with contextlib.closing(Run(args, system, directory)) as processes:
                    yield processes.measure(fault)


if __name__ == "__main__":
    dict(catchment=replica_of_catchment, torchft=replica_of_torchft)[sys.argv[1]](*sys.argv[2:])
