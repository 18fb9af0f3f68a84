"""Measures what it costs to watch a job, in processor time of its server and its two workers.

The job is an MLP of 128 units with minibatches of 64, `downpour`, one thread a worker. A pair is a run
without what is measured and one with it, in random order. The machine should do nothing else.

queries    --log_format=json, and `--times` a second `catchment status` from the master and a request to
           /metrics of each of the three processes. One a second, and one in 15 seconds, are usual: the cost
           that is printed is the measured one, divided by how many times more often `catchment status` was
           answered
page       `catchment watch`, with its page open: the content is fetched every second. The cost includes the
           processor time of the command, except for its start, and is that of the whole run
logs       --log_format=json alone
trace      --trace

Prints each pair's ratio, and the mean and the median of the costs with the bootstrap's intervals of 95 %. The
mean of a virtual machine depends on a few pairs, in which the host took processor time away.
"""

import os
import random
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import jobs

JOB = """
model {
  layers { flatten {} }
  layers { dense { units: 128 } }
  layers { relu {} }
  layers { dense { units: 10 } }
}
data { drawn_digits { train_samples: 4000 test_samples: 10 } }
algorithm { preset: "downpour" }
optimizer { learning_rate: 0.01 }
batch_size: 64
samples: %d
workers: 2
checkpoint { every_updates: 0 }
"""
FLAGS = dict(what=("queries", "page", "logs", "trace"), pairs=20, samples=400000, times=20.0)
NORMAL = dict(status=1.0, metrics=1 / 15)  # a second


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Run:
    """A server and two workers. flags: of all three. times: how many times more often than normal it is
    queried; 1 where it is not."""

    times = metrics_times = 1

    def __init__(self, args, flags=(), metrics=False):
        self.args = args
        with tempfile.TemporaryDirectory() as self.directory:
            port, *self.metrics_ports = free_ports(4)
            self.master = "127.0.0.1:%d" % port
            job = os.path.join(self.directory, "job.textproto")
            with open(job, "w") as file:
                file.write(JOB % args.samples)
            commands = [
                [
                    "server/catchment_server",
                    "--job=" + job,
                    "--servers=" + self.master,
                    "--out=" + os.path.join(self.directory, "out"),
                ]
            ]
            commands += [["worker/catchment_worker", "--master=" + self.master]] * 2
            begin = time.monotonic()
            self.processes = [
                self._start(index, command, flags, metrics) for index, command in enumerate(commands)
            ]
            self.usages = [os.wait4(process.pid, 0) for process in self.processes]
            self.seconds = time.monotonic() - begin
            for (_, status, _), log in zip(self.usages, ("0", "1", "2")):
                if status != 0:
                    raise RuntimeError(open(os.path.join(self.directory, log + ".log")).read())
            self.cost = sum(usage.ru_utime + usage.ru_stime for _, _, usage in self.usages)

    def _start(self, index, command, flags, metrics):
        more = ["--metrics_port=%d" % self.metrics_ports[index]] if metrics else []
        with open(os.path.join(self.directory, "%d.log" % index), "w") as log:
            return subprocess.Popen(
                [jobs.program(self.args, command[0]), *command[1:], *flags, *more], stdout=log, stderr=log
            )


class Queries:
    """Asks the master for its status, and all three processes for their metrics."""

    def __init__(self, args, run):
        self.answers = dict(status=0, metrics=0)
        self._args, self._run, self._end = args, run, threading.Event()
        asking = [("status", self._status)]
        asking += [("metrics", lambda port=port: self._metrics(port)) for port in run.metrics_ports]
        self._threads = [threading.Thread(target=self._ask, args=one) for one in asking]
        for thread in self._threads:
            thread.start()

    def _ask(self, kind, ask):
        while not self._end.wait(1 / self._args.times):
            self.answers[kind] += ask()

    def _status(self):
        command = [jobs.program(self._args, "cli/catchment"), "status", self._run.master, "--json"]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def _metrics(self, port):
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as answer:
                return len(answer.read()) > 0
        except OSError:
            return False

    def stop(self):
        self._end.set()
        for thread in self._threads:
            thread.join()


