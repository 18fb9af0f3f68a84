"""The options of a comparison, and the flags that set them."""

import dataclasses
import math
from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import command_line, text
from .command_line import Argument, CommandLine, Flags, Streams, whole
from .errors import Usage
from .words import parts_of

if TYPE_CHECKING:
    from .core import Job

_HELP = parts_of("help/compare.txt")
SLURM_FLAGS = ("nodes", "gpus_per_node", "partition")
SITE_FLAGS = ("image", "data_claim", "storage_class", "one_node", "tls_secret", "cert_manager")
# The launchers of clusters, where they execute runs, and the flags that only they have.
_CLUSTERS = (("slurm", "on Slurm", SLURM_FLAGS), ("kubectl", "on Kubernetes", ("overlay", *SITE_FLAGS)))
# Fields that every run has from elsewhere.
_DECIDED = {
    "workers": "set the numbers of workers by --workers, such as --workers=8",
    "checkpoint": "runs write no checkpoints during training, since an interrupted run is repeated; leave it "
    "out",
}
_BUDGETS = {
    "samples": "takes a whole number of samples above 0, such as samples:100000 or samples:1e5",
    "seconds": "takes a number of seconds above 0, such as seconds:60",
}
_EXACT = 2.0**53


@dataclasses.dataclass
class CompareBudget:
    """The end of each run: after samples, after seconds of training or, if both are 0, by the job's."""

    samples: int = 0
    seconds: float = 0


class Straggler(NamedTuple):
    worker: int
    slowdown_factor: float


@dataclasses.dataclass
class CompareOptions:
    job: str = ""  # file; may be empty with a program
    set: List[str] = dataclasses.field(default_factory=list)  # "path=value"
    algorithms: List[str] = dataclasses.field(default_factory=list)
    workers: List[int] = dataclasses.field(default_factory=lambda: [1, 2, 4])  # ascending
    seeds: int = 3
    budget: CompareBudget = dataclasses.field(default_factory=CompareBudget)
    stragglers: List[Straggler] = dataclasses.field(default_factory=list)
    search: str = "halving"  # for the learning rate and the momentum of an algorithm; or "none"
    target: float = 0  # test accuracy as a share; 0: chosen from the results
    servers: int = 1
    threads: int = 1  # of each worker
    device: str = ""
    program: str = ""
    out: str = "out-compare"
    overwrite: bool = False
    dry_run: bool = False  # prints the plan and starts nothing
    stall_seconds: float = 600
    launcher: str = "local"  # "slurm" or "kubectl"
    nodes: int = 0  # of Slurm, for each run; 0: 1
    gpus_per_node: int = 0  # 0: the workers compute on processors
    partition: str = ""  # empty: the cluster's default
    image: str = ""  # of all Pods on Kubernetes
    data_claim: str = ""  # mounted at /data; empty: none
    storage_class: str = ""  # of the claim for results; empty: the cluster's default
    one_node: bool = False
    tls_secret: str = ""
    cert_manager: bool = False
    overlay: str = ""  # the directory of a component of kustomize that changes the manifests
    # Changes the complete job of each run, if it is set.
    finish_job: Optional[Callable[["Job"], "Job"]] = None
    args: List[str] = dataclasses.field(default_factory=list)  # the whole command line

    def given_flags(self, names: Sequence[str]) -> Dict[str, str]:
        """Returns those of the flags that set what is not the default."""
        given = {name: getattr(self, name) for name in names if getattr(self, name)}
        return {name: "true" if value is True else str(value) for name, value in given.items()}


def add_plan_flags(algorithms_default: str, options: CompareOptions, flags: Flags) -> None:
    """Adds the flags that say which runs there are and where they are written. `algorithms_default` is the
    last sentence of the help of --algorithms."""
    defaults = (",".join(map(str, options.workers)), options.seeds, options.search)
    flags.declare(
        options,
        _HELP["plan"] % (algorithms_default, *defaults),
        algorithms=lambda given: _parse_algorithms(given, options.algorithms),
        workers=_parse_workers,
        search=one_of("halving", "none"),
        target=_parse_target,
    )
    add_run_flags(options, flags)


