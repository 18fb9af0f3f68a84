#!/usr/bin/env python3
"""Trains a job with the units of deploy/systemd, kills its processes, and starts them again by the rules of
the units.

The test does what systemd does with a unit: it reads EnvironmentFile=, expands ExecStart=, and decides by
Restart=, RestartSec=, StartLimitIntervalSec= and StartLimitBurst= (systemd.service(5), systemd.unit(5)). Real
systemd is not started: as the first process of a namespace it would clean this machine's /tmp.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE = 600  # seconds that a wait may take
STEPS = 1000

# The ends of a process that lead to a restart; the table of Restart= in systemd.service(5).
RESTARTS = {
    "no": set(),
    "always": {"clean", "code", "signal"},
    "on-success": {"clean"},
    "on-failure": {"code", "signal"},
    "on-abnormal": {"signal"},
    "on-abort": {"signal"},
}
CLEAN_SIGNALS = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE}
SECONDS = {"": 1, "s": 1, "sec": 1, "min": 60, "h": 3600}

# The time of a step does not depend on the machine, so that the job trains for 10 seconds at least.
JOB = """
name: "restarts"
model { synthetic { parameters: 20000 step_ms: 20 } }
data { synthetic { samples: %d } }
algorithm { preset: "downpour" }
batch_size: 2
epochs: 1
workers: 2
block_kib: 16
checkpoint { every_updates: 50 }
faults { connect_timeout_seconds: 5 }
"""


class Unit:
    """A service unit and its process. `etc`: the directory that takes the place of /etc/catchment."""

    def __init__(self, path, name, instance, etc, log):
        self.name, self.instance, self.etc, self.log_path = name, instance, etc, log
        self.settings = {}
        with open(path) as file:
            for key, value in re.findall(r"^([A-Z]\w*)=(.*)$", file.read(), re.MULTILINE):
                self.settings.setdefault(key, []).append(value.replace("%i", instance))
        self.process, self.start_at, self.result = None, None, None
        self.starts, self.num_starts = [], 0  # within StartLimitIntervalSec=; since the test began

    def last(self, key):
        return self.settings[key][-1]

    def seconds(self, key):
        number, unit = re.fullmatch(r"(\d+)(\w*)", self.last(key)).groups()
        return int(number) * SECONDS[unit]

    def environment(self):
        values = {}
        for path in self.settings["EnvironmentFile"]:
            optional, path = path.startswith("-"), path.lstrip("-").replace("/etc/catchment", self.etc)
            if optional and not os.path.exists(path):
                continue
            with open(path) as file:
                values.update(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
        return values

    def command(self):
        """${NAME} is replaced inside of a word; $NAME as a word becomes as many words as its value has."""
        values, words = self.environment(), []
        for word in shlex.split(self.last("ExecStart")):
            if re.fullmatch(r"\$\w+", word):
                words += values.get(word[1:], "").split()
            else:
                words.append(re.sub(r"\$\{(\w+)\}", lambda m: values.get(m[1], ""), word))
        program = os.path.basename(words[0])
        return [os.path.join(program.split("_")[1], program)] + words[1:]

    def start(self):
        now = time.monotonic()
        self.starts = [at for at in self.starts if now - at < self.limits()[0]] + [now]
        if len(self.starts) > self.limits()[1]:
            fail(f"{self.name} was started more than StartLimitBurst= times")
        self.start_at, self.result = None, None
        self.num_starts += 1
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(os.environ, **self.environment()),
            )

    def limits(self):
        if "StartLimitBurst" not in self.settings:
            return 10, 5  # systemd's own
        return self.seconds("StartLimitIntervalSec"), int(self.last("StartLimitBurst"))

    def look_after(self):
        if self.start_at is not None and time.monotonic() >= self.start_at:
            self.start()
        if self.process is None or self.process.poll() is None:
            return
        code, self.process = self.process.returncode, None
        self.result = (
            "clean"
            if code == 0 or (code < 0 and -code in CLEAN_SIGNALS)
            else "signal"
            if code < 0
            else "code"
        )
        again = self.result in RESTARTS[self.last("Restart")]
        print(
            f"{self.name} ended with {code}"
            + (f"; started again in {self.last('RestartSec')} s" if again else "")
        )
        if again:
            self.start_at = time.monotonic() + self.seconds("RestartSec")

    def stop(self):
        """As `systemctl stop` with KillMode=mixed: SIGTERM to the main process, and no restart."""
        self.process.terminate()
        try:
            code = self.process.wait(self.seconds("TimeoutStopSec"))
        except subprocess.TimeoutExpired:
            fail(f"{self.name} does not end within TimeoutStopSec=, so that systemd would kill it")
        self.process = None
        if code != 0:
            fail(f"{self.name} ended with exit code {code} when it was stopped")

    def says(self, text):
        with open(self.log_path, errors="replace") as log:
            return text in log.read()


class Host:
    """Two servers and two workers with the units, and one directory for what would be in /etc/catchment."""

    def __init__(self, work):
        self.work, self.out = work, os.path.join(work, "out")
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.servers = ",".join(f"127.0.0.1:{s.getsockname()[1]}" for s in sockets)
        for taken in sockets:
            taken.close()
        self.units = []
        for index in range(2):
            self.write_server(index)
            self.add("catchment-server.service", f"server-{index}", "", f"server-{index}")
        self.write("workers/worker.env", f"MASTER={self.servers.split(',')[0]}\nTHREADS=1\nFLAGS=\n")
        for index in range(2):
            self.add("catchment-worker@.service", f"worker-{index}", str(index), "workers")

    def write(self, name, text):
        path = os.path.join(self.work, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def write_server(self, index):
        self.write(
            f"server-{index}/server.env",
            f"JOB={self.work}/job.textproto\nINDEX={index}\n"
            f"SERVERS={self.servers}\nFLAGS=--out={self.out} --threads=1\n",
        )

    def add(self, unit, name, instance, etc):
        self.units.append(
            Unit(
                os.path.join("deploy/systemd", unit),
                name,
                instance,
                os.path.join(self.work, etc),
                os.path.join(self.work, name + ".log"),
            )
        )

    def start(self, samples):
        self.write("job.textproto", JOB % samples)
        for unit in self.units:
            unit.start()
        self.run_until(self.has_checkpoint, "a checkpoint")

    def has_checkpoint(self):
        path = os.path.join(self.out, "checkpoints")
        return os.path.isdir(path) and any(
            os.path.exists(os.path.join(path, name, "manifest.textproto")) for name in os.listdir(path)
        )

    def run_until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                fail(f"not within {PATIENCE} s: {what}")
            for unit in self.units:
                unit.look_after()
            time.sleep(0.05)

    def kill(self, unit):
        unit.process.kill()
        print(f"{unit.name} is killed")

    def expect_summary(self, *texts):
        with open(os.path.join(self.out, "summary.json")) as file:
            summary = file.read()
        for text in texts:
            if text not in summary:
                fail(f"no {text} in {summary}")


host = None


def fail(message):
    print("FAILED:", message)
    for unit in host.units:
        print(f"--- {unit.name}")
        subprocess.run(["tail", "-n", "15", unit.log_path], check=False)
    sys.exit(1)


def expect_restart_rules():
    """A lost process is started again, and one that is done is not."""
    for unit in host.units:
        if unit.last("Restart") != "on-failure":
            fail(f"{unit.name} has Restart={unit.last('Restart')}")
    server = host.units[0]
    interval, burst = server.limits()
    if interval <= burst * server.seconds("RestartSec"):
        fail("a server that fails at once is started again for ever: StartLimitIntervalSec= is too short")


def main():
    global host
    host = Host(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    master, server, worker = host.units[0], host.units[1], host.units[3]
    expect_restart_rules()
    try:
        host.start(samples=2 * STEPS)
        print("== killed: the job goes back to its last checkpoint")
        host.kill(server)
        host.run_until(lambda: master.says("server 1 was lost at version"), "server 1 is back")
        host.kill(master)
        host.run_until(lambda: master.says("the master was lost at version"), "the master is back")
        host.kill(worker)

        print(
            "== away for longer than faults.connect_timeout_seconds: the job fails, and continues with the "
            "server"
        )
        starts = master.num_starts
        server.settings["RestartSec"].append("15")
        host.kill(server)
        host.run_until(lambda: master.num_starts > starts, "the master is started again after its failure")
        host.run_until(
            lambda: all(u.process is None and u.result == "clean" for u in host.units), "the job is done"
        )
        host.expect_summary('"phase": "DONE"', f'"samples": {2 * STEPS}')
        if worker.num_starts < 2:
            fail("the worker was not started again")

        print("== stopped: the job ends in order, with a checkpoint, and is not started again")
        host.out = os.path.join(host.work, "next")
        for index in range(2):
            host.write_server(index)
        host.start(samples=1000000)
        master.stop()
        host.run_until(lambda: server.result is not None, "the other server ends")
        if server.result != "clean":
            fail("the other server would be started again")
        host.expect_summary('"phase": "STOPPED"')
    finally:
        for unit in host.units:
            if unit.process is not None:
                unit.process.kill()
    print("PASSED")


main()
