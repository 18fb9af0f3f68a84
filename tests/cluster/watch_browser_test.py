#!/usr/bin/env python3
"""`catchment watch` in Chromium: one page, which is opened once, shows a job that loses a worker, goes on,
and ends with its report.

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

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chromium import Chromium, install, wait_for

CATCHMENT = "cli/catchment" if os.path.exists("cli/catchment") else "bazel-bin/cli/catchment"
JOB = """name: "digits"
model {
  layers { flatten {} } layers { dense { units: 64 } } layers { relu {} } layers { dense { units: 10 } }
}
data { drawn_digits { train_samples: 2000 test_samples: 500 } } workers: 2 batch_size: 32 epochs: 1000000
algorithm { preset: "downpour" } evaluation { every_epochs: 1 } faults { heartbeat_timeout_seconds: 3 }"""


def samples(text):
    """Returns the trained samples that the page shows; 0 before it shows any."""
    found = re.search(r"samples trained\s+([\d,]+)", text)
    return int(found[1].replace(",", "")) if found else 0


def status(out):
    done = subprocess.run(
        [CATCHMENT, "status", out, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
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
        wait_for(
            "two workers on the page",
            lambda: re.search(r"workers\s+2 of 2", page.text()) and samples(page.text()),
        )
        pid = status(out)["workers"][1]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for(
            "the loss as an event",
            lambda: re.search(r"worker 1 \(\S+:%d\)[^\n]*(lost|left)" % pid, page.text()),
        )
        before = samples(page.text())
        wait_for("more samples after the loss", lambda: samples(page.text()) > before)
        subprocess.run([CATCHMENT, "stop", out], check=True, stdout=subprocess.DEVNULL)
        wait_for(
            "the report",
            lambda: re.search(r"(?ms)^Stopped at .*^How to repeat it", page.text()),
        )
        titles = page.evaluate("[...document.querySelectorAll('svg title')].map(title => title.textContent)")
        if not any("worker 1 (" in title and ":%d)" % pid in title for title in titles):
            sys.exit("FAILED: no curve has a mark where the worker was lost")
    finally:
        page.end()


def main():
    if not install():
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
