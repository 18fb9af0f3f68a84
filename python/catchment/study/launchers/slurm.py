"""Runs as jobs of Slurm, each of which executes deploy/slurm/catchment.sbatch in the run's directory, which
all nodes must see.

All runs are submitted at once, and those that follow one when it has ended. If Slurm refuses one while others
have not ended, it is submitted again after the next one has. A run's directory has the number of its job, so
that a later command waits for a job that has not ended instead of submitting another. A job that is lost (a
node failed, it was preempted, Slurm has forgotten it) is submitted again. A signal ends the command and
leaves the jobs.
"""

import contextlib
import dataclasses
import glob
import os
import re
import shutil
import time
from typing import Dict, List, NamedTuple, Sequence, Tuple

from catchment.study import core, directory, files, launchers, run_directory, runs
from catchment.study.errors import Refused, Usage
from catchment.study.options import CompareOptions
from catchment.study.plan import PlannedRun
from catchment.study.processes import SignalWaiter
from catchment.study.run_result import text_or_empty
from catchment.study.text import plural

# Files within a run's directory, which prepare_run deletes.
_SBATCH_LOG = "/logs/sbatch.log"  # what sbatch printed: the job's number
_BATCH_LOG = "/logs/slurm.log"  # of the batch script
_MOST_SUBMISSIONS = 5  # of one run by one command
_NOT_SHARED = (
    "Slurm job %s ended as %s, and left no %s%s: the nodes of the cluster cannot access this directory; "
    "choose an --out on a file system that this machine and all nodes share"
)
_NO_LAYOUT = (
    "--gpus_per_node=%d: %s cannot be divided equally between at most %s with %s each; give more --nodes, or "
    "other --workers"
)
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY")
# By no fault of the job; empty: Slurm does not know it.
_LOST = ("", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "LAUNCH_FAILED", "REVOKED")


def check_for_slurm(options: CompareOptions) -> None:
    """Refuses a flag of a comparison that runs on Slurm do not support, or a number of workers for which
    there is no layout."""
    if options.stall_seconds != CompareOptions().stall_seconds:
        remedy = "leave the flag out, and set SBATCH_TIMELIMIT in the environment"
        raise Usage("--stall_seconds: Slurm's time limit ends a run; " + remedy)
    for workers in options.workers:
        lay_out(options, workers)


def lay_out(options: CompareOptions, workers: int) -> Tuple[int, int]:
    """Returns the nodes of a run and the GPUs, as many as workers, on each; 0: none. Without GPUs: --nodes
    nodes, or one for each worker if that is fewer. With GPUs: the fewest nodes that the workers can be
    divided equally between, with at most --gpus_per_node on each."""
    most, gpus = max(options.nodes, 1), options.gpus_per_node
    if gpus == 0:
        return min(most, workers), 0
    for nodes in range(1, most + 1):
        if workers % nodes == 0 and workers // nodes <= gpus:
            return nodes, workers // nodes
    raise Usage(_NO_LAYOUT % (gpus, plural(workers, "worker"), plural(most, "node"), plural(gpus, "GPU")))


class SlurmPrograms(NamedTuple):
    """The files that submit a run, with their paths."""

    sbatch: str
    squeue: str
    scancel: str
    script: str  # deploy/slurm/catchment.sbatch


def batch_script() -> str:
    """Returns the path of deploy/slurm/catchment.sbatch in the installation of the program."""
    binary = os.path.realpath(shutil.which(core.binary()) or "")
    script = os.path.dirname(os.path.dirname(binary)) + "/deploy/slurm/catchment.sbatch"
    if not os.path.exists(script):
        ways = (
            "use a wheel (deploy/wheel.sh) or a bundle (deploy/bundle.sh) on a file system that all nodes see"
        )
        raise Refused("no %s; %s" % (script, ways))
    return script


def find_programs() -> SlurmPrograms:
    """Finds Slurm's commands in $PATH, and the batch script in the bundle of the program."""
    remedy = "run the command on a login node of the cluster"
    sbatch, squeue, scancel = (
        launchers.find("slurm", name, remedy) for name in ("sbatch", "squeue", "scancel")
    )
    return SlurmPrograms(sbatch, squeue, scancel, batch_script())


