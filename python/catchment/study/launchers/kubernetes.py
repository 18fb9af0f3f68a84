"""Runs on Kubernetes, one after another: kubectl applies the manifests of each in its current cluster and
namespace, and deletes them when it has copied the run's results from the volume.

All runs have the name `catchment`, so that a namespace has one run. Its ConfigMap catchment-job says which: a
later command waits for a run that an earlier one has applied, instead of applying it again. A signal ends the
command and leaves the run. A run that fails or does not progress is deleted.
"""

import contextlib
import os
import re
import tempfile
import time
from typing import Optional, Sequence

from catchment.study import core, files, launchers, runs
from catchment.study.directory import MANIFESTS
from catchment.study.errors import Refused, Usage
from catchment.study.options import SITE_FLAGS, CompareOptions
from catchment.study.plan import PlannedRun
from catchment.study.processes import SignalWaiter, shell_quoted
from catchment.study.text import to_json

_MASTER = "catchment-server-0"
# Pods have up to two minutes to end (terminationGracePeriodSeconds), then volumes are deleted.
_DELETE_SECONDS = 300
# The files that are copied from a run's volume. The summary is last: a run that has one counts as done.
_RESULTS = ("model.safetensors", "model-best.safetensors", "metrics.jsonl", "summary.json")
_LIST_RESULTS = "cd /out && for file in %s; do [ ! -e $file ] || echo result=$file; done" % " ".join(_RESULTS)
# Prints the progress of a run, which changes while it trains, and the phase in its summary, in the shell of a
# server's container.
_STATE_COMMAND = (
    "echo progress=$(tail -n 1 /out/metrics.jsonl | grep -o '\"samples\": *[0-9]*'); "
    "echo phase=$(grep -o '\"phase\": *\"[A-Z]*\"' /out/summary.json | grep -o '[A-Z][A-Z]*')"
)
_UNREACHABLE = (
    "\nkubectl's current cluster and namespace must be reachable (`kubectl config current-context`)"
)
_OTHER_JOB = (
    "kubectl's namespace has another job of Catchment (%s); delete it with `%s`, or choose another namespace "
    "with `kubectl config set-context --current --namespace=NAME`"
)
_NOT_A_NAME = (
    "must be 1 to 253 lower-case letters, digits and '-', with '.' between them, and begin and end with a "
    "letter or a digit"
)
_KUSTOMIZATION = """\
# Made by catchment compare: a run.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - run.yaml
"""