class QueriedRun(Run):
    def __init__(self, args):
        self.queries = None
        super().__init__(args, ["--log_format=json"], metrics=True)
        self.queries.stop()
        self.times = self.queries.answers["status"] / self.seconds / NORMAL["status"]
        self.metrics_times = self.queries.answers["metrics"] / 3 / self.seconds / NORMAL["metrics"]

    def _start(self, index, *arguments):
        process = super()._start(index, *arguments)
        if index == 2:
            self.queries = Queries(self.args, self)
        return process


def processor_seconds(pid):
    """Returns the processor time of a process and of its children."""
    with open("/proc/%d/stat" % pid) as stat, open("/proc/%d/task/%d/children" % (pid, pid)) as children:
        ticks = sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK") + sum(
            map(processor_seconds, map(int, children.read().split()))
        )


class PageRun(Run):
    """Is followed by a page, as the browser updates it."""

    def __init__(self, args):
        super().__init__(args)
        self._thread.join()
        self.cost += self.page_share * self.seconds

    def _start(self, index, *arguments):
        process = super()._start(index, *arguments)
        if index == 2:
            self._thread = threading.Thread(target=self._follow, args=[process])
            self._thread.start()
        return process

    def _follow(self, worker):
        out = os.path.join(self.directory, "out")
        while not os.path.exists(os.path.join(out, "master.address")):
            time.sleep(0.1)
        command = [jobs.program(self.args, "cli/catchment"), "watch", out, "--port=0"]
        watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        content, tag = watch.stdout.readline().strip().replace("/?", "/content?"), ""
        begin = None
        while os.path.exists(out) and worker.returncode is None:
            tag = self._fetch(content, tag)
            now = time.monotonic(), processor_seconds(watch.pid)
            begin = begin or now
            if now[0] - begin[0] >= 1:
                self.page_share = (now[1] - begin[1]) / (now[0] - begin[0])
            time.sleep(1)
        watch.send_signal(signal.SIGINT)
        watch.wait()

    @staticmethod
    def _fetch(content, tag):
        request = urllib.request.Request(content, headers={"If-None-Match": tag})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                answer.read()
                return answer.headers["ETag"]
        except urllib.error.HTTPError:
            return tag  # nothing has changed


def with_interval(mean, values):
    """Returns "0.7 % (0.1 to 1.3)", with the interval of 95 % of the bootstrap. `mean`: of values."""
    drawn = sorted(mean(random.choices(values, k=len(values))) for _ in range(10000))
    return "%.2f %% (%.2f to %.2f)" % (100 * mean(values), 100 * drawn[249], 100 * drawn[9749])


def run_watched(args, what):
    if what == "queries":
        return QueriedRun(args)
    if what == "page":
        return PageRun(args)
    if what == "logs":
        return Run(args, ["--log_format=json"])
    with tempfile.TemporaryDirectory() as directory:
        return Run(args, ["--trace=" + directory])


def run(args):
    for what in args.what:
        costs, plain_costs = [], []
        for _ in range(args.pairs):
            runs = {}
            for kind in random.sample(("plain", "watched"), 2):
                runs[kind] = Run(args) if kind == "plain" else run_watched(args, what)
            plain, watched = runs["plain"], runs["watched"]
            cost = watched.cost / plain.cost - 1
            # Metrics are asked for more often than status is, compared with the normal rates.
            costs.append(cost / watched.times)
            plain_costs.append(plain.cost)
            yield dict(
                what=what,
                plain=plain.cost,
                watched=watched.cost,
                ratio=round(1 + cost, 4),
                seconds=round(plain.seconds, 1),
                watched_seconds=round(watched.seconds, 1),
                page_processors=round(getattr(watched, "page_share", 0), 5),
                times=round(watched.times, 1),
                metrics_times=round(watched.metrics_times, 1),
            )
        print(
            "%s: mean %s, median %s of %.3g s, %d pairs"
            % (
                what,
                with_interval(statistics.fmean, costs),
                with_interval(statistics.median, costs),
                statistics.fmean(plain_costs),
                args.pairs,
            )
        )
