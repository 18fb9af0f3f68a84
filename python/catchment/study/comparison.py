"""The content of a report: the algorithms, the machine, and the results of the runs."""

import dataclasses
import os
import re
from typing import Dict, List, NamedTuple, Optional

from . import core
from .files import text_or_empty_of
from .run_result import RunResult
from .statistics import total


class Machine(NamedTuple):
    """The machine that a comparison ran on."""

    processor: str  # "AMD EPYC 7B13"; "unknown" if the kernel does not report it
    processors: int  # that this process may use
    memory_bytes: float
    system: str  # "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"


class AlgorithmFacts(NamedTuple):
    """The settings of an algorithm."""

    name: str
    synchronous: bool  # every update waits for all workers
    optimizer: str  # "SGD"
    # Staleness adds implicit momentum: gradients are applied one by one as they arrive.
    implicit: bool = False
    open_loop_minimum: Optional[float] = None  # OpenLoopMomentum.min_momentum, if it is used
    closed_loop: bool = False


class LeftOutPair(NamedTuple):
    algorithm: str
    workers: int
    reason: str


@dataclasses.dataclass
class SearchTrialResult:
    """A run of a search for the learning rate and the momentum of an algorithm with a number of workers."""

    rung: int
    share: float  # of the budget
    run: RunResult  # with the values tried
    chosen: bool = False  # the search ended with it


@dataclasses.dataclass
class Comparison:
    command: str
    version: str
    job_name: str
    job: str  # that of the first run as text, with all defaults
    budget: str  # empty: it differs
    algorithms: List[AlgorithmFacts]
    workers: List[int]  # ascending
    runs: List[RunResult]
    stragglers: List[str] = dataclasses.field(default_factory=list)
    # "1:4x", of a simulation also "1%:4x" and "1%steps:4x"
    simulated: str = ""  # the modelled cluster; empty: the runs were real
    servers: int = 1  # 0: they differ
    threads: int = 1  # per worker; 0: not known
    seeds: int = 1
    wanted_target: float = 0  # 0: chosen from the results
    machine: Optional[Machine] = None  # on which all runs ran, if it is known
    left_out: List[LeftOutPair] = dataclasses.field(default_factory=list)
    searched: List[SearchTrialResult] = dataclasses.field(default_factory=list)
    run: str = ""  # the directory of the only run of a report; empty: of several, or of a comparison
    untuned: str = ""  # a sentence about learning rates that are not the result of a search; empty: all are


def _field(path: str, key: str) -> str:
    """Returns the value in the first line of a file that begins with `key`."""
    found = re.search(r"^%s[^:=\n]*[:=](.*)" % key, text_or_empty_of(path), re.MULTILINE)
    return found.group(1).strip().strip('"') if found else "unknown"


def this_machine() -> Machine:
    """Returns the facts about this machine."""
    name = os.uname()
    memory = float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    system = "%s, %s %s" % (_field("/etc/os-release", "PRETTY_NAME"), name.sysname, name.release)
    return Machine(_field("/proc/cpuinfo", "model name"), core.processors(), memory, system)


def search_cost(comparison: Comparison, algorithm: str, workers: int) -> float:
    """Returns the cost of the search for an algorithm with a number of workers, in runs of the whole budget;
    0: there was none."""
    kind = algorithm, workers
    return total(one.share for one in comparison.searched if (one.run.algorithm, one.run.workers) == kind)


def runs_of(comparison: Comparison, algorithm: str, workers: int) -> List[RunResult]:
    """Returns the runs of one algorithm with one number of workers that are done."""
    kind = (algorithm, workers)
    return [run for run in comparison.runs if run.done and (run.algorithm, run.workers) == kind]


def describe_stragglers(comparison: Comparison) -> str:
    """Returns "workers 0 and 2 slowed 10 times, worker 1 slowed 40 times"."""
    slowed: Dict[str, List[str]] = {}  # workers by factor
    words = []
    for straggler in comparison.stragglers:
        who, _, factor = straggler.partition(":")
        factor = factor[:-1] if factor.endswith("x") else factor
        share, percent, of_what = who.partition("%")
        if percent:
            words.append("%s %% of the %s slowed %s times" % (share, of_what or "workers", factor))
        else:
            slowed.setdefault(factor, []).append(who)
    for factor, workers in slowed.items():
        enumerated = " and ".join([", ".join(workers[:-1]), workers[-1]] if len(workers) > 1 else workers)
        words.append("worker%s %s slowed %s times" % ("s" * (len(workers) > 1), enumerated, factor))
    return ", ".join(words)
