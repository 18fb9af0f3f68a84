"""Runs the parts of deploy/gpu/run.sh, which documents them, and writes the files of results."""

import argparse
import contextlib
import datetime
import functools
import itertools
import json
import os
import re
import shlex
import signal
import statistics
import sys
import typing

import machine
import mps
from programs import HERE, Programs, Stopped, TooSlow, find_tool, read, reason_of
from results import FAILED, Failed, NotRun, Results

# The parts in their order. Both groups together are the check of nine minutes; the others are for --parts.
GROUPS = {"1": ["device", "tests", "sanitizer"], "2": ["speed", "attached"]}
PARTS = [*GROUPS["1"], *GROUPS["2"], "profile", "training"]

# The seconds of each row: computed, and not measured, because no GPU has run them. What a row leaves, the
# next ones have; none takes from a later one. Another --minutes, or a choice of --parts, scales all.
DEVICE = {"first steps": 20, "nvidia-smi": 5, "libraries": 2, "cudnn": 3, "torch": 10}
TESTS = {"layers_test": 140}
SANITIZER = {"memcheck": 60, "racecheck": 60}
# (example, precision, batch size). In 16 bits cuDNN compiles kernels when it runs, about a second for each
# shape.
SPEEDS = {
    ("resnet20_cifar10", "TF32", 128): 32,
    ("resnet20_cifar10", "BFLOAT16", 128): 32,
    ("mnist_cnn", "TF32", 256): 20,
    ("mnist_cnn", "BFLOAT16", 256): 20,
    ("resnet50", "TF32", 64): 26,
    ("resnet50", "BFLOAT16", 64): 34,
}
ATTACHED = {"sync": 38, "diloco": 38}
NCU, TRAINING = 60, 20

# PyTorch measures, Catchment, and PyTorch again, so that a GPU that becomes slower does so for both.
SECONDS = dict(catchment=3, pytorch=2)

SPEED_NOTE = (
    f"Samples per second: Catchment over {SECONDS['catchment']} s between two measurements of PyTorch over "
    f"{SECONDS['pytorch']} s, whose mean is shown. Catchment's step is a worker's: weights from the host, "
    "gradients to the host. PyTorch's weights stay on the device, where it updates them."
)

# (example, samples, least test accuracy: well above chance, what to set without data in files)
MODELS = [
    ("mnist_cnn", 60000, 0.9, ("mnist", "data={drawn_digits{}}")),
    ("hep_lstm", 40000, 0.4, None),
    (
        "resnet20_cifar10",
        40000,
        0.15,
        ("cifar10", "data={generated_images{size:32 classes:10 train_samples:10000 test_samples:1000}}"),
    ),
]
WORKERS = (1, 2, 4)
# Layers with all kinds of launches: products, sums in several blocks, rows of a warp, gathered patches.
SANITIZED = ("Convolution", "BatchNorm", "Lstm", "Residual")
# Matches what a tool says where the machine does not let it work.
REFUSED = re.compile(
    r"(ERR_NVGPUCTRPERM|not permitted|[Pp]ermission|[Nn]ot supported|[Uu]nable to |[Cc]annot (attach|inject)|"
    r"privilege|driver resource|not compatible|incompatible|terminated before (first|any) instrumented|"
    r"No kernels were profiled|[Ff]ailed to (connect|initialize))"
)
# With --plugin a processor does the work of the GPU, and a sample takes up to a second:
# (samples, what to set).
TINY = dict(
    mnist_cnn=(8, "data={drawn_digits{train_samples:8 test_samples:2}}"),
    hep_lstm=(16, "data={generated_events{train_samples:16 test_samples:4}}"),
    resnet20_cifar10=(8, "data={generated_images{size:8 classes:10 train_samples:8 test_samples:2}}"),
)
TINY_BATCH = 4
TOO_LARGE = ("resnet50",)


class Row(typing.NamedTuple):
    part: str
    name: str
    seconds: float  # by the table
    run: typing.Callable


class Planned(typing.NamedTuple):
    row: Row
    seconds: float  # of this check
    end: float  # from its start on


def plan(rows, parts, minutes):
    """Returns the rows of these parts, whose seconds take all of the time."""
    chosen = [row for row in rows if row.part in parts]
    scale, end, planned = 60 * minutes / sum(row.seconds for row in chosen), 0.0, []
    for row in chosen:
        end += scale * row.seconds
        planned.append(Planned(row, scale * row.seconds, end))
    return planned