def sbatch_command(
    programs: SlurmPrograms, options: CompareOptions, run: PlannedRun, directory: str
) -> List[str]:
    """Returns the command that submits a run with the job `directory`/job.textproto. A job whose node is lost
    is not put into the queue again by Slurm: without a checkpoint it starts again, in an empty directory."""
    nodes, gpus = lay_out(options, run.workers)
    command = [programs.sbatch, "--parsable", "--no-requeue", "--job-name=" + os.path.basename(run.directory)]
    command.append("--output=" + directory + _BATCH_LOG)
    command += ["--nodes=%d" % nodes, "--ntasks=%d" % run.workers, "--cpus-per-task=%d" % options.threads]
    if gpus:
        command += ["--ntasks-per-node=%d" % gpus, "--gpus-per-node=%d" % gpus]
    if options.partition:
        command.append("--partition=" + options.partition)
    command += [programs.script, "--out=" + directory, "--servers=%d" % options.servers]
    if options.program:
        command.append("--program=" + options.program)
    return [*command, directory + "/job.textproto"]


def parse_job_id(output: str) -> str:
    """Returns the job's number in the output of sbatch, NUMBER or NUMBER;CLUSTER beside warnings; empty if
    there is none."""
    return str(["", *re.findall(r"^([0-9]+)(?:;.*)?$", output, re.MULTILINE)][-1])


def parse_queue(output: str) -> Dict[str, str]:
    """Returns the state of each job: {"12": "RUNNING"}."""
    return dict(re.findall(r"^ *([0-9]+) +([^ \n]+) *$", output, re.MULTILINE))


def _read_queue(squeue: str, directory: str) -> Dict[str, str]:
    command = [squeue, "--me", "--noheader", "--states=all", "--format=%i %T"]
    return parse_queue(launchers.execute_or_refuse(command, directory + "/squeue.log"))


def _recorded_job(path: str) -> str:
    """Returns the number of the job that was last submitted for the run in this directory; empty if there is
    none."""
    return parse_job_id(files.text_or_empty_of(path + _SBATCH_LOG))


def _is_active(queue: Dict[str, str], job: str) -> bool:
    """Returns whether a job waits, runs, or is about to end."""
    return bool(job) and queue.get(job, "") not in _ENDED + _LOST


def check_no_jobs(out: str) -> None:
    """Refuses if Slurm jobs of a comparison in the directory `out`, which is to be deleted, have not
    ended."""
    jobs = [_recorded_job(path) for path in sorted(glob.glob(glob.escape(out) + "/*/*"))]
    squeue = shutil.which("squeue")
    queue = _read_queue(squeue, out) if squeue and any(jobs) else {}
    active = [job for job in jobs if queue and _is_active(queue, job)]
    if active:
        ways = "cancel them with `scancel %s`, or choose another --out" % " ".join(active)
        raise Refused("--overwrite: Slurm jobs that write to %s have not ended; %s" % (out, ways))


@dataclasses.dataclass
class _OpenRun:
    """A run that has not ended."""

    run: PlannedRun
    path: str
    job: str = ""  # its number; empty: it is to be submitted
    submissions: int = 0  # by this command
    ended_at: float = -1  # when its job was first seen to have ended; -1: not yet
    refusal: str = ""  # why it could not be submitted


