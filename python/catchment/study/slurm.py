"""`catchment slurm JOB --nodes=N`: prints the script that trains a job on Slurm, or submits it. The script
starts deploy/slurm/catchment.sbatch on the first node, which starts the daemons. With --workers_partition the
job is two of Slurm, those of servers.sbatch and workers.sbatch, and the script submits both."""

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
_DAEMONS = (
    "program",
    "stage",
    "trace",
    "metrics_port",
)  # those that workers.sbatch has, too, beside `device`
_HEAD = "# Trains a job with Catchment; made by `catchment slurm`. Load the modules that it needs here."
_BOTH_HEAD = (
    "# Submits a job's servers and its workers to two partitions of Slurm; made by `catchment slurm`."
)
_SERVERS = "$servers"  # in the command of the workers: the number of the servers' Slurm job


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
    servers_partition: str = ""
    workers_partition: str = ""
    server_cores: int = 4  # of each server in a partition of its own
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


def _check_two_partitions(o: _Options) -> None:
    if o.partition or not (o.servers_partition and o.workers_partition):
        raise Usage("give --servers_partition and --workers_partition, or --partition for all in one job")
    if not o.workers or not o.out:
        raise Usage("with --workers_partition both --workers=N and --out=DIR are needed")
    if o.gpus_per_node and o.workers % o.gpus_per_node:
        why = "each GPU has a worker, and a task of the array has %d GPUs" % o.gpus_per_node
        raise Usage("--workers=%d: %s" % (o.workers, why))
    if "%a" in o.out:
        raise Usage("--out=%s: the array is one of workers, which share a directory" % o.out)


def _check(o: _Options) -> None:
    if o.servers_partition or o.workers_partition:
        _check_two_partitions(o)
    elif o.workers and o.gpus_per_node and o.workers != o.nodes * o.gpus_per_node:
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


def _layout(nodes: int, tasks: int, cores: int, gpus_per_node: int = 0) -> List[str]:
    flags = ["--nodes=%d" % nodes, "--ntasks=%d" % tasks, "--cpus-per-task=%d" % cores]
    if gpus_per_node:
        flags += ["--ntasks-per-node=%d" % gpus_per_node, "--gpus-per-node=%d" % gpus_per_node]
    return flags


def _common_flags(o: _Options, name: str, partition: str) -> List[str]:
    given = (("job-name", name), ("partition", partition), ("time", o.time))
    return ["--%s=%s" % one for one in given if one[1]] + o.sbatch_flag


def _sbatch_flags(o: _Options) -> List[str]:
    flags = ["--chdir=" + os.getcwd(), *_layout(o.nodes, _workers(o), o.threads, o.gpus_per_node)]
    return flags + _common_flags(o, o.name, o.partition)


def _passed(o: _Options, names: Sequence[str]) -> List[str]:
    return ["--%s=%s" % (name, getattr(o, name)) for name in names if getattr(o, name)]


def _job_flags(o: _Options) -> List[str]:
    """Returns the flags of the batch script."""
    flags = _passed(o, [name for name in _PASSED if name != "device" or not o.workers_partition])
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


def _servers_command(o: _Options) -> List[str]:
    """Returns the command that submits the servers."""
    servers = o.servers or o.nodes
    command = ["sbatch", "--parsable", "--chdir=" + os.getcwd()]
    command += _layout(o.nodes, max(servers, o.nodes), o.server_cores)
    command += _common_flags(o, o.name and o.name + "-servers", o.servers_partition)
    script = os.path.dirname(batch_script()) + "/servers.sbatch"
    return [*command, script, "--workers=%d" % o.workers, *_job_flags(o)]