def describe(planned, minutes):
    """Returns the plan as text."""
    lines = [f"the plan of {minutes:g} minutes; a GPU has not shown yet whether it is right"]
    for group, names in [*GROUPS.items(), ("", PARTS[5:])]:
        rows = [one for one in planned if one.row.part in names]
        if not rows:
            continue
        lines.append(
            f"{f'part {group}' if group else 'other parts'}: {sum(one.seconds for one in rows):.0f} s"
        )
        for name in names:
            seconds = [one.seconds for one in rows if one.row.part == name]
            if seconds:
                lines.append(f"  {name}: {sum(seconds):.0f} s")
            lines += [f"    {one.seconds:5.1f} s  {one.row.name}" for one in rows if one.row.part == name]
    return "\n".join(lines)


def train_speed(example, batch, steps, seconds, *options):
    """Returns the command that measures samples per second."""
    return [
        HERE + "/bin/train_speed",
        *options,
        f"{HERE}/examples/{example}.textproto",
        str(batch),
        str(steps),
        str(seconds),
    ]


def layers_test(cases, *options):
    return [HERE + "/bin/cuda_layers_test", "--gtest_filter=" + ":".join(cases), *options]


class Check:
    def __init__(self, args):
        self.args = args
        self.results = Results(PARTS, args.out, args.archive)
        self.cublas = machine.folder_of("libcublasLt.so.13")
        cudnn = machine.folder_of(f"libcudnn.so.{machine.CUDNN}")
        # Libraries of one package find those of others, such as the compiler of cuDNN's kernels, only here.
        self.programs = Programs(
            args.out, args.minutes, args.plugin, list(dict.fromkeys(filter(None, (self.cublas, cudnn))))
        )
        if cudnn:
            self.programs.env.setdefault("CATCHMENT_CUDNN", f"{cudnn}/libcudnn.so.{machine.CUDNN}")
        self.mps = mps.Mps(self.programs.env)

    def rows(self):
        """Returns all rows of the table."""
        batch = (lambda _: TINY_BATCH) if self.args.plugin else (lambda batch: batch)
        part = functools.partial
        device = [self.first_steps, self.nvidia_smi, self.libraries, self.cudnn, self.torch]
        rows = [Row("device", *one, run) for one, run in zip(DEVICE.items(), device)]
        rows += [Row("tests", name, seconds, self.layers) for name, seconds in TESTS.items()]
        rows += [Row("sanitizer", tool, s, part(self.sanitize, tool)) for tool, s in SANITIZER.items()]
        for (example, precision, size), seconds in SPEEDS.items():
            run = part(self.speed, example, precision, batch(size))
            rows.append(Row("speed", f"{example}, {precision}, batch {batch(size)}", seconds, run))
        rows += [Row("attached", preset, s, part(self.attached, preset)) for preset, s in ATTACHED.items()]
        rows.append(Row("profile", "ncu", NCU, self.ncu))
        return rows + self.trainings()

    # ------------------------------------------------------------------------------------------ device

    def nvidia_smi(self):
        return self.show("nvidia-smi", [find_tool("nvidia-smi")])

    def libraries(self):
        return self.show("libraries", ["ldd", self.programs.env["CATCHMENT_CUDA_PLUGIN"]])

    def show(self, name, command):
        try:
            output = self.programs.once(name, command)
        except Failed as why:
            raise (NotRun if name == "nvidia-smi" else Failed)(str(why)) from None
        missing = re.findall(r"(\S+) => not found", output)
        if missing:
            raise Failed(f"not found: {', '.join(missing)} ({name}.log)")
        return dict(detail=f"{name}.log")

    def cudnn(self):
        """Finds out which cuDNN the plugin will find. Without one, convolutions use patches."""
        path = self.programs.env.get("CATCHMENT_CUDNN") or f"libcudnn.so.{machine.CUDNN}"
        if path == "off":
            raise NotRun("CATCHMENT_CUDNN=off: convolutions use patches")
        remedy = (
            "; convolutions use patches, which is slower: pip install nvidia-cudnn-cu13, or set "
            f"CATCHMENT_CUDNN to a libcudnn.so.{machine.CUDNN}"
        )
        code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).cudnnGetVersion())"
        try:
            version = int(self.programs.once("cudnn", [sys.executable, "-c", code, path]))
        except Failed as why:
            other = machine.other_cudnn()
            instead = f", but {', '.join(other)} of another major version" * bool(other)
            raise NotRun(f"there is no {path} that can be loaded{instead} ({why}){remedy}") from None
        # 8907 is 8.9.7, and 91900 is 9.19.0.
        unit = 10000 if version >= 10000 else 1000
        text = f"{version // unit}.{version % unit // 100}.{version % 100}"
        if version // unit != machine.CUDNN:
            raise NotRun(f"{path} is cuDNN {text}, and Catchment needs {machine.CUDNN}{remedy}")
        self.results.facts["cudnn"] = f"{text}, {path}"
        return dict(detail=self.results.facts["cudnn"])

    @functools.lru_cache(None)  # noqa: B019  # there is one check in a process
    def why_no_pytorch(self):
        """Returns why python3's PyTorch cannot compute here; "" if it can."""
        code = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"
        try:
            version, cuda, available = self.programs.once("torch", [sys.executable, "-c", code]).split()
        except (Failed, NotRun) as why:
            missing = "No module named 'torch'" in str(why)
            return "python3 has no torch" if missing else f"python3's torch does not start: {why}"
        self.results.facts["pytorch"] = f"{version}, CUDA {cuda}"
        if available != "True" and not self.args.plugin:
            return f"python3's torch {version} sees no CUDA device"
        return ""

    def torch(self):
        if self.why_no_pytorch():
            raise NotRun(self.why_no_pytorch())
        return dict(detail=self.results.facts["pytorch"])

    @functools.lru_cache(None)  # noqa: B019  # there is one check in a process
    def first_outcome(self):
        """Trains three steps of a small network, and returns why this fails; None if it does not."""
        start = self.programs.seconds()
        try:
            self.programs.run("mnist_mlp", train_speed("mnist_mlp", 8, 1, 0, "--device=cuda"))
        except (Failed, NotRun) as why:
            return why
        finally:
            self.first_seconds = self.programs.seconds() - start
        return None

    def first_steps(self):
        if self.first_outcome():
            raise self.first_outcome()
        return dict(detail=f"three steps of training, {self.first_seconds:.1f} s with the program's start")

    def why_no_gpu(self):
        """Returns why nothing can run on the GPU, in the programs' own words; "" if it can. Anything else
        that fails in the first step is a failure, which has a row."""
        found = re.match(
            r"exit code \S+: (?:.*Check failed: \S+ )?(?:[A-Z_]+: )?"
            r"(device: CUDA: .*?|.*?(?:too little memory|out of memory).*?)"
            r"(; use CPU or AUTO)?( \(mnist_mlp\.log\).*)?$",
            str(self.first_outcome() or ""),
        )
        return ": ".join(filter(None, [found.group(1), "; ".join(machine.remarks())])) if found else ""

    # ------------------------------------------------------------------------------------------- tests

    def cases(self):
        """Returns the names of the layers' tests on the device."""
        listed = self.programs.once("layers_test_list", layers_test(["*OnDevice"], "--gtest_list_tests"))
        suite, names = "", []
        for line in listed.splitlines():
            if line.startswith("  "):
                names.append(suite + line.split()[0])
            elif line.split("#")[0].strip().endswith("."):
                suite = line.split("#")[0].strip()
        return names

    def layers(self):
        """Runs the tests. One that ends the program fails; the ones after it run in another process."""
        cases = self.cases()
        left, outcomes, runs, over = cases, {}, 0, ""
        while left and not over:
            runs += 1
            name = "layers_test" + (f"_{runs}" if runs > 1 else "")
            try:
                self.programs.once(name, layers_test(left), cublaslt_level=2)
            except (NotRun, TooSlow) as why:
                over = str(why)
            except Failed:
                pass  # which of them, the log says
            before = len(outcomes)
            log = read(self.programs.log(name)) if os.path.exists(self.programs.log(name)) else ""
            for what, case in re.findall(r"^\[ *(RUN|OK|FAILED|SKIPPED) *\] ([^\s,]+)", log, re.MULTILINE):
                if case in cases:
                    outcomes[case] = what
            if len(outcomes) == before and not over:
                raise Failed(f"{len(left)} of {len(cases)} cases did not begin ({name}.log)")
            left = [case for case in left if case not in outcomes]
        running = [case for case in cases if outcomes.get(case) == "RUN"]
        failed = [case for case in cases if outcomes.get(case) == "FAILED"]
        if not over:
            failed += running
        passed = sum(what == "OK" for what in outcomes.values())
        over = f"{passed} of {len(cases)} cases passed, then: {over}" * bool(over)
        if failed:
            raise Failed(
                f"{len(failed)} of {len(cases)} cases: {', '.join(failed[:5])}{', ...' * (len(failed) > 5)}"
                f"{f'; of these {len(running)} ended the program' * (bool(running) and not over)}; "
                + (over or self.programs.second_try("layers_test", layers_test(failed[:5])))
            )
        if over:
            raise NotRun(over)
        if passed < len(cases) or not cases:
            raise Failed(f"{len(cases) - passed} of {len(cases)} cases were skipped")
        return dict(detail=f"{len(cases)} cases of layers and losses, in float32, TF32, bfloat16 and float16")

    # --------------------------------------------------------------------------- sanitizer and profiler

    def with_tool(self, name, tool, options, command, began):
        """Returns the log of a program under one of NVIDIA's tools. began: what is in it if the tool has let
        the program work. That a machine does not let a tool work is not a failure of the program."""
        try:
            self.programs.once(name, [find_tool(tool), *options, *command])
        except TooSlow as why:
            raise NotRun(f"{tool}: {why}") from None
        except Failed:
            log = read(self.programs.log(name))
            said = [line for line in log.splitlines() if re.match(r"==(=======|ERROR==|WARNING==)", line)]
            refusal = next(filter(REFUSED.search, said), "" if began in log else reason_of(log, ""))
            refusal = re.sub(r"^=+(\w+==)? *", "", refusal)
            if refusal and not re.search(r"ERROR SUMMARY: [1-9]|SUMMARY: [1-9]\d* hazard", log):
                raise NotRun(f"the machine does not let {tool} work: {refusal} ({name}.log)") from None
            raise
        return read(self.programs.log(name))

    def sanitize(self, tool):
        cases = [f"*TrainLikeTheCpus/{name}OnDevice" for name in SANITIZED]
        options = ["--tool=" + tool, "--error-exitcode=9", "--target-processes=all"]
        self.with_tool("sanitizer_" + tool, "compute-sanitizer", options, layers_test(cases), "[ RUN ")
        return dict(detail=f"{', '.join(SANITIZED)} (sanitizer_{tool}.log)")

    def ncu(self):
        """Measures what bounds each kernel: 200 launches of the third step."""
        example, batch = ("resnet50", 64) if not self.args.plugin else ("mnist_mlp", 8)
        # By default ncu sets the GPU's clocks while it profiles, also for others who use it.
        options = ["--clock-control=none", "--set=basic", "--target-processes=all"]
        options += ["--launch-skip=1200", "--launch-count=200"]
        command = train_speed(example, batch, 1, 0, "--device=cuda:0", "--precision=BFLOAT16")
        log = self.with_tool("ncu", "ncu", options, command, "==PROF== Profiling")
        if "No kernels were profiled" in log:
            raise NotRun("the machine does not let ncu work: no kernels were profiled (ncu.log)")
        return dict(detail=f"{example}, batch {batch}, BFLOAT16 (ncu.log)")

    # ------------------------------------------------------------------------------------------- speed

    def speed(self, example, precision, batch):
        """Measures PyTorch, Catchment, and PyTorch again, each side in one process."""
        if self.args.plugin and example in TOO_LARGE:
            raise NotRun("takes too long on a processor")
        name, theirs, why = f"{example}_{precision}", [], self.why_no_pytorch()
        seconds = {key: 0.01 if self.args.plugin else value for key, value in SECONDS.items()}
        command = [sys.executable, HERE + "/pytorch_speed.py", example, precision, str(batch)]
        command += ["cpu"] * bool(self.args.plugin)
        with contextlib.ExitStack() as stack:
            talk = None if why else stack.enter_context(self.programs.talk("pytorch_" + name, command))
            why = why or self.ask_pytorch(talk, seconds["pytorch"], theirs)
            options = ["--device=cuda:0", "--precision=" + precision, "--update=false"]
            command = train_speed(example, batch, 4, seconds["catchment"], *options)
            ours = float(self.programs.run("speed_" + name, command))
            why = why or self.ask_pytorch(talk, seconds["pytorch"], theirs)
        row = dict(samples_per_s=round(ours), batch=batch)
        if not theirs:
            return dict(row, detail="no PyTorch beside it: " + why)
        their = statistics.mean(theirs)
        row.update(pytorch_samples_per_s=round(their), pytorch_all=theirs, ratio=round(ours / their, 3))
        return dict(row, detail="PyTorch once: " + why) if why else row

    def ask_pytorch(self, talk, seconds, rates):
        """Adds the rate of PyTorch to `rates`, or returns why there is none."""
        try:
            if not rates:
                talk.ask()  # says that it is ready
            rates.append(float(talk.ask(str(seconds))))
        except (Failed, NotRun, ValueError) as why:
            return str(why)
        return ""

    # --------------------------------------------------------------------------- attached and training

    def attached(self, preset):
        """Trains a program with PyTorch, two workers on one GPU. With diloco its weights and its optimizer
        stay on the GPU between the exchanges."""
        if self.why_no_pytorch():
            raise NotRun(self.why_no_pytorch())
        samples, epochs, batch = (10240, 5, 128) if not self.args.plugin else (64, 1, 8)
        program = [sys.executable, HERE + "/attached.py", str(samples), *["own"] * (preset == "diloco")]
        paths = [HERE + "/python", os.environ.get("PYTHONPATH", "")]
        return self.trained(
            "attached_" + preset,
            ["--program=" + shlex.join(program), "--workers=2"],
            [f"algorithm.preset={preset}", f"batch_size={batch}", f"epochs={epochs}"],
            samples * epochs,
            0.9,
            dict(self.programs.env, PYTHONPATH=":".join(filter(None, paths))),
        )

    def train(self, example, workers, samples, least_accuracy, without_data, precision):
        self.start_mps()
        settings = []
        options = [f"{HERE}/examples/{example}.textproto", f"--workers={workers}", "--device=cuda:0"]
        if self.args.plugin:
            samples, data = TINY[example]
            options.append("--threads=1")
            settings = [f"batch_size={TINY_BATCH}", data]
        elif without_data:
            folder, instead = without_data
            if not os.path.isdir(os.path.join(os.environ.get("CATCHMENT_DATA", "/none"), folder)):
                settings = [instead]
        settings += [f"samples={samples}", f"computation.precision={precision}"]
        row = self.trained(
            f"train_{example}_{workers}_{precision}", options, settings, samples, least_accuracy
        )
        shared = f", workers share the GPU {self.mps.state}" if workers > 1 and not self.args.plugin else ""
        return dict(row, detail=f"{precision}, {row['detail']}{shared}")

    def trained(self, name, options, settings, samples, least_accuracy, env=None):
        """Trains with one server, and returns the row if the summary is as it should be."""
        out = f"{self.args.out}/{name}"
        changes = ["--set=" + setting for setting in settings]
        command = [
            HERE + "/bin/catchment",
            "train",
            *options,
            "--servers=1",
            "--out=" + out,
            "--json",
            *changes,
        ]
        self.programs.run(name, command, env=env)
        with open(out + "/summary.json") as file:
            summary = json.load(file)
        accuracy, device = summary.get("test_accuracy") or 0, summary.get("device", "")
        on_gpu = "cuda:0" in device or (self.args.plugin and device.startswith("program: "))
        wrong = [
            text
            for is_wrong, text in (
                (summary.get("phase") != "DONE", f"phase {summary.get('phase')}"),
                (not on_gpu, f"on {device}"),
                (int(summary.get("samples", 0)) < samples, f"{summary.get('samples')} of {samples} samples"),
                (int(summary.get("pushes_non_finite", 0)) > 0, "gradients were not finite"),
                (
                    not self.args.plugin and accuracy < least_accuracy,
                    f"test accuracy {summary.get('test_accuracy')}, expected {least_accuracy}",
                ),
            )
            if is_wrong
        ]
        if wrong:
            raise Failed("; ".join(wrong))
        rate = summary["samples"] / max(summary["wall_seconds"], 1e-9)
        return dict(detail=device, test_accuracy=round(accuracy, 4), samples_per_s=round(rate))

    @functools.lru_cache(None)  # noqa: B019  # there is one check in a process
    def start_mps(self):
        if not self.args.plugin:
            command = train_speed("mnist_mlp", 8, 1, 0, "--device=cuda")
            self.mps.start(works=lambda: self.programs.once("probe_mps", command))

    def trainings(self):
        rows = []
        for example, *budget in MODELS:
            for workers in WORKERS:
                run = functools.partial(self.train, example, workers, *budget, "FLOAT32")
                rows.append(
                    Row("training", f"{example}, {workers} worker{'s' * (workers > 1)}", TRAINING, run)
                )
        for precision in ("TF32", "BFLOAT16", "FLOAT16"):
            example, *budget = MODELS[0]
            run = functools.partial(self.train, example, 2, *budget, precision)
            rows.append(Row("training", f"{example}, 2 workers, {precision}", TRAINING, run))
        return rows

    # ----------------------------------------------------------------------------------------- results

    def all(self, planned):
        """Runs the rows. A signal ends them, and what has been measured is kept."""
        self.results.facts, self.results.speeds = self.facts(), SPEED_NOTE
        try:
            self.programs.begin_row(planned[0].end, planned[0].row.seconds)
            self.remark()
            why = self.why_no_gpu()
            for part in PARTS:
                rows = [one for one in planned if one.row.part == part]
                if not rows or why:
                    self.results.skip(part, why if rows else "not asked for")
                    continue
                self.remark()
                for row, seconds, end in rows:
                    self.programs.begin_row(end, row.seconds)
                    self.results.step(part, row.name, row.run, seconds)
                self.results.pack()
        except Stopped as why:
            self.results.notes.append(f"{why}: rows after the last one here have not run.")
            return 128 + why.number
        finally:
            self.mps.stop()
            self.results.facts["minutes"] = round(self.programs.seconds() / 60, 1)
            self.results.write()
            self.results.pack()
        return 1 if self.results.count(FAILED) else 0

    def remark(self):
        """Notes what this machine's figures depend on, which may change during a check."""
        if self.args.plugin:
            note = "The work of the GPU was done by a plugin on the processor: nothing here is of a GPU."
            self.results.notes = [note]
        else:
            self.results.notes = list(dict.fromkeys([*self.results.notes, *machine.remarks()]))

    def facts(self):
        version, one = read(HERE + "/VERSION"), machine.gpu()
        commit = re.search(r"commit: *(.*)", version)
        toolkit = re.search(r"CUDA: *(.*)", version)
        return dict(
            date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            commit=commit.group(1) if commit else "unknown",
            gpu=", ".join((one["name"], "driver " + one["driver_version"], one["memory.total"] + " MiB"))
            if one
            else "none that nvidia-smi shows",
            cuda=toolkit.group(1) if toolkit else "",
            cublas=self.cublas or "not found",
            cudnn="not asked",
            pytorch="not used",
            plugin=self.args.plugin or "the bundle's",
        )


