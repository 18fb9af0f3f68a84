"""`catchment advise JOB|RUN_DIR|HOST:PORT`: says which preset, momentum and learning rate to take with a
number of workers, and how many servers, by simulating them all (trials.py), with the numbers behind it."""

import dataclasses
import os
from typing import Any, Dict, List, Optional, Sequence

from catchment.study import command_line, core, live, models, text
from catchment.study.command_line import Argument, CommandLine, Security, Streams, add_security_flags
from catchment.study.errors import Refused, Usage
from catchment.study.options import add_set_flag
from catchment.study.words import parts_of

from .advice_text import advice_json, advice_text
from .evidence import Evidence, evidence_of_job_file, evidence_of_run, evidence_of_status
from .recommendations import recommend


@dataclasses.dataclass
class _Options:
    subject: str = ""
    set: List[str] = dataclasses.field(default_factory=list)
    workers: int = 0  # 0: those of the subject
    servers: int = 0
    step: Optional[models.Distribution] = None
    network: Optional[models.NetworkModel] = None
    stragglers: List[models.StragglerModel] = dataclasses.field(default_factory=list)
    json: bool = False
    security: Security = dataclasses.field(default_factory=Security)
    report: Dict[str, Any] = dataclasses.field(default_factory=dict)  # of a running job

    def kind(self) -> str:
        """Returns "job", "run" or "master"."""
        if os.path.isdir(self.subject):
            return "master" if os.path.exists(self.subject + "/master.address") else "run"
        return "master" if ":" in self.subject and not os.path.exists(self.subject) else "job"

    def add_straggler(self, words: str) -> None:
        model = models.parse_straggler(words)
        if model.of_steps:
            raise Refused("needs slow workers; for slow steps give --step a larger spread")
        self.stragglers.append(model)

    def check(self) -> None:
        kind = self.kind()
        if self.set and kind != "job":
            raise Usage("--set changes a job file; the job of a run cannot be changed")
        if kind == "master":
            self.report = live.report(self.subject, self.security)


def _collect(options: _Options) -> Evidence:
    kind, report = options.kind(), options.report
    if report:
        if "error" not in report:
            return evidence_of_status(report)
        question = "\nIs the job running, and is %s the address of the server with index 0?"
        more = "" if report["code"] == "FAILED_PRECONDITION" else question % report["address"]
        raise Refused(report["error"] + more)
    if kind == "run":
        return evidence_of_run(options.subject)
    return evidence_of_job_file(options.subject, options.set, options.workers, max(1, options.servers))


def _override(options: _Options, evidence: Evidence) -> None:
    """Overrides the numbers of workers and servers, and drops measurements that do not apply to new ones."""
    before, servers = evidence.job.json["workers"], options.servers or evidence.servers
    # A job file has been read with them.
    other = options.workers > 0 and options.kind() != "job"
    workers = options.workers if other else before
    if (workers, servers) != (before, evidence.servers):
        evidence.compute_share = None
        change = ["workers=%d" % workers]
        evidence.job = core.edit(evidence.job, change, complete=False, servers=servers)
        evidence.servers = servers
    if options.stragglers:
        slow = [one for straggler in options.stragglers for one in straggler.slow_workers(workers)]
        evidence.slow = {worker: text.float32(times) for worker, times in slow}
    if options.step:
        evidence.step, evidence.step_source = options.step, "--step"
    if options.network:
        evidence.network, evidence.network_source = options.network, "--network"


def _run(options: _Options, streams: Streams) -> int:
    evidence = _collect(options)
    _override(options, evidence)
    recommendations = recommend(evidence, lambda words: streams.err.write(words + "\n"))
    if options.json:
        streams.out.write(text.to_json(advice_json(evidence, recommendations), 2) + "\n")
    else:
        streams.out.write(advice_text(evidence, recommendations))
    return 0


def main(args: Sequence[str], streams: Streams) -> int:
    """Runs a command line. Returns the exit code, which --help explains."""
    options, words = _Options(), parts_of("help/advise.txt")
    line = CommandLine("catchment advise", words["usage"], words["notes"], check=options.check)
    example = "examples/mnist_mlp.textproto --step=lognormal:50ms:0.3"
    line.argument = Argument("JOB|RUN_DIR|HOST:PORT", example, lambda word: setattr(options, "subject", word))
    step, network = models.parse_distribution, models.parse_network
    line.flags.declare(options, words["flags"], step=step, network=network, straggler=options.add_straggler)
    add_set_flag(options.set, line.flags)
    add_security_flags(options.security, line.flags)
    return command_line.run(line, args, streams, lambda: _run(options, streams))
