"""The daemons of one round: real processes with mutual TLS, each in a network namespace if this process may
make them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import jobs

PATIENCE = 180  # seconds without any progress after which a wait has failed
PROGRESS = re.compile(r"[\d,]+/[\d,]+ samples|checkpoint \d+ is saved|the job has ended")

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))


class Failure(Exception):
    """Says what is wrong, in a sentence."""


def find(path):
    """Returns a file of the source tree, or a program that Bazel has built:
    in a test both are beside each other."""
    for directory in (ROOT, os.path.join(ROOT, "bazel-bin")):
        if os.path.exists(os.path.join(directory, path)):
            return os.path.join(directory, path)
    sys.exit(
        f"tests/chaos/run: there is no {path}; build it: bazel build //server:catchment_server "
        "//worker:catchment_worker //cli:catchment //tests/cluster:network_switch "
        "//tests/server/control:replay"
    )


def presets():
    """Returns the names of all presets."""
    asked = subprocess.run(
        [find("cli/catchment"), "validate", "--door"],
        input='{"about": true}\n',
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [preset["name"] for preset in json.loads(asked.stdout)["presets"]]


def control_log(directory):
    """Returns the file that has the calls of all masters of a round."""
    return os.path.join(directory, "logs", "control.log")


class Loopback:
    """All processes at 127.0.0.1, with ports that are free: without root.
    Connections cannot be cut or delayed."""

    can_cut = False

    def __init__(self, count, directory, options):
        self.hosts = ["127.0.0.1"] * count

    def port(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            return taken.getsockname()[1]

    def prefix(self, host):
        return []

    def close(self):
        pass


class Switched:
    """Each process in a network namespace, joined by the packet switch of tests/cluster."""

    can_cut = True

    def __init__(self, count, directory, options):
        self.names = [f"chaos{i}" for i in range(count)]
        self.hosts = [f"10.213.77.{i + 1}" for i in range(count)]
        self.next_port = 7000
        for name in self.names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        log = open(os.path.join(directory, "logs", "switch.log"), "ab")
        self.switch = subprocess.Popen(
            [find("tests/cluster/network_switch"), *options, *self.names],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        if self.switch.stdout.readline() != b"ready\n":
            raise Failure("the packet switch does not start; logs/switch.log says why")

    def port(self):
        self.next_port += 1
        return self.next_port

    def prefix(self, host):
        return ["nsenter", f"--net=/run/netns/{self.names[host]}"]

    def cut_all(self, cut):
        self.switch.send_signal(signal.SIGUSR1 if cut else signal.SIGUSR2)

    def cut_one(self, host, cut):
        """Without a route, what the host sends is dropped, and TCP sends it again later."""
        run(
            "ip",
            "-n",
            self.names[host],
            "route",
            "delete" if cut else "add",
            "10.213.77.0/24",
            "dev",
            "wire0",
        )

    def close(self):
        self.switch.terminate()
        self.switch.wait()
        for name in self.names:
            run("ip", "netns", "delete", name)


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Process:
    def __init__(self, name, host, command, log, env):
        self.name, self.host, self.command, self.log, self.env = name, host, command, log, env
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env
            )

    def kill(self):
        self.process.kill()
        self.process.wait()

    def signal(self, number):
        self.process.send_signal(number)

    def runs(self):
        return self.process.poll() is None


class Cluster:
    """Servers, workers and their files in `directory`: job.textproto, logs and out."""

    def __init__(self, directory, job, servers, network, options, tls):
        self.directory, self.job, self.tls, self.num_servers = directory, job, tls, servers
        self.out = os.path.join(directory, "out")
        for name in ("logs", "out"):
            os.makedirs(os.path.join(directory, name), exist_ok=True)
        with open(os.path.join(directory, "job.textproto"), "w") as file:
            file.write(job.text(directory))
        self.network = network(servers + jobs.WORKERS + int(job.evaluated), directory, options)
        self.servers, self.workers, self.evaluators = [], [], []
        self.choose_ports()

    def choose_ports(self):
        self.addresses = [f"{self.network.hosts[i]}:{self.network.port()}" for i in range(self.num_servers)]

    def start(self):
        self.servers = [self.make_server(i) for i in range(self.num_servers)]
        for server in self.servers:
            server.start()
        self.workers = [self.start_worker(i) for i in range(jobs.WORKERS)]
        self.evaluators = [self.start_evaluator() for _ in range(int(self.job.evaluated))]

    def make_server(self, index):
        words = [
            find("server/catchment_server"),
            f"--job={self.directory}/job.textproto",
            f"--index={index}",
            "--servers=" + ",".join(self.addresses),
            f"--out={self.out}",
            "--threads=1",
        ]
        if index == 0:
            words.append("--control_log=" + control_log(self.directory))
        return self.make("server", f"server-{index}", index, words)

    def start_worker(self, number):
        # A worker that takes the place of another one has its host.
        words = [
            find("worker/catchment_worker"),
            "--master=" + self.addresses[0],
            "--threads=1",
            "--connect_timeout_seconds=60",
        ]
        if self.job.kind == "counted":
            words.append(
                f"--program=exec {sys.executable} {find('tests/chaos/count.py')} "
                f"{jobs.COPIES} {jobs.SAMPLES} {jobs.STEP_SECONDS}"
            )
        worker = self.make("worker", f"worker-{number}", self.num_servers + number, words)
        worker.start()
        return worker

    def start_evaluator(self):
        evaluator = self.make(
            "evaluator",
            "evaluator",
            self.num_servers + jobs.WORKERS,
            [
                find("worker/catchment_worker"),
                "--role=evaluator",
                "--master=" + self.addresses[0],
                "--threads=1",
                "--connect_timeout_seconds=60",
            ],
        )
        evaluator.start()
        return evaluator

    def make(self, role, name, host, command):
        env = dict(
            os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(find("python/catchment/__init__.py")))
        )
        return Process(
            name,
            host,
            self.network.prefix(host) + command + self.tls[role],
            os.path.join(self.directory, "logs", name + ".log"),
            env,
        )

    def status(self):
        """Returns the content of `catchment status --json`, or None if the master does not answer."""
        command = (
            self.network.prefix(self.num_servers)
            + [find("cli/catchment"), "status", self.addresses[0], "--json"]
            + self.tls["operator"]
        )
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=5,
            )
            return json.loads(done.stdout)
        except (subprocess.TimeoutExpired, ValueError):
            return None

    def samples_of_lost_workers(self):
        """Returns the samples that the master reports as computed again, because the last contribution of a
        worker that was lost had reached only some of the blocks."""
        with open(os.path.join(self.directory, "logs", "server-0.log"), errors="replace") as log:
            return sum(
                map(
                    int, re.findall(r"reached only some blocks: (\d+) samples are computed again", log.read())
                )
            )

    def processes(self):
        return self.servers + self.workers + self.evaluators

    def is_over(self):
        return os.path.exists(self.out + "/summary.json") and any(not s.runs() for s in self.servers)

    def check_processes(self):
        """Raises Failure if a process has ended by itself with an error. Two of them are right when the job
        is done: a worker that was lost and comes back gives up reaching the master, and a master that was
        killed in its last moment does not begin anew."""
        for process in self.processes():
            code = process.process.poll()
            if code in (None, 0):
                continue
            with open(process.log, errors="replace") as log:
                last = log.read().strip().rsplit("\n", 1)[-1]
            text = "resume from it with --resume" if process in self.servers else "gave up after"
            if not (os.path.exists(self.out + "/summary.json") and text in last):
                raise Failure(f"{process.name} ended with {code}: {last}")

    def await_that(self, condition, what, pause=0.1):
        """Returns the condition's value once it is true. Raises Failure if the job makes no progress before.
        The master's log tells of it where calls are not answered in time,
        as on a machine with much else to do."""
        last, deadline = None, time.monotonic() + PATIENCE
        while not (value := condition()):
            with open(os.path.join(self.directory, "logs", "server-0.log"), errors="replace") as log:
                found = PROGRESS.findall(log.read())[-1:]
            if found != last:
                last, deadline = found, time.monotonic() + PATIENCE
            if time.monotonic() > deadline:
                running = ", ".join(process.name for process in self.processes() if process.runs())
                raise Failure(
                    f"nothing has changed for {PATIENCE} s after {last}, and these still run: {running}; "
                    f"awaited: {what}"
                )
            time.sleep(pause)
        return value

    def await_end(self):
        """Waits until all processes have ended by themselves with exit code 0."""

        def has_ended():
            self.check_processes()
            return not any(process.runs() for process in self.processes())

        self.await_that(has_ended, "the end of all processes")

    def close(self):
        """Kills what runs. Returns the names of processes that ran."""
        left = [process.name for process in self.processes() if process.runs()]
        for process in self.processes():
            process.kill()
        self.network.close()
        return left
