#!/usr/bin/env python3
"""`catchment watch` in Chromium: one page, which is opened once, shows a job that loses a worker, goes on, and ends with its
report.

    bazel test //tests/cluster:watch_browser_test

Installs Debian's chromium where it is missing, which needs root.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

CATCHMENT = "cli/catchment" if os.path.exists("cli/catchment") else "bazel-bin/cli/catchment"
PATIENCE = 600
JOB = """name: "digits" model { layers { flatten {} } layers { dense { units: 64 } } layers { relu {} } layers { dense { units: 10 } } }
data { drawn_digits { train_samples: 2000 test_samples: 500 } } workers: 2 batch_size: 32 epochs: 1000000
algorithm { preset: "downpour" } evaluation { every_epochs: 1 } faults { heartbeat_timeout_seconds: 3 }"""


class Chromium:
    """A page, by the protocol of Chromium's developer tools over a pair of pipes: JSON, each message with a zero byte."""

    def __init__(self, profile, url):
        self._count, self._buffer = 0, b""
        command_out, self._out = os.pipe()
        self._in, command_in = os.pipe()
        # It reads descriptor 3 and writes to 4.
        script = 'exec chromium "$@" 3<&%d 4>&%d' % (command_out, command_in)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + profile, "--remote-debugging-pipe"]
        self.process = subprocess.Popen(["/bin/bash", "-c", script, "chromium", *flags], stderr=subprocess.DEVNULL,
                                        pass_fds=(command_out, command_in), start_new_session=True)
        os.close(command_out)
        os.close(command_in)
        target = self._call("Target.createTarget", {"url": url})["targetId"]
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]

    def _call(self, method, parameters, **more):
        self._count += 1
        message = dict({"id": self._count, "method": method, "params": parameters}, **more)
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                data = os.read(self._in, 65536)
                if not data:
                    sys.exit("FAILED: chromium has ended")
                self._buffer += data
            answer, self._buffer = self._buffer.split(b"\0", 1)
            answer = json.loads(answer)
            if answer.get("id") == self._count:
                return answer.get("result", {})

    def evaluate(self, expression):
        answer = self._call("Runtime.evaluate", {"expression": expression}, sessionId=self._session)
        return answer.get("result", {}).get("value", "")

    def text(self):
        """Returns the text of the page as a reader sees it."""
        return self.evaluate("document.body ? document.body.innerText : ''")

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def wait_for(what, condition):
    end = time.monotonic() + PATIENCE
    value = condition()
    while not value:
        if time.monotonic() > end:
            sys.exit("FAILED: %s did not come true" % what)
        time.sleep(0.2)
        value = condition()
    return value


def samples(text):
    """Returns the trained samples that the page shows; 0 before it shows any."""
    found = re.search(r"([\d,]+) of [\d,]+ samples", text)
    return int(found[1].replace(",", "")) if found else 0


def status(out):
    done = subprocess.run([CATCHMENT, "status", out, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def check(directory, processes):
    out, job = directory + "/out", directory + "/job.textproto"
    with open(job, "w") as file:
        file.write(JOB)
    train = subprocess.Popen([CATCHMENT, "train", job, "--out=" + out], stdout=subprocess.DEVNULL)
    processes.append(train)
    wait_for("a score", lambda: status(out).get("test_samples"))
    watch = subprocess.Popen([CATCHMENT, "watch", out, "--port=0"], stdout=subprocess.PIPE, text=True)
    processes.append(watch)
    page = Chromium(directory + "/profile", watch.stdout.readline().strip())
    try:
        wait_for("two workers on the page", lambda: "workers: 2 of 2" in page.text() and samples(page.text()))
        pid = status(out)["workers"][1]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for("the loss as an event", lambda: re.search(r"worker 1 \(\S+:%d\)[^\n]*(lost|left)" % pid, page.text()))
        before = samples(page.text())
        wait_for("more samples after the loss", lambda: samples(page.text()) > before)
        subprocess.run([CATCHMENT, "stop", out], check=True, stdout=subprocess.DEVNULL)
        wait_for("the report", lambda: page.evaluate("location.pathname") == "/report" and "How to repeat it" in page.text())
        pictures = page.evaluate("document.querySelectorAll('svg').length")
        if not pictures:
            sys.exit("FAILED: the report has no picture")
    finally:
        page.end()


def main():
    if subprocess.run(["which", "chromium"], stdout=subprocess.DEVNULL).returncode != 0 and os.geteuid() == 0:
        subprocess.run("apt-get --quiet update && DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes "
                       "--no-install-recommends install chromium", shell=True)
    if subprocess.run(["which", "chromium"], stdout=subprocess.DEVNULL).returncode != 0:
        sys.exit(print("SKIPPED: chromium could not be installed"))
    processes = []
    with tempfile.TemporaryDirectory(prefix="watch-") as directory:
        try:
            check(directory, processes)
        finally:
            for process in processes:
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