def check_for_kubernetes(options: CompareOptions) -> None:
    """Refuses a flag of a comparison that runs on Kubernetes do not support, or a directory that is not an
    overlay."""
    if not options.image:
        example = "registry.example/catchment:0.1.0; build it with deploy/container/Dockerfile of a bundle"
        raise Usage("--image=IMAGE is required: the image of all Pods, such as " + example)
    if not re.fullmatch("[!-~]+", options.image):
        raise Usage("--image=%s: an image has no spaces in its name" % options.image)
    if options.cert_manager and options.tls_secret:
        raise Usage("--tls_secret and --cert_manager are mutually exclusive: give one of them")
    for flag, name in options.given_flags(SITE_FLAGS[1:]).items():
        if len(name) > 253 or not re.fullmatch("[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name):
            raise Usage("--%s=%s: %s" % (flag, name, _NOT_A_NAME))
    overlay = options.overlay
    if overlay and not os.path.exists(overlay + "/kustomization.yaml"):
        missing = "there is no %s/kustomization.yaml; it has `kind: Component` and your patches" % overlay
        raise Usage("--overlay=%s: %s" % (overlay, missing))
    if options.program:
        others = "give a job whose model is `layers`, or train on this machine or on Slurm"
        raise Usage("--program: is not supported with --launcher=kubectl; " + others)


def find_program() -> str:
    return launchers.find("kubectl", "kubectl", "install it (Debian: kubernetes-client)")


def write_manifests(options: CompareOptions, run: PlannedRun, directory: str) -> None:
    """Writes the manifests of a run to `directory`/manifests. `directory` is absolute; the ConfigMap
    catchment-job has it as `run`."""
    path = directory + MANIFESTS
    files.create_directory(path)
    kustomization = _KUSTOMIZATION
    if options.overlay:
        # kubectl does not accept absolute paths of components.
        overlay = to_json(os.path.relpath(os.path.realpath(options.overlay), os.path.realpath(path)))
        kustomization += "components:\n  - %s\n" % overlay
    files.write_file(path + "/job.textproto", run.job.text)
    flags = dict(options.given_flags(SITE_FLAGS), servers=options.servers, threads=options.threads)
    arguments = ["--%s=%s" % flag for flag in [*flags.items(), ("run", directory)]]
    command = [core.binary(), "manifests", path + "/job.textproto", *arguments]
    launchers.execute_or_refuse(command, path + "/run.yaml")
    files.write_file(path + "/kustomization.yaml", kustomization)


def value_of(key: str, output: str) -> Optional[str]:
    """Returns what follows `key` and = on the last line that begins with them; None if there is none. kubectl
    prints warnings on other lines."""
    values = [line[len(key) + 1 :] for line in output.split("\n") if line.startswith(key + "=")]
    return values[-1] if values else None


class KubectlLauncher(launchers.SequentialLauncher):
    poll_seconds = 5.0  # between two requests for the state of a run

    def __init__(self, options: CompareOptions, kubectl: str, signals: SignalWaiter) -> None:
        self._options, self._kubectl_path, self._signals = options, kubectl, signals

    def launch(self, planned: Sequence[PlannedRun], work: runs.Work) -> None:
        directory, self._progress = work.directory, work.progress
        self._log = directory.path + "/kubectl.log"  # what kubectl printed last
        active = self._find_run(os.path.abspath(directory.path))

        def is_applied(run: PlannedRun) -> bool:
            path = os.path.abspath(directory.path_of(run))
            job = files.text_or_empty_of(path + MANIFESTS + "/job.textproto")
            return path == active and job == run.job.text

        ordered = sorted(planned, key=lambda run: not is_applied(run))
        # The directory of the run that an earlier command has applied; empty: there is none.
        self._applied = active if is_applied(ordered[0]) else ""
        super().launch(ordered, work)

    def _find_run(self, comparison: str) -> str:
        """Returns the directory of the run of this comparison that is in the cluster; empty if there is
        none."""
        query = ("--ignore-not-found", "--output", r'jsonpath={"run="}{.data.run}{"\n"}')
        try:
            output = self._kubectl("get", "configmap", "catchment-job", *query)
        except Refused as error:
            raise Refused(error.message + _UNREACHABLE) from error
        run = value_of("run", output)
        if run is None or run.startswith(comparison + "/"):
            return run or ""
        command = _delete_command(run) if run else "kubectl delete -f FILE"
        raise Refused(_OTHER_JOB % (run or "not of a comparison", command))

    def train(self, run: PlannedRun, work: runs.Work) -> None:
        path, progress = os.path.abspath(work.directory.path_of(run)), work.progress
        applied, self._applied = self._applied, ""
        if path == applied:
            progress.note("%s: is already in the cluster" % runs.label_of(run))
        else:
            runs.prepare_run(run, work.directory)
            write_manifests(self._options, run, path)
            # An earlier run whose command was killed before it had deleted all of it has the same names.
            self._delete_run(path)
            self._kubectl("apply", "-k", path + MANIFESTS)
            progress.note("%s: applied; `kubectl get pods` shows its Pods" % runs.label_of(run))
        result = self._await_end(path)
        progress.begin(runs.label_of(run))
        progress.end(result)
        self._delete_run(path)

    def _await_end(self, path: str) -> str:
        """Waits until the run has ended, and returns its result in words."""
        stall = self._options.stall_seconds
        uncollected, since, progress = "", time.monotonic(), ""
        while True:
            number = launchers.await_request_to_end(self.poll_seconds, self._signals)
            if number:
                command = _delete_command(path)
                self._progress.note("The run continues in the cluster; `%s` ends it" % command)
                raise launchers.Interrupted(number)
            state = ""
            with contextlib.suppress(Refused):
                state = self._in_server(_STATE_COMMAND)
            if value_of("phase", state) in ("DONE", "FAILED"):
                try:
                    self._collect_results(path)
                    return runs.result_line(path)
                except Refused as error:
                    uncollected = "; copying its results failed: " + error.message
            now = value_of("progress", state)
            if now is not None and now != progress:
                progress, since = now, time.monotonic()
            if self._workers_failed():
                return self._describe_failure("the Job catchment-worker has failed", path)
            if time.monotonic() - since >= stall:
                reason = "no progress for %g s (--stall_seconds)%s" % (stall, uncollected)
                return self._describe_failure(reason, path)

    def _workers_failed(self) -> bool:
        """Returns whether the workers' Job has failed for good."""
        path = r'jsonpath={"failed="}{.status.conditions[?(@.type=="Failed")].status}{"\n"}'
        with contextlib.suppress(Refused):
            output = self._kubectl("get", "job", "catchment-worker", "--output", path)
            return value_of("failed", output) == "True"
        return False

    def _collect_results(self, path: str) -> None:
        """Copies the results of a run to its directory, the summary last. Does not use other files that the
        Pod names."""
        lines = self._in_server(_LIST_RESULTS).split("\n")
        self._collect_logs(path)
        for name in files.names_in(path):
            left_behind = "%s/%s" % (path, name)
            if name.startswith("catchment-results-") and not os.path.islink(left_behind):
                files.delete_inside(left_behind, "|".join(map(re.escape, _RESULTS)))
        # Others may write to the run's directory: kubectl would follow a link that they put there.
        with tempfile.TemporaryDirectory(prefix="catchment-results-", dir=path) as own:
            for file in [file for file in _RESULTS if "result=" + file in lines]:
                copy = own + "/" + file
                self._kubectl("cp", "%s:/out/%s" % (_MASTER, file), copy, "--container=server")
                if os.path.islink(copy) or not os.path.isfile(copy):
                    raise Refused("/out/%s is not a regular file" % file)
                with files.refusing("cannot write %s/%s" % (path, file)):
                    os.rename(copy, path + "/" + file)

    def _collect_logs(self, path: str) -> None:
        workers = "app.kubernetes.io/instance=catchment,app.kubernetes.io/component=worker"
        logs = {"server-%d" % i: ["catchment-server-%d" % i] for i in range(self._options.servers)}
        logs["workers"] = ["--selector=" + workers, "--prefix", "--tail=-1"]
        for name, arguments in logs.items():
            with contextlib.suppress(Refused):
                command = [self._kubectl_path, "logs", *arguments]
                launchers.execute_or_refuse(command, "%s/logs/%s.log" % (path, name))

    def _describe_failure(self, reason: str, path: str) -> str:
        self._collect_logs(path)
        log = path + "/logs/server-0.log"
        try:
            pods = self._kubectl("get", "pods", "--selector=app.kubernetes.io/instance=catchment")
        except Refused as error:
            pods = error.message
        quoted = launchers.quote_last(pods, 100), log, launchers.quote_last(files.text_or_empty_of(log))
        return "failed: %s; its Pods:%s\n  the last lines of %s:%s" % (reason, *quoted)

    def _delete_run(self, path: str) -> None:
        timeout = "--timeout=%ds" % _DELETE_SECONDS
        arguments = ["delete", "-k", path + MANIFESTS, "--ignore-not-found", timeout]
        self._kubectl(*arguments, seconds=_DELETE_SECONDS + launchers.COMMAND_SECONDS)

    def _kubectl(self, *arguments: str, seconds: float = launchers.COMMAND_SECONDS) -> str:
        try:
            return launchers.execute_or_refuse([self._kubectl_path, *arguments], self._log, seconds)
        except Refused as error:
            raise Refused("kubectl %s: %s" % (arguments[0], error.message)) from error

    def _in_server(self, command: str) -> str:
        return self._kubectl("exec", _MASTER, "--container=server", "--", "sh", "-c", command)


def _delete_command(path: str) -> str:
    return "kubectl delete -k " + shell_quoted(path + MANIFESTS)
