#!/usr/bin/env python3
"""Debian's Prometheus scrapes a job, and its queries agree with the job's summary. Every query of
deploy/prometheus has an answer, and its files are valid.

    bazel test //tests/deploy:prometheus_test

Installs Debian's package prometheus, which needs root. The evaluator is suspended at the end of training, so
that Prometheus reads the final counters before the master ends.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

PATIENCE = 600
WORK = pathlib.Path(os.environ["TEST_TMPDIR"])
FILES = pathlib.Path("deploy/prometheus")
JOB = """name: "digits"
model {
  layers { flatten {} } layers { dense { units: 64 } } layers { relu {} } layers { dense { units: 10 } }
}
data { drawn_digits { train_samples: 2000 test_samples: 500 } } workers: 2 batch_size: 32 epochs: 40
algorithm { preset: "downpour" } evaluation { every_epochs: 10 } faults { standby: 1 }"""
daemons = {}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(name, *argv):
    with open(WORK / (name + ".log"), "w") as log:
        daemons[name] = subprocess.Popen([str(part) for part in argv], stdout=log, stderr=subprocess.STDOUT)


def wait_for(what, condition):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    for log in WORK.glob("*.log"):
        print("==", log.name, log.read_text()[-2000:], sep="\n")
    sys.exit("FAILED: %s did not come true" % what)


def printed(name, pattern):
    found = re.search(pattern, (WORK / (name + ".log")).read_text())
    return found and found[1]


def ask(port, expression):
    """Returns the results of a query: [(labels, value)]."""
    url = "http://127.0.0.1:%d/api/v1/query?" % port + urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return [(one["metric"], float(one["value"][1])) for one in json.load(answer)["data"]["result"]]
    except urllib.error.HTTPError as error:
        if error.code == 503:  # It starts.
            return []
        sys.exit("FAILED: %s: %s" % (expression, error.read().decode()))
    except OSError:
        return []  # Prometheus does not listen yet.


def expressions():
    """Yields the expressions of the alerts and of the dashboard."""
    for line in (FILES / "alerts.yml").read_text().splitlines():
        if line.strip().startswith("expr:"):
            yield line.split("expr:", 1)[1].strip()
    dashboard = json.loads((FILES / "grafana.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for one in targets + dashboard["annotations"]["list"]:
        if re.search(r"\b(catchment|process)_\w+(?!\w|{job=\"\$job\")", one["expr"]):
            sys.exit("FAILED: %s mixes all jobs" % one["expr"])
        yield one["expr"].replace("$job", "catchment")


def main():
    subprocess.run(["deploy/setup.sh", "prometheus"], check=True)
    subprocess.run(["promtool", "check", "config", FILES / "prometheus.yml"], check=True)
    (WORK / "job.textproto").write_text(JOB)
    servers = "127.0.0.1:%d,127.0.0.1:0" % free_port()
    master = servers.split(",")[0]
    for index in 0, 1:
        start(
            "server-%d" % index,
            "server/catchment_server",
            "--job=%s" % (WORK / "job.textproto"),
            "--index=%d" % index,
            "--servers=" + servers,
            "--metrics_port=0",
            "--checkpoint_dir=%s" % (WORK / "checkpoints"),
            *(["--out=%s" % (WORK / "out"), "--evaluators=1"] if index == 0 else []),
        )
        wait_for("server %d listens" % index, lambda: printed("server-%d" % index, "(listening on)"))
    start(
        "evaluator-0", "worker/catchment_worker", "--master=" + master, "--role=evaluator", "--metrics_port=0"
    )
    start("worker-0", "worker/catchment_worker", "--master=" + master, "--metrics_port=0")
    targets = {
        name: wait_for("the metrics of " + name, lambda: printed(name, r"metrics are at http://([0-9.:]+)/"))
        for name in list(daemons)
    }
    roles = {"server-0": "master", "server-1": "server", "worker-0": "worker", "evaluator-0": "evaluator"}
    configuration = (
        (FILES / "prometheus.yml").read_text().replace("scrape_interval: 5s", "scrape_interval: 200ms")
    )
    configuration = configuration.replace("alerts.yml", str((FILES / "alerts.yml").resolve()))
    configuration = configuration[: configuration.index("      - targets")] + "".join(
        '      - targets: ["%s"]\n        labels: {role: %s, daemon: %s}\n'
        % (targets[name], roles[name], name)
        for name in targets
    )
    (WORK / "prometheus.yml").write_text(configuration)
    port = free_port()
    start(
        "prometheus",
        "prometheus",
        "--config.file=%s" % (WORK / "prometheus.yml"),
        "--storage.tsdb.path=%s" % (WORK / "tsdb"),
        "--web.listen-address=127.0.0.1:%d" % port,
    )
    wait_for(
        "Prometheus reads all daemons",
        lambda: len([1 for _, up in ask(port, "up") if up == 1]) == len(targets),
    )

    # Training waits for the second worker.
    start("worker-1", "worker/catchment_worker", "--master=" + master)
    wait_for("the job trains", lambda: ask(port, "catchment_samples_total > 0"))
    wait_for("a score", lambda: ask(port, "catchment_test_accuracy_ratio > 0"))
    os.kill(daemons["evaluator-0"].pid, signal.SIGSTOP)
    wait_for("training is over", lambda: ask(port, 'catchment_job_phase{phase="FINISHING"} == 1'))
    started = time.time()
    wait_for(
        "a scrape after that",
        lambda: [1 for _, at in ask(port, "timestamp(catchment_updates_total)") if at > started],
    )
    names = {
        "samples": "catchment_samples_total",
        "updates": "catchment_updates_total",
        "bytes_pushed": "catchment_pushed_bytes_total",
        "bytes_pulled": "catchment_pulled_bytes_total",
        "pushes_applied": 'catchment_pushes_total{fate="applied"}',
        "compute_seconds": 'catchment_phase_seconds_total{phase="compute"}',
        "recoveries": "catchment_recoveries_total",
    }
    values = {key: ask(port, expression) for key, expression in names.items()}
    staleness = ask(port, "catchment_staleness_updates_sum / catchment_staleness_updates_count")
    below_three = ask(port, 'catchment_staleness_updates_bucket{le="2"}')
    for expression in expressions():
        ask(port, expression)
    metrics = {one for text in expressions() for one in re.findall(r"\b(?:catchment|process)_\w+", text)}
    for metric in sorted(metrics):
        if not ask(port, "last_over_time(%s[10m])" % metric):
            sys.exit("FAILED: deploy/prometheus uses %s, which no daemon has" % metric)
    os.kill(daemons["evaluator-0"].pid, signal.SIGCONT)
    for name in targets:
        if daemons[name].wait(PATIENCE) != 0:
            sys.exit("FAILED: %s ended with %d" % (name, daemons[name].returncode))
    down = 'up{role="master"} == 0'
    wait_for("Prometheus misses the master", lambda: ask(port, down))
    if not any(expression.startswith(down) for expression in expressions()):
        sys.exit("FAILED: there is no alert on a master that is down")
    for expression in expressions():
        if expression.startswith(down) and ask(port, expression):
            sys.exit("FAILED: the master of a job that is done raises the alert %s" % expression)
    summary = json.loads((WORK / "out/summary.json").read_text())
    for key, answer in values.items():
        if len(answer) != 1 or abs(answer[0][1] - summary[key]) > 1e-6 * abs(summary[key]):
            sys.exit("FAILED: %s is %s at Prometheus, %s in the summary" % (key, answer, summary[key]))
    if abs(staleness[0][1] - summary["staleness_mean"]) > 1e-9:
        sys.exit(
            "FAILED: the mean staleness is %s at Prometheus, %s in the summary"
            % (staleness, summary["staleness_mean"])
        )
    counted = sum(count for value, count in summary["staleness_counts"] if value <= 2)
    if below_three[0][1] != counted:
        sys.exit(
            "FAILED: %s pushes have a staleness up to 2 at Prometheus, %s in the summary"
            % (below_three, counted)
        )
    print("PASSED:", {key: answer[0][1] for key, answer in values.items()})


try:
    main()
finally:
    for daemon in daemons.values():
        daemon.kill()