def free_folder():
    """Returns the first folder for results in the bundle that an earlier check has not used."""
    paths = (HERE + "/results" + (f"-{i}" if i > 1 else "") for i in itertools.count(1))
    return next(path for path in paths if not os.path.exists(path) and not os.path.exists(path + ".tar.gz"))


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="")
    parser.add_argument("--archive", default="")
    parser.add_argument("--parts", default="1,2", type=lambda text: text.split(","))
    parser.add_argument("--minutes", default=9, type=float)
    parser.add_argument("--plugin", default="")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    args.parts = [part for name in args.parts for part in GROUPS.get(name, [name])]
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        known = ", ".join([*GROUPS, *PARTS])
        parser.error(f"--parts: there is no {', '.join(sorted(unknown))}; there are {known}")
    if not 0 < args.minutes < 1e6:
        parser.error(f"--minutes={args.minutes:g} is not a time in which something can run")
    args.out = os.path.abspath(args.out or free_folder())
    args.archive = os.path.abspath(args.archive or args.out + ".tar.gz")
    for path in (args.out + "/results.json", args.archive):
        if os.path.exists(path):
            parser.error(
                f"{path} is of an earlier check, whose results stay: give another --out or --archive"
            )
    args.plugin = args.plugin and os.path.abspath(args.plugin)
    return args


def main():
    args = parse_arguments()
    check = Check(args)
    planned = plan(check.rows(), args.parts, args.minutes)
    if args.dry_run:
        print(describe(planned, args.minutes))
        return 0
    os.makedirs(args.out, exist_ok=True)
    os.makedirs(os.path.dirname(args.archive), exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_check)
    status = check.all(planned)
    failed, minutes = check.results.count(FAILED), check.results.facts["minutes"]
    print(f"{args.out}/results.md and {args.archive}: {failed} failed, {minutes} minutes")
    return status


def end_check(number, _):
    raise Stopped(number)


if __name__ == "__main__":
    sys.exit(main())