def add_run_flags(options: CompareOptions, flags: Flags) -> None:
    """Adds those of these that say how each run is carried out; the default of --out is options.out."""
    budget = lambda given: _parse_budget(given, options.budget)  # noqa: E731
    flags.declare(options, _HELP["run"] % options.out, budget=budget, out=_parse_directory)
    add_set_flag(options.set, flags)
    flags.declare(options, _HELP["servers"])


def add_launch_flags(options: CompareOptions, flags: Flags) -> None:
    """Adds the flags that say where runs are carried out."""
    launcher = one_of("local", "slurm", "kubectl")
    flags.declare(options, _HELP["launch"], launcher=launcher, gpus_per_node=whole(1))


def add_set_flag(sets: List[str], flags: Flags) -> None:
    def advice(name: str, value: str) -> str:
        from . import core

        return core.advice_of_flag(name, value)

    flags.declare(None, _HELP["set"], set=sets.append)
    flags.advice = advice


def check_plan_flags(options: CompareOptions) -> None:
    """Refuses what --set changes if other flags, or the comparison itself, decide it."""
    for given in options.set:
        for path, remedy in _DECIDED.items():
            if _value_for(path, given) is not None:
                raise Usage("--set=%s: %s" % (given, remedy))
        preset = _value_for("algorithm.preset", given)
        if preset is not None and options.algorithms and preset not in options.algorithms:
            remedy = "the presets are those of --algorithms; add it there, or leave it out"
            raise Usage("--set=%s: %s" % (given, remedy))


def check_launch_flags(options: CompareOptions) -> None:
    """Refuses values of the flags of launchers that do not suit each other."""
    device, launcher = options.device, options.launcher
    if device and device.lower() not in ("auto", "cpu", "cuda"):
        raise Usage("--device=%s: takes auto, cpu or cuda" % device)
    for name, place, flags in _CLUSTERS:
        for flag in options.given_flags(flags) if name != launcher else ():
            raise Usage("--%s: is for runs %s; add --launcher=%s, or leave it out" % (flag, place, name))
    if launcher == "local":
        return
    if options.budget.seconds > 0:
        ends = "with --launcher=%s a run ends after samples; give --budget=samples:N" % launcher
        raise Usage("--budget=%s: %s" % (budget_text(options.budget), ends))
    if device:
        has = "with --launcher=%s the job has the device: --set device=%s" % (launcher, device.upper())
        raise Usage("--device=%s: %s" % (device, has))
    from .launchers import kubernetes, slurm

    (slurm.check_for_slurm if launcher == "slurm" else kubernetes.check_for_kubernetes)(options)


def compare_command_line(options: CompareOptions) -> CommandLine:
    """Returns a command line that fills the options except `args`."""
    line = CommandLine("catchment compare", _HELP["usage"], _HELP["notes"])
    example = "examples/mnist_mlp.textproto --algorithms=sync,downpour --out=out"
    set_job = lambda word: setattr(options, "job", word)  # noqa: E731
    line.argument = Argument("JOB", example, set_job, lambda: bool(options.program))
    add_plan_flags("Required.", options, line.flags)
    straggler = lambda given: options.stragglers.append(_parse_straggler(given))  # noqa: E731
    line.flags.declare(options, _HELP["flags"], straggler=straggler)
    add_launch_flags(options, line.flags)
    line.check = lambda: _check(options)
    return line


def _check(options: CompareOptions) -> None:
    if not options.algorithms:
        raise Usage("--algorithms=A,B,... is required: presets such as sync,downpour,easgd")
    check_plan_flags(options)
    check_stragglers([(one.worker, straggler_text(one)) for one in options.stragglers], options)
    check_launch_flags(options)


