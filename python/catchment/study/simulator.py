"""Simulations of single runs, by processes of the C++ binary (docs/doors.md), each of which carries out one
after another."""

import select
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple, TypeVar

from . import core

Task = TypeVar("Task")
Request = Dict[str, Any]  # its models are named tuples


class Simulator:
    def __init__(self) -> None:
        self._idle: List[core.Process] = []
        self._busy: Dict[core.Process, Any] = {}  # what they were asked for

    def __enter__(self) -> "Simulator":
        return self

    def __exit__(self, *_: Any) -> None:
        """Ends the processes, and what they simulate."""
        for process in [*self._idle, *self._busy]:
            process.close(kill=True)

    def ask(self, **request: Any) -> Any:
        """Returns the answer to one request. Errors: core.DoorError."""
        return core.checked(self._end(self._begin(request)))

    def work(
        self, tasks: Deque[Task], at_once: int, request_of: Callable[[Task], Request]
    ) -> Iterator[Tuple[Task, Request, Optional[core.DoorError]]]:
        """Carries out the requests of tasks, so many at once, and yields each when it has ended, with its
        error. The caller may add others meanwhile."""
        while tasks or self._busy:
            while tasks and len(self._busy) < at_once:
                task = tasks.popleft()
                request = request_of(task)
                self._busy[self._begin(request)] = task, request
            ended = []
            for process in select.select(list(self._busy), [], [])[0]:
                task, request = self._busy.pop(process)
                answer = self._end(process)
                error = core.DoorError(answer["error"], answer["code"]) if "error" in answer else None
                ended.append((task, request, error))
            yield from ended

    def _begin(self, request: Request) -> core.Process:
        process = self._idle.pop() if self._idle else core.Process(["simulate", "--door"])
        process.send({key: one._asdict() if hasattr(one, "_asdict") else one for key, one in request.items()})
        return process

    def _end(self, process: core.Process) -> Any:
        answer = process.receive()
        self._idle.append(process)
        return answer