class SlurmLauncher(launchers.Launcher):
    concurrent = True
    poll_seconds = 5.0  # between two requests for the queue
    silence_seconds = 600.0  # without an answer to them
    # Until the files of a job that has ended are seen here: networked file systems cache directories.
    visible_seconds = 60.0

    def __init__(self, options: CompareOptions, programs: SlurmPrograms, signals: SignalWaiter) -> None:
        self._options, self._programs, self._signals = options, programs, signals

    def launch(self, planned: Sequence[PlannedRun], work: runs.Work) -> None:
        self._following, self._directory, self._progress = work.following, work.directory, work.progress
        self._open: List[_OpenRun] = []
        self._submit = True  # a job has ended since the last submission
        self._queue = _read_queue(self._programs.squeue, work.directory.path)
        for run in planned:
            self._open_run(run)
        while True:
            self._submit_all()
            if not self._open:
                return
            self._await_queue()
            self._update()

    def _open_run(self, run: PlannedRun) -> None:
        """Opens a run. Waits for the job that an earlier command has submitted, if it has not ended."""
        opened = _OpenRun(run, os.path.abspath(self._directory.path_of(run)))
        self._open.append(opened)
        job = _recorded_job(opened.path)
        if not _is_active(self._queue, job):
            return
        if files.text_or_empty_of(opened.path + "/job.textproto") != run.job.text:
            text = "Slurm job %s trains another job in %s; cancel it with `scancel %s`"
            raise Refused(text % (job, opened.path, job))
        opened.job = job
        self._progress.note("%s: is Slurm job %s already" % (runs.label_of(run), job))

    def _submit_all(self) -> None:
        """Submits all runs without a job. If no run has one then, all have failed."""
        while self._submit:
            self._submit = False
            for opened in self._open:
                if not opened.job:
                    self._submit_run(opened)
            if self._open and not any(opened.job for opened in self._open):
                # No run has a job whose end could make room for the others.
                refused, self._open = self._open, []
                self._end_all([(opened, "failed: " + opened.refusal) for opened in refused])
                self._submit = bool(self._open)

    def _submit_run(self, opened: _OpenRun) -> None:
        runs.prepare_run(opened.run, self._directory)
        command = sbatch_command(self._programs, self._options, opened.run, opened.path)
        try:
            # The record of the job is what sbatch itself has written, so that it is there even if this
            # command is killed.
            output = launchers.execute_or_refuse(command, opened.path + _SBATCH_LOG)
            opened.job = parse_job_id(output)
            opened.refusal = "sbatch printed no number of a job:" + launchers.quote_last(output)
        except Refused as error:
            opened.refusal = error.message
        if opened.job:
            opened.submissions, opened.ended_at = opened.submissions + 1, -1
            self._progress.note("%s: submitted as Slurm job %s" % (runs.label_of(opened.run), opened.job))

    def _await_queue(self) -> None:
        """Reads the queue after a pause."""
        begin = time.monotonic()
        while True:
            number = launchers.await_request_to_end(self.poll_seconds, self._signals)
            if number:
                jobs = self._jobs()
                self._progress.note("Slurm jobs %s continue; `scancel %s` cancels them" % (jobs, jobs))
                raise launchers.Interrupted(number)
            try:
                self._queue = _read_queue(self._programs.squeue, self._directory.path)
                return
            except Refused as error:
                if time.monotonic() - begin >= self.silence_seconds:
                    text = "%s\nSlurm jobs %s may continue; the same command waits for them"
                    raise Refused(text % (error.message, self._jobs())) from error

    def _update(self) -> None:
        """Ends the runs that have ended. Runs whose jobs were lost have none then. Refused, after cancelling
        all jobs, if the nodes do not see the directory."""
        ended, problems = [], []
        for opened in [opened for opened in self._open if opened.job]:
            try:
                result = self._result_of(opened)
            except Refused as error:
                problems.append(error)
                continue
            self._submit = self._submit or bool(result) or not opened.job
            if result:
                ended.append((opened, result))
        self._open = [one for one in self._open if all(one is not opened for opened, _ in ended)]
        self._end_all(ended)
        if problems:
            # The other jobs would fail in the same way.
            with contextlib.suppress(Refused):
                command = [self._programs.scancel, *self._jobs().split()]
                launchers.execute_or_refuse(command, self._open[0].path + "/logs/scancel.log")
            raise problems[0]

    def _result_of(self, opened: _OpenRun) -> str:
        """Returns the result of a run in words; empty if it has not ended."""
        state = self._queue.get(opened.job, "")
        if _is_active(self._queue, opened.job):
            return ""
        if directory.outcome_of(opened.run, opened.path) is not directory.RunOutcome.NONE:
            return runs.result_line(opened.path)
        if state in _LOST and opened.submissions < _MOST_SUBMISSIONS:
            why = state or "Slurm does not know it"
            lost = (runs.label_of(opened.run), opened.job, why)
            self._progress.note("%s: Slurm job %s was lost (%s)" % lost)
            opened.job = ""
            return ""
        has_log = os.path.exists(opened.path + _BATCH_LOG)
        if state == "COMPLETED" or (state == "FAILED" and not has_log):
            if opened.ended_at < 0:
                opened.ended_at = time.monotonic()
            if time.monotonic() - opened.ended_at < self.visible_seconds:
                return ""
            if not has_log:
                raise Refused(_NOT_SHARED % (opened.job, state, opened.path, _BATCH_LOG))
        return _describe_failure(opened.job, state, opened.path)

    def _end_all(self, ended: Sequence[Tuple[_OpenRun, str]]) -> None:
        """Reports runs with their results, and opens those that follow."""
        for opened, result in ended:
            self._progress.begin(runs.label_of(opened.run))
            self._progress.end(result)
            run_directory.delete_run_checkpoints(opened.path)
            for run in self._following(opened.run):
                self._open_run(run)

    def _jobs(self) -> str:
        """Returns the numbers of the jobs: "12 13"."""
        return " ".join(opened.job for opened in self._open if opened.job)


def _describe_failure(job: str, state: str, path: str) -> str:
    phase, log = text_or_empty(directory.summary_of(path) or {}, "phase"), path + _BATCH_LOG
    if phase == "FAILED":
        return runs.result_line(path)
    end = state or "lost"
    if state == "TIMEOUT" or phase == "STOPPED":
        end += " before its budget was spent; SBATCH_TIMELIMIT in the environment sets its time limit"
    quoted = launchers.quote_last(files.text_or_empty_of(log))
    return "failed: Slurm job %s ended as %s; the last lines of %s:%s" % (job, end, log, quoted)