def check_stragglers(stragglers: Sequence[Tuple[Optional[int], str]], options: CompareOptions) -> None:
    """Refuses a --straggler that no run has, of pairs of a worker, or None, and the value of the flag."""
    most = options.workers[-1]
    for worker, given in stragglers:
        if worker is not None and worker >= most:
            why = "no run has a worker %d: workers are numbered from 0, and no run has more than %d"
            raise Usage("--straggler=%s: %s" % (given, why % (worker, most)))


def budget_text(budget: CompareBudget) -> str:
    """Returns the budget as --budget takes it: "samples:120000"."""
    if budget.samples > 0:
        return "samples:%d" % budget.samples
    return "seconds:" + text.short(budget.seconds) if budget.seconds > 0 else "the job's"


def straggler_text(straggler: Straggler) -> str:
    """Returns it as --straggler takes it: "1:4x"."""
    return "%d:%sx" % (straggler.worker, text.short(straggler.slowdown_factor))


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(given: str) -> str:
        if given not in choices:
            raise Usage("takes %s or %s" % (", ".join(choices[:-1]), choices[-1]))
        return given

    return parse


def _parse_directory(given: str) -> str:
    if not given:
        raise Usage("names no directory")
    return given


def _parse_target(given: str) -> float:
    target = text.parse_number(given)
    if target is None or not 0 < target < 1:
        raise Usage("takes a share of the test samples, above 0 and below 1, such as 0.97")
    return target


def _parse_algorithms(given: str, algorithms: List[str]) -> None:
    from . import core

    for name in given.split(","):
        core.check_preset(name)
        if name in algorithms:
            raise Usage("%s is listed twice" % name)
        algorithms.append(name)


def _parse_workers(given: str) -> List[int]:
    numbers = [text.parse_whole(word) or 0 for word in given.split(",")]
    if min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise Usage("takes different whole numbers from 1, separated by commas: 1,2,4")
    return sorted(numbers)


def _parse_count(given: str) -> int:
    """Returns a whole number, also one written as 1e5; 0 if it is none."""
    whole, number = text.parse_whole(given, bits=64), text.parse_number(given) or 0
    if whole is None and 1 <= number <= _EXACT and number == math.floor(number):
        return int(number)
    return whole or 0


def _parse_budget(given: str, budget: CompareBudget) -> None:
    unit, _, words = given.partition(":")
    if unit not in _BUDGETS:
        hint = "" if text.parse_number(given) is None else ": did you mean samples:%s?" % given
        raise Usage("takes samples:N or seconds:N, N above 0" + hint)
    amount = _parse_count(words) if unit == "samples" else text.parse_number(words)
    if amount is None or not 0 < amount < math.inf:
        raise Usage(_BUDGETS[unit])
    setattr(budget, unit, amount)


def _parse_straggler(given: str) -> Straggler:
    first, _, second = given.partition(":")
    worker = text.parse_whole(first, bits=64)
    times = text.parse_number(second[:-1] if second.endswith("x") else second)
    if worker is None or not 0 <= worker < 2**32 or times is None or not times >= 1:
        raise Usage("takes WORKER:TIMES, such as 1:4x: worker 1 four times slower")
    return Straggler(worker, text.float32(times))


def _value_for(path: str, given: str) -> Optional[str]:
    """Returns the value that an override has for the field `path`, or for a part of it."""
    rest = given[len(path) :]
    if not given.startswith(path) or not rest.startswith(("=", ".")):
        return None
    return rest.partition("=")[2] if "=" in rest else rest


def main(args: Sequence[str], streams: Streams) -> int:
    """Runs the command line of `catchment compare`. Returns the exit code, which --help explains."""
    options = CompareOptions(args=list(args))

    def command() -> int:
        from .compare import compare

        return compare(options, streams)

    return command_line.run(compare_command_line(options), args, streams, command)
