"""`catchment slurm JOB --nodes=N`: prints the script that trains a job on Slurm, or submits it. The script
starts deploy/slurm/catchment.sbatch on the first node, which starts the daemons."""

import dataclasses
import os
import shlex
import shutil
import subprocess
from typing import List, Sequence

from . import command_line, core, directory, files
from .command_line import Argument, CommandLine, Streams
from .errors import Refused, Usage
from .launchers.slurm import batch_script, parse_job_id
from .options import add_set_flag
from .words import parts_of

_WORDS = parts_of("help/slurm.txt")
# Flags that the batch script has, too.
_PASSED = ("out", "servers", "program", "device", "stage", "trace", "metrics_port")
_HEAD = "# Trains a job with Catchment; made by `catchment slurm`. Load the modules that it needs here."


def _lists() -> List[str]:
    return []


@dataclasses.dataclass
class _Options:
    job: str = ""  # file; may be empty with a program
    set: List[str] = dataclasses.field(default_factory=_lists)
    nodes: int = 1
    workers: int = 0  # 0: one for each GPU, or on each node
    threads: int = 1
    gpus_per_node: int = 0
    servers: int = 0  # 0: one on each node
    out: str = ""
    program: str = ""
    submit: bool = False
    resume: str = ""  # "auto" or "true"
    overwrite: bool = False
    requeue_at_limit: bool = False
    evaluator: bool = True
    name: str = ""
    partition: str = ""
    time: str = ""
    sbatch_flag: List[str] = dataclasses.field(default_factory=_lists)
    device: str = ""
    stage: str = ""
    trace: str = ""
    metrics_port: str = ""
    worker_flag: List[str] = dataclasses.field(default_factory=_lists)
    server_flag: List[str] = dataclasses.field(default_factory=_lists)
    insecure: bool = False


def _parse_resume(given: str) -> str:
    if given not in ("auto", "true"):
        raise Usage("takes auto or true")
    return given


def _check(o: _Options) -> None:
    if o.workers and o.gpus_per_node and o.workers != o.nodes * o.gpus_per_node:
        why = "each GPU has a worker, and %d nodes have %d GPUs; leave it out"
        raise Usage("--workers=%d: %s" % (o.workers, why % (o.nodes, o.nodes * o.gpus_per_node)))
    if o.resume and o.overwrite:
        raise Usage("--resume continues an earlier run and --overwrite deletes it: choose one")
    for flag in _sbatch_flags(o):
        if "\n" in flag:
            raise Usage("%r: a flag of sbatch has one line" % flag)
    summary = directory.summary_of(o.out) if o.out else None
    if summary and summary.get("phase") == "DONE" and not o.resume and not o.overwrite:
        ways = (
            "continue with --resume=auto, start again with --overwrite (deletes it), or choose another --out"
        )
        raise Usage("--out=%s contains the result of a finished run: %s" % (o.out, ways))


def _workers(o: _Options) -> int:
    return o.workers or o.nodes * max(o.gpus_per_node, 1)


def _sbatch_flags(o: _Options) -> List[str]:
    flags = ["--chdir=" + os.getcwd(), "--nodes=%d" % o.nodes]
    flags += ["--ntasks=%d" % _workers(o), "--cpus-per-task=%d" % o.threads]
    if o.gpus_per_node:
        flags += ["--ntasks-per-node=%d" % o.gpus_per_node, "--gpus-per-node=%d" % o.gpus_per_node]
    given = (("job-name", o.name), ("partition", o.partition), ("time", o.time))
    return flags + ["--%s=%s" % one for one in given if one[1]] + o.sbatch_flag


def _job_flags(o: _Options) -> List[str]:
    """Returns the flags of the batch script."""
    flags = ["--%s=%s" % (name, getattr(o, name)) for name in _PASSED if getattr(o, name)]
    flags += ["--worker-flag=" + flag for flag in o.worker_flag]
    flags += ["--server-flag=" + flag for flag in o.server_flag]
    flags += ["--set=" + change for change in o.set]
    if o.resume:
        flags.append("--resume=auto" if o.resume == "auto" else "--resume")
    switches = {
        "--overwrite": o.overwrite,
        "--requeue-at-limit": o.requeue_at_limit,
        "--insecure": o.insecure,
    }
    flags += [name for name, is_set in switches.items() if is_set]
    if not o.evaluator:
        flags.append("--no-evaluator")
    return flags + ([o.job] if o.job else [])


def _script(o: _Options) -> str:
    batch = batch_script()
    own = [line for line in files.text_or_empty_of(batch).splitlines() if line.startswith("#SBATCH ")]
    flags = ["#SBATCH " + shlex.quote(flag) for flag in _sbatch_flags(o)]
    command = " \\\n  ".join(map(shlex.quote, [batch, *_job_flags(o)]))
    return "\n".join(["#!/bin/bash", *own, *flags, _HEAD, "exec " + command]) + "\n"


def _validate(o: _Options, streams: Streams) -> None:
    """Refuses a job that is not valid, and prints the warnings about one that is."""
    argv = [core.binary(), "validate", *([o.job] if o.job else [])]
    argv += ["--servers=%d" % (o.servers or o.nodes), "--workers=%d" % _workers(o)]
    argv += ["--set=" + change for change in o.set]
    if o.program:
        argv.append("--program=" + o.program)
    done = subprocess.run(argv, capture_output=True, errors="replace")
    if done.returncode:
        raise Refused(done.stderr.strip())
    streams.err.write("".join(done.stdout.partition("\nwarnings\n")[1:]).lstrip("\n"))


def _submit(script: str, o: _Options, streams: Streams) -> None:
    sbatch = shutil.which("sbatch")
    if not sbatch:
        ways = "run the command on a login node of the cluster, or leave out --submit to print the script"
        raise Refused("--submit: no sbatch in PATH; " + ways)
    done = subprocess.run([sbatch, "--parsable"], input=script, capture_output=True, text=True)
    job = parse_job_id(done.stdout)
    if done.returncode or not job:
        raise Refused("Slurm refuses the job: " + (done.stderr or done.stdout).strip())
    streams.err.write(done.stderr)
    out = shlex.quote(o.out or "catchment-" + job)
    streams.out.write(
        "submitted as Slurm job %s, whose log is catchment-%s.log; once it runs:\n" % (job, job)
    )
    streams.out.write("  catchment status %s --watch\n  catchment stop %s\n" % (out, out))


def _run(o: _Options, streams: Streams) -> int:
    _validate(o, streams)
    script = _script(o)
    if o.submit:
        _submit(script, o, streams)
    else:
        streams.out.write_whole(script)
    return 0


def main(args: Sequence[str], streams: Streams) -> int:
    """Runs a command line. Returns the exit code, which --help explains."""
    options = _Options()
    line = CommandLine("catchment slurm", _WORDS["usage"], _WORDS["notes"])
    example = "examples/mnist_cnn.textproto --nodes=2 --workers=8 --out=out"
    line.argument = Argument(
        "JOB", example, lambda word: setattr(options, "job", word), lambda: bool(options.program)
    )
    lists = {name: getattr(options, name).append for name in ("sbatch_flag", "worker_flag", "server_flag")}
    line.flags.declare(options, _WORDS["flags"], resume=_parse_resume, **lists)
    add_set_flag(options.set, line.flags)
    line.check = lambda: _check(options)
    return command_line.run(line, args, streams, lambda: _run(options, streams))