def _workers_command(o: _Options, servers: str) -> List[str]:
    """Returns the command that submits the workers of a job whose servers are the Slurm job `servers`."""
    tasks = max(o.gpus_per_node, 1)
    command = ["sbatch", "--parsable", "--chdir=" + os.getcwd(), "--array=1-%d" % (o.workers // tasks)]
    # Slurm holds them back until the servers start.
    command += ["--dependency=after:" + servers, *_layout(1, tasks, o.threads, o.gpus_per_node)]
    command += _common_flags(o, o.name and o.name + "-workers", o.workers_partition)
    command += [os.path.dirname(batch_script()) + "/workers.sbatch", "--servers-job=" + servers]
    command += _passed(o, ("out", "device", *_DAEMONS)) + ["--worker-flag=" + flag for flag in o.worker_flag]
    return command + ["--insecure"] * o.insecure


def _both_script(o: _Options) -> str:
    known_later = ("--dependency=after:" + _SERVERS, "--servers-job=" + _SERVERS)

    def shell(command: Sequence[str]) -> str:
        return " \\\n  ".join(word if word in known_later else shlex.quote(word) for word in command)

    lines = ["#!/bin/bash", _BOTH_HEAD, "set -e"]
    # With several clusters Slurm prints NUMBER;CLUSTER.
    lines += ["servers=$(" + shell(_servers_command(o)) + ")", "servers=${servers%%;*}"]
    lines += ["workers=$(" + shell(_workers_command(o, _SERVERS)) + ")"]
    return "\n".join([*lines, 'echo "submitted as Slurm jobs $servers and ${workers%%;*}"']) + "\n"


def _check_partitions(o: _Options) -> None:
    """Refuses partitions that the cluster does not have, if this machine can tell."""
    sinfo = shutil.which("sinfo")
    if not sinfo:
        return
    done = subprocess.run([sinfo, "--noheader", "--format=%R"], capture_output=True, text=True)
    there = sorted(set(done.stdout.split()))
    for flag in ("servers_partition", "workers_partition"):
        # Slurm takes several, of which it uses one.
        for name in getattr(o, flag).split(","):
            if there and name not in there:
                raise Refused("--%s: Slurm has no partition %s; it has %s" % (flag, name, ", ".join(there)))


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


def _sbatch(command: Sequence[str], script: str, streams: Streams) -> str:
    """Submits a job, and returns its number."""
    if not shutil.which("sbatch"):
        ways = "run the command on a login node of the cluster, or leave out --submit to print the script"
        raise Refused("--submit: no sbatch in PATH; " + ways)
    done = subprocess.run(command, input=script, capture_output=True, text=True)
    job = parse_job_id(done.stdout)
    if done.returncode or not job:
        raise Refused("Slurm refuses the job: " + (done.stderr or done.stdout).strip())
    streams.err.write(done.stderr)
    return job


def _submit_both(o: _Options, streams: Streams) -> None:
    servers = _sbatch(_servers_command(o), "", streams)
    try:
        workers = _sbatch(_workers_command(o, servers), "", streams)
    except Refused as error:
        subprocess.run(["scancel", servers], capture_output=True)
        raise Refused("%s; job %s, the servers', is cancelled" % (error.message, servers)) from error
    logs = "logs are catchment-servers-%s.log and catchment-workers-%s_*.log" % (servers, workers)
    out = shlex.quote(o.out)
    text = "submitted as Slurm jobs %s, the servers, and %s, the workers, whose %s; once it runs:\n"
    streams.out.write(text % (servers, workers, logs))
    streams.out.write("  catchment status %s --watch\n  catchment stop %s\n" % (out, out))


def _submit(script: str, o: _Options, streams: Streams) -> None:
    job = _sbatch(["sbatch", "--parsable"], script, streams)
    out = shlex.quote(o.out or "catchment-" + job)
    streams.out.write(
        "submitted as Slurm job %s, whose log is catchment-%s.log; once it runs:\n" % (job, job)
    )
    streams.out.write("  catchment status %s --watch\n  catchment stop %s\n" % (out, out))


def _run(o: _Options, streams: Streams) -> int:
    if o.workers_partition:
        _check_partitions(o)
    _validate(o, streams)
    if o.workers_partition and o.submit:
        _submit_both(o, streams)
        return 0
    script = _both_script(o) if o.workers_partition else _script(o)
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
