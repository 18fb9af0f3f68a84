"""The doors of the C++ binary (docs/doors.md): it completes, validates and simulates jobs."""

import atexit
import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
from typing import Any, Dict, List, Optional, Sequence, Union

from . import processes
from .errors import Refused, Unavailable

_LOOK_SECONDS = 0.05


class DoorError(Refused):
    """An error of a door, with the name of its kind: INVALID_ARGUMENT, NOT_FOUND, INTERNAL."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True)
class Job:
    """A job as a door has printed it. Two are equal if their texts are."""

    text: str
    json: Any = dataclasses.field(compare=False, default_factory=dict)  # its fields
    facts: Any = dataclasses.field(compare=False, default_factory=dict)  # of a complete job
    space: Any = dataclasses.field(compare=False, default=None)  # if it was asked for
    fields: Any = dataclasses.field(compare=False, default=None)  # if they were asked for
    described: bool = dataclasses.field(compare=False, default=False)  # by a program

    @property
    def preset(self) -> str:
        return str(self.json.get("algorithm", {}).get("preset", "")) or "sync"


def binary() -> str:
    return os.environ.get("CATCHMENT_BINARY") or "catchment"


class Process:
    """A process of the binary that answers requests, one after another."""

    def __init__(self, args: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        try:
            self._process: Any = processes.start("", [binary(), *args], pipe, None, pipe)
        except Refused as error:
            remedy = "install Catchment, or set CATCHMENT_BINARY to the path of the program catchment"
            raise Unavailable("%s: %s" % (error.message, remedy)) from error
        self.fileno, self.terminate = self._process.stdout.fileno, self._process.terminate

    def send(self, request: Any) -> None:
        # An answer, or its absence, says what became of it.
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self) -> Any:
        line = self._process.stdout.readline().decode("utf-8", "surrogateescape")
        if not line:
            self.close()
            raise Unavailable("the program catchment has ended unexpectedly")
        return json.loads(line)

    def close(self, kill: bool = False) -> None:
        if kill:
            self._process.kill()
        with contextlib.suppress(OSError):
            self._process.communicate()


def checked(answer: Any) -> Any:
    """Returns the answer of a door, or raises its error."""
    if "error" in answer:
        raise DoorError(answer["error"], answer.get("code", ""))
    return answer


class Door:
    """A process of `catchment validate --door`, started by the first request. `job` and `program` are those
    of a command line."""

    def __init__(self, job: str = "", program: str = "") -> None:
        self._args = ["validate", *([job] if job else []), "--door"]
        if program:
            self._args.append("--program=" + program)
        self._process: Optional[Process] = None

    def close(self) -> None:
        process, self._process = self._process, None
        if process:
            process.close()

    def ask(self, request: Dict[str, Any], signals: Optional[processes.SignalWaiter] = None) -> Any:
        """Returns the answer. Errors: DoorError, such as ABORTED after a signal to end; Unavailable."""
        process = self._process = self._process or Process(self._args)
        try:
            process.send(request)
            while signals and not select.select([process], [], [], _LOOK_SECONDS)[0]:
                if signals.wait(0) not in (0, signal.SIGCHLD):
                    process.terminate()
            return checked(process.receive())
        except KeyboardInterrupt:
            process.terminate()
            raise
        except Unavailable:
            self._process = None
            raise

    def job(self, signals: Optional[processes.SignalWaiter] = None, **request: Any) -> Job:
        """Returns the job of a request, whose keys docs/doors.md lists. Errors: DoorError."""
        answer = self.ask({key: value for key, value in request.items() if value is not None}, signals)
        facts = answer.get("facts", {})
        more = (answer.get("space"), answer.get("fields"))
        return Job(answer["text"], answer["settings"], facts, *more, described=answer["described"])


DOOR = Door()  # of requests that say which job they begin with
atexit.register(DOOR.close)


def load_job(path: str, sets: Sequence[str] = (), **request: Any) -> Job:
    """Returns the complete job of a file that the user has named, with overrides."""
    return DOOR.job(file=path, set=list(sets), **request)


def job_of_run(directory: str, **request: Any) -> Job:
    """Returns the complete job of the run in a directory."""
    return DOOR.job(run=directory, **request)


def parse_job(text: str, sets: Sequence[str] = (), **request: Any) -> Job:
    """Returns the complete job of a text, with overrides."""
    return DOOR.job(text=text, set=list(sets), **request)


def edit(job: Job, sets: Sequence[str] = (), complete: bool = True, **request: Any) -> Job:
    """Returns the job with overrides, complete and valid again; with `complete` False as they leave a
    complete job."""
    facts = None if complete else True
    return DOOR.job(text=job.text, set=list(sets), complete=complete, **{"facts": facts, **request})


def edit_all(job: Job, sets: Sequence[Sequence[str]], **request: Any) -> List[Union[Job, DoorError]]:
    """Returns what edit() returns or raises for each list of overrides."""
    jobs: List[Union[Job, DoorError]] = []
    for one in sets:
        try:
            jobs.append(edit(job, one, **request))
        except DoorError as error:
            jobs.append(error)
    return jobs


def about() -> Any:
    """Returns the build, the presets and the processors (docs/doors.md)."""
    return DOOR.ask({"about": True})


def presets() -> List[str]:
    """Returns the names of all presets, in their order."""
    return [preset["name"] for preset in about()["presets"]]


def processors() -> int:
    return int(about()["processors"])


def check_preset(name: str) -> None:
    DOOR.ask({"preset": name})


def advice_of_flag(name: str, value: str) -> str:
    """Returns what is said of a flag that does not exist but would set a field of the job."""
    return str(DOOR.ask({"flag": name, "value": value})["advice"])


def version_line() -> str:
    """Returns "catchment 1.2.0 ..."."""
    return "catchment " + str(about()["build"])
