"""Runs the parts of deploy/gpu/run.sh, which documents them, and writes results.md and results.json."""

import argparse
import contextlib
import datetime
import json
import os
import re
import shutil
import statistics
import subprocess
import sys

import mps
from programs import HERE, Programs, find_tool
from results import FAILED, Failed, NotRun, Results

# The parts in their order: the share of all time at which each one is over. What a part leaves,
# the next one has.
PARTS = dict(device=0.1, tests=0.3, sanitizer=0.42, speed=0.8, profile=0.85, training=1.0)

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
# (example, precision, batch size)
SPEEDS = [
    ("mnist_cnn", "TF32", 256),
    ("resnet50", "BFLOAT16", 64),
    ("resnet20_cifar10", "TF32", 128),
    ("hep_lstm", "TF32", 256),
    ("mnist_mlp", "TF32", 128),
    ("resnet50", "TF32", 64),
    ("mnist_cnn", "BFLOAT16", 256),
]
ROUNDS, SECONDS = 3, 2
# Layers with all kinds of launches: products, sums in several blocks, rows of a warp, gathered patches.
SANITIZED = ("Convolution", "BatchNorm", "Lstm", "Residual")

# With --plugin a processor does the work of the GPU, and a sample takes up to a second:
# (samples, what to set).
TINY = dict(
    mnist_cnn=(8, "data={drawn_digits{train_samples:8 test_samples:2}}"),
    hep_lstm=(16, "data={generated_events{train_samples:16 test_samples:4}}"),
    resnet20_cifar10=(8, "data={generated_images{size:8 classes:10 train_samples:8 test_samples:2}}"),
)
TINY_BATCH = 4
TOO_LARGE = ("resnet50",)


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
        self.args, self.results = args, Results(list(PARTS))
        self.step, self.programs = self.results.step, Programs(args.out, args.minutes, args.plugin)
        self.mps = mps.Mps(self.programs.env)
        self.pytorch_version = ""

    # ------------------------------------------------------------------------------------------ device

    def device(self):
        for name, command in (
            ("nvidia-smi", ["nvidia-smi"]),
            ("libraries", ["ldd", self.programs.env["CATCHMENT_CUDA_PLUGIN"]]),
        ):
            self.step("device", name, lambda: self.show(name, command))
        self.step("device", "mnist_mlp", self.first_steps)

    def show(self, name, command):
        if shutil.which(command[0]) is None:
            raise NotRun(f"there is no {command[0]}")
        output = self.programs.once(name, command, 30)
        missing = re.findall(r"(\S+) => not found", output)
        if missing:
            raise Failed(f"not found: {', '.join(missing)} ({name}.log)")
        return dict(detail=f"{name}.log")

    def probe(self, name, run):
        return run(name, train_speed("mnist_mlp", 8, 1, 0, "--device=cuda"), 120)

    def first_steps(self):
        self.probe("mnist_mlp", self.programs.run)
        return dict(detail="three steps of training")

    def why_no_gpu(self):
        """Returns why nothing can run on the GPU, in the programs' own words; "" if it can."""
        try:
            self.probe("probe", self.programs.once)
        except (Failed, NotRun) as why:
            found = re.match(r"exit code 1: (.*?)(; use CPU or AUTO)? \(probe\.log\)$", str(why))
            # Anything else is a failure of the first step, which has a row.
            return found.group(1) if found else ""
        return ""

    # ------------------------------------------------------------------------------------------- tests

    def cases(self):
        """Returns the names of the layers' tests on the device."""
        listed = self.programs.once("layers_test_list", layers_test(["*OnDevice"], "--gtest_list_tests"), 60)
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
        left, outcomes, runs = cases, {}, 0
        while left:
            runs += 1
            name = "layers_test" + (f"_{runs}" if runs > 1 else "")
            with contextlib.suppress(Failed):
                self.programs.once(name, layers_test(left), 180, cublaslt_level=2)
            before = len(outcomes)
            with open(self.programs.log(name)) as file:
                for what, case in re.findall(
                    r"^\[ *(RUN|OK|FAILED|SKIPPED) *\] ([^\s,]+)", file.read(), re.MULTILINE
                ):
                    if case in cases:
                        outcomes[case] = what
            if len(outcomes) == before:
                raise Failed(f"{len(left)} of {len(cases)} cases did not begin ({name}.log)")
            left = [case for case in left if case not in outcomes]
        failed = [case for case in cases if outcomes[case] in ("FAILED", "RUN")]
        skipped = sum(what == "SKIPPED" for what in outcomes.values())
        if failed:
            ended = [case for case in failed if outcomes[case] == "RUN"]
            raise Failed(
                f"{len(failed)} of {len(cases)} cases: {', '.join(failed[:5])}{', ...' * (len(failed) > 5)}"
                f"{f'; of these {len(ended)} ended the program' if ended else ''}; "
                + self.programs.second_try("layers_test", layers_test(failed[:5]), 60)
            )
        if skipped or not cases:
            raise Failed(f"{skipped} of {len(cases)} cases were skipped")
        return dict(detail=f"{len(cases)} cases of layers and losses, in float32, TF32, bfloat16 and float16")

    # --------------------------------------------------------------------------------------- sanitizer

    def sanitizer(self):
        for tool in ("memcheck", "racecheck"):
            self.step("sanitizer", tool, lambda: self.sanitize(tool))

    def sanitize(self, tool):
        cases = [f"*TrainLikeTheCpus/{name}OnDevice" for name in SANITIZED]
        self.programs.once(
            "sanitizer_" + tool,
            [
                find_tool("compute-sanitizer"),
                "--tool=" + tool,
                "--error-exitcode=9",
                "--target-processes=all",
                *layers_test(cases),
            ],
            90,
        )
        return dict(detail=f"{', '.join(SANITIZED)} (sanitizer_{tool}.log)")

    # ------------------------------------------------------------------------------------------- speed

    def speeds(self):
        for example, precision, batch in SPEEDS:
            batch = TINY_BATCH if self.args.plugin else batch
            self.step(
                "speed",
                f"{example}, {precision}, batch {batch}",
                lambda: self.speed(example, precision, batch),
            )

    def speed(self, example, precision, batch):
        """Measures Catchment and PyTorch in turns."""
        rounds, seconds = (ROUNDS, SECONDS) if not self.args.plugin else (1, 0.01)
        if self.args.plugin and example in TOO_LARGE:
            raise NotRun("takes too long on a processor")
        if self.programs.seconds_left() < rounds * 3 * seconds:
            raise NotRun(self.programs.time_is_over())
        theirs, why = self.start_pytorch(example, precision, batch)
        ours, pytorch = [], []
        try:
            for _ in range(rounds):
                command = train_speed(
                    example,
                    batch,
                    4,
                    seconds,
                    "--device=cuda:0",
                    "--precision=" + precision,
                    "--update=false",
                )
                ours.append(float(self.programs.run(f"speed_{example}_{precision}", command, 60)))
                if theirs:
                    theirs.stdin.write(f"{seconds}\n")
                    theirs.stdin.flush()
                    line = theirs.stdout.readline()
                    if not line:
                        theirs, why = None, f"PyTorch ended (pytorch_{example}_{precision}.log)"
                        continue
                    pytorch.append(float(line))
        finally:
            if theirs:
                theirs.stdin.close()
                theirs.wait(timeout=30)
        row = dict(samples_per_s=round(statistics.median(ours)), all=ours, batch=batch)
        if not pytorch:
            return dict(row, detail="no PyTorch beside it: " + why)
        their = statistics.median(pytorch)
        return dict(
            row,
            pytorch_samples_per_s=round(their),
            pytorch_all=pytorch,
            ratio=round(row["samples_per_s"] / their, 3),
        )

    def start_pytorch(self, example, precision, batch):
        """Returns the process, or None and why there is none."""
        if self.args.plugin:
            return None, "this is not a GPU"
        found = subprocess.run(
            [sys.executable, "-c", "import torch; print(torch.cuda.is_available())"],
            text=True,
            capture_output=True,
        )
        if found.returncode != 0:
            return None, "python3 has no torch"
        if found.stdout.strip() != "True":
            return None, "python3's torch sees no CUDA device"
        log = open(self.programs.log(f"pytorch_{example}_{precision}"), "w")
        process = subprocess.Popen(
            [sys.executable, HERE + "/pytorch_speed.py", example, precision, str(batch)],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        ready = process.stdout.readline()
        if not ready.startswith("ready"):
            process.wait(timeout=30)
            return None, f"it does not run ({os.path.basename(log.name)})"
        self.pytorch_version = ready.split()[1]
        return process, ""

    # ----------------------------------------------------------------------------------------- profile

    def ncu(self):
        """Measures what bounds each kernel: 200 launches of the third step."""
        example, batch = ("resnet50", 64) if not self.args.plugin else ("mnist_mlp", 8)
        command = train_speed(example, batch, 1, 0, "--device=cuda:0", "--precision=BFLOAT16")
        try:
            self.programs.once(
                "ncu",
                [
                    find_tool("ncu"),
                    "--set=basic",
                    "--target-processes=all",
                    "--launch-skip=1200",
                    "--launch-count=200",
                    *command,
                ],
                60,
            )
        except Failed:
            with open(self.programs.log("ncu")) as file:
                if "ERR_NVGPUCTRPERM" in file.read():
                    raise NotRun("this user may not read the GPU's counters (ERR_NVGPUCTRPERM)") from None
            raise
        return dict(detail=f"{example}, batch {batch}, BFLOAT16 (ncu.log)")

    # ---------------------------------------------------------------------------------------- training

    def train(self, example, workers, samples, least_accuracy, without_data, precision):
        name = f"train_{example}_{workers}_{precision}"
        out = f"{self.args.out}/{name}"
        settings = []
        if self.args.plugin:
            samples, data = TINY[example]
            settings = [f"--set=batch_size={TINY_BATCH}", "--threads=1", "--set=" + data]
        elif without_data:
            folder, instead = without_data
            if not os.path.isdir(os.path.join(os.environ.get("CATCHMENT_DATA", "/none"), folder)):
                settings = ["--set=" + instead]
        self.programs.run(
            name,
            [
                HERE + "/bin/catchment",
                "train",
                f"{HERE}/examples/{example}.textproto",
                f"--workers={workers}",
                "--servers=1",
                "--device=cuda:0",
                "--out=" + out,
                "--overwrite",
                "--json",
                f"--set=samples={samples}",
                f"--set=computation.precision={precision}",
                *settings,
            ],
            90,
        )
        with open(out + "/summary.json") as file:
            summary = json.load(file)
        accuracy = summary.get("test_accuracy", 0)
        wrong = [
            text
            for is_wrong, text in (
                (summary.get("phase") != "DONE", f"phase {summary.get('phase')}"),
                ("cuda:0" not in summary.get("device", ""), f"on {summary.get('device')}"),
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
        shared = f", workers share the GPU {self.mps.state}" if workers > 1 and not self.args.plugin else ""
        return dict(
            detail=f"{precision}, {summary['device']}{shared}",
            test_accuracy=round(accuracy, 4),
            samples_per_s=round(summary["samples"] / max(summary["wall_seconds"], 1e-9)),
        )

    def training(self):
        if not self.args.plugin:
            self.mps.start(works=lambda: self.probe("probe_mps", self.programs.once))
        try:
            self.trainings()
        finally:
            self.mps.stop()

    def trainings(self):
        for example, *budget in MODELS:
            for workers in WORKERS:
                self.step(
                    "training",
                    f"{example}, {workers} worker{'s' * (workers > 1)}",
                    lambda: self.train(example, workers, *budget, "FLOAT32"),
                )
        for precision in ("TF32", "BFLOAT16", "FLOAT16"):
            example, *budget = MODELS[0]
            self.step(
                "training",
                f"{example}, 2 workers, {precision}",
                lambda: self.train(example, 2, *budget, precision),
            )

    # ----------------------------------------------------------------------------------------- results

    def all(self):
        why = self.why_no_gpu()
        run = dict(
            device=self.device,
            tests=lambda: self.step("tests", "layers_test", self.layers),
            sanitizer=self.sanitizer,
            speed=self.speeds,
            profile=lambda: self.step("profile", "ncu", self.ncu),
            training=self.training,
        )
        for part, share in PARTS.items():
            self.programs.share = share
            if part not in self.args.parts:
                self.results.skip(part, "not asked for")
            elif why:
                self.results.skip(part, why)
            else:
                run[part]()

    def facts(self):
        with open(HERE + "/VERSION") as file:
            version = file.read()
        commit = re.search(r"commit: *(.*)", version)
        try:
            gpu = subprocess.run(
                ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                text=True,
                stdout=subprocess.PIPE,
                timeout=30,
                check=True,
            ).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            gpu = "none that nvidia-smi shows"
        toolkit = re.search(r"CUDA: *(.*)", version)
        return dict(
            date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            commit=commit.group(1) if commit else "unknown",
            gpu=gpu,
            cuda=toolkit.group(1) if toolkit else "",
            cublas=os.environ.get("CATCHMENT_CUBLAS") or "not found",
            pytorch=self.pytorch_version or "not used",
            plugin=self.args.plugin or "the bundle's",
            minutes=round(self.programs.seconds() / 60, 1),
        )

    def write(self):
        facts = self.facts()
        note = "The work of the GPU was done by a plugin on the processor: nothing here is of a GPU." * bool(
            self.args.plugin
        )
        self.results.write(
            self.args.out,
            facts,
            note,
            f"Samples per second, the median of {ROUNDS} rounds of {SECONDS} s in turns. Catchment's step is "
            "a worker's: weights from the host, gradients to the host. PyTorch's weights stay on the "
            "device, where it updates them.",
        )
        failed = self.results.count(FAILED)
        print(f"{self.args.out}/results.md: {failed} failed, {facts['minutes']} minutes")
        return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=HERE + "/results")
    parser.add_argument("--parts", default=",".join(PARTS), type=lambda text: text.split(","))
    parser.add_argument("--minutes", default=8, type=float)
    parser.add_argument("--plugin", default="")
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"--parts: there is no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    args.out = os.path.abspath(args.out)
    if args.plugin:
        args.plugin = os.path.abspath(args.plugin)
    check = Check(args)
    try:
        check.all()
    finally:
        status = check.write()
    return status


if __name__ == "__main__":
    sys.exit(main())
