"""What deploy/gpu/run.sh does, which see: runs the parts, writes results.md and results.json."""
import argparse
import datetime
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

import mps
from results import FAILED, Failed, NotRun, Results

HERE = os.path.dirname(os.path.abspath(__file__))

# The parts in their order: the share of all time at which each one is over. What a part leaves, the next one
# has.
PARTS = dict(device=0.1, tests=0.3, sanitizer=0.42, speed=0.8, profile=0.85, training=1.0)

# (example, samples, least test accuracy: well above chance, what to set without data in files)
MODELS = [
    ("mnist_cnn", 60000, 0.9, ("mnist", "data={drawn_digits{}}")),
    ("hep_lstm", 40000, 0.4, None),
    ("resnet20_cifar10", 40000, 0.15,
     ("cifar10", "data={generated_images{size:32 classes:10 train_samples:10000 test_samples:1000}}")),
]
WORKERS = (1, 2, 4)
# (example, precision, batch size)
SPEEDS = [("mnist_cnn", "TF32", 256), ("resnet50", "BFLOAT16", 64), ("resnet20_cifar10", "TF32", 128),
          ("hep_lstm", "TF32", 256), ("mnist_mlp", "TF32", 128), ("resnet50", "TF32", 64),
          ("mnist_cnn", "BFLOAT16", 256)]
ROUNDS, SECONDS = 3, 2
# Layers with all kinds of launches: products, sums in several blocks, rows of a warp, gathered patches.
SANITIZED = ("Convolution", "BatchNorm", "Lstm", "Residual")

# With --plugin a processor does the work of the GPU, and a sample takes up to a second: (samples, what to
# set).
TINY = dict(mnist_cnn=(8, "data={drawn_digits{train_samples:8 test_samples:2}}"),
            hep_lstm=(16, "data={generated_events{train_samples:16 test_samples:4}}"),
            resnet20_cifar10=(8, "data={generated_images{size:8 classes:10 train_samples:8 test_samples:2}}"))
TINY_BATCH = 4
TOO_LARGE = ("resnet50",)


class TooSlow(Failed):
    pass


# A training in order, with its daemons, where it still can.
def end(process):
    process.terminate()
    try:
        return process.communicate(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


def find_tool(name):
    path = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if path is None:
        raise NotRun(f"there is no {name}")
    return path


# The last line that says something: a stack trace may follow it.
def reason_of(errors, output):
    lines = (errors.strip() or output.strip() or "no output").splitlines()
    telling = [line for line in lines if not re.match(r"\s+@ |\*\*\* ", line)]
    return (telling or lines)[-1][:300]


class Check:
    def __init__(self, args):
        self.args, self.start, self.results = args, time.monotonic(), Results(list(PARTS))
        self.share = 1.0  # of all time, at which the current part is over
        self.env = dict(os.environ, CATCHMENT_CUDA_PLUGIN=args.plugin or HERE + "/bin/libcatchment_cuda.so")
        if os.environ.get("CATCHMENT_CUBLAS"):
            # The programs and libraries of the bundle find their own before this.
            self.env["LD_LIBRARY_PATH"] = ":".join(
                [os.environ["CATCHMENT_CUBLAS"]] + [p for p in [os.environ.get("LD_LIBRARY_PATH")] if p])
        self.mps = mps.Mps(self.env)
        self.pytorch_version = ""
        os.makedirs(args.out, exist_ok=True)

    def seconds_left(self):
        return self.share * 60 * self.args.minutes - (time.monotonic() - self.start)

    def log(self, name):
        return f"{self.args.out}/{name}.log"

    # Standard output of a program. Both streams go to a log, and what cuBLASLt logs to one for each process.
    def once(self, name, command, seconds, cublaslt_level=1, sync=False):
        limit = min(seconds, self.seconds_left())
        if limit < 5:
            raise NotRun(f"the time of this part of the {self.args.minutes:g} minutes is over")
        cublaslt_log = f"{self.args.out}/{name}_cublaslt_"
        env = dict(self.env, CUBLASLT_LOG_LEVEL=str(cublaslt_level),
                   CUBLASLT_LOG_FILE=cublaslt_log + "%i.log")
        if sync:
            env["CATCHMENT_CUDA_SYNC"] = "1"
        process = subprocess.Popen(command, env=env, cwd=HERE, text=True, errors="replace",
                                   stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        late = False
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            late = True
            output, errors = end(process)
        with open(self.log(name), "w") as file:
            file.write(output + errors)
        for path in glob.glob(glob.escape(cublaslt_log) + "*.log"):
            if os.path.getsize(path) == 0:
                os.remove(path)
        if late and limit < seconds:
            raise NotRun(f"not to its end: the time of this part of the {self.args.minutes:g} minutes is over")
        if late:
            raise TooSlow(f"not done after {limit:.0f} s ({name}.log)")
        if process.returncode != 0:
            raise Failed(f"exit code {process.returncode}: {reason_of(errors, output)} ({name}.log)")
        return output

    # The same, and once more after a failure, so that what fails is named where it does.
    def run(self, name, command, seconds):
        try:
            return self.once(name, command, seconds)
        except TooSlow:
            raise
        except Failed as first:
            raise Failed(f"{first}; {self.second_try(name, command, seconds)}") from None

    def second_try(self, name, command, seconds):
        try:
            self.once(name + "_sync", command, seconds, cublaslt_level=5, sync=True)
            why = "passed"
        except (Failed, NotRun) as failure:
            why = str(failure)
        return "with CATCHMENT_CUDA_SYNC=1: " + why

    def step(self, part, name, step):
        self.results.step(part, name, step)

    # ------------------------------------------------------------------------------------------ device

    def device(self):
        for name, command in (("nvidia-smi", ["nvidia-smi"]),
                              ("libraries", ["ldd", self.env["CATCHMENT_CUDA_PLUGIN"]])):
            self.step("device", name, lambda: self.show(name, command))
        self.step("device", "mnist_mlp", self.first_steps)

    def show(self, name, command):
        if shutil.which(command[0]) is None:
            raise NotRun(f"there is no {command[0]}")
        output = self.once(name, command, 30)
        missing = re.findall(r"(\S+) => not found", output)
        if missing:
            raise Failed(f"not found: {', '.join(missing)} ({name}.log)")
        return dict(detail=f"{name}.log")

    def probe(self, name, run):
        return run(name, [HERE + "/bin/train_speed", "--device=cuda", HERE + "/examples/mnist_mlp.textproto",
                          "8", "1",
                          "0"], 120)

    def first_steps(self):
        self.probe("mnist_mlp", self.run)
        return dict(detail="three steps of training")

    # Empty, or why nothing can run on the GPU: the programs' own words.
    def why_no_gpu(self):
        try:
            self.probe("probe", self.once)
        except (Failed, NotRun) as why:
            found = re.match(r"exit code 1: (.*?)(; use CPU or AUTO)? \(probe\.log\)$", str(why))
            # Anything else is a failure of the first step, which has a row.
            return found.group(1) if found else ""
        return ""

    # ------------------------------------------------------------------------------------------- tests

    # The layers' tests on the device, by name.
    def cases(self):
        listed = self.once("layers_test_list",
                           [HERE + "/bin/layers_test", "--gtest_list_tests", "--gtest_filter=*OnDevice"], 60)
        suite, names = "", []
        for line in listed.splitlines():
            if line.startswith("  "):
                names.append(suite + line.split()[0])
            elif line.split("#")[0].strip().endswith("."):
                suite = line.split("#")[0].strip()
        return names

    def tests(self):
        self.step("tests", "layers_test", self.layers)

    # A test that ends the program is one that fails; the ones after it run in another process.
    def layers(self):
        cases = self.cases()
        left, outcomes, runs = cases, {}, 0
        while left:
            runs += 1
            name = "layers_test" + (f"_{runs}" if runs > 1 else "")
            try:
                self.once(name, [HERE + "/bin/layers_test", "--gtest_filter=" + ":".join(left)], 180,
                          cublaslt_level=2)
            except Failed:
                pass
            before = len(outcomes)
            with open(self.log(name)) as file:
                for what, case in re.findall(r"^\[ *(RUN|OK|FAILED|SKIPPED) *\] ([^\s,]+)", file.read(),
                                             re.M):
                    if case in cases:
                        outcomes[case] = what
            if len(outcomes) == before:
                raise Failed(f"{len(left)} of {len(cases)} cases did not begin ({name}.log)")
            left = [case for case in left if case not in outcomes]
        failed = [case for case in cases if outcomes[case] in ("FAILED", "RUN")]
        skipped = sum(what == "SKIPPED" for what in outcomes.values())
        if failed:
            ended = [case for case in failed if outcomes[case] == "RUN"]
            raise Failed(f"{len(failed)} of {len(cases)} cases: {', '.join(failed[:5])}{', ...' * (len(failed) > 5)}"
                         f"{f'; of these {len(ended)} ended the program' if ended else ''}; " +
                         self.second_try(
                             "layers_test", [HERE + "/bin/layers_test",
                                             "--gtest_filter=" + ":".join(failed[:5])], 60))
        if skipped or not cases:
            raise Failed(f"{skipped} of {len(cases)} cases were skipped")
        return dict(detail=f"{len(cases)} cases of layers and losses, in float32, TF32, bfloat16 and float16")

    # --------------------------------------------------------------------------------------- sanitizer

    def sanitizer(self):
        for tool in ("memcheck", "racecheck"):
            self.step("sanitizer", tool, lambda: self.sanitize(tool))

    def sanitize(self, tool):
        sanitizer = find_tool("compute-sanitizer")
        self.once("sanitizer_" + tool, [
            sanitizer, "--tool=" + tool, "--error-exitcode=9", "--target-processes=all",
            HERE + "/bin/layers_test",
            "--gtest_filter=" + ":".join(f"*TrainLikeTheCpus/{name}OnDevice" for name in SANITIZED)], 90)
        return dict(detail=f"{', '.join(SANITIZED)} (sanitizer_{tool}.log)")

    # ------------------------------------------------------------------------------------------- speed

    def speeds(self):
        for example, precision, batch in SPEEDS:
            self.step("speed", f"{example}, {precision}, batch "
                               f"{batch if not self.args.plugin else TINY_BATCH}",
                      lambda: self.speed(example, precision, batch))

    # In turns with PyTorch.
    def speed(self, example, precision, batch):
        rounds, seconds = (ROUNDS, SECONDS) if not self.args.plugin else (1, 0.01)
        if self.args.plugin:
            batch = TINY_BATCH
            if example in TOO_LARGE:
                raise NotRun("takes too long on a processor")
        if self.seconds_left() < rounds * 3 * seconds:
            raise NotRun(f"the time of this part of the {self.args.minutes:g} minutes is over")
        theirs, why = self.start_pytorch(example, precision, batch)
        ours, pytorch = [], []
        try:
            for _ in range(rounds):
                ours.append(float(self.run(f"speed_{example}_{precision}", [
                    HERE + "/bin/train_speed", "--device=cuda:0", "--precision=" + precision,
                    "--update=false",
                    f"{HERE}/examples/{example}.textproto", str(batch), "4", str(seconds)], 60)))
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
        return dict(row, pytorch_samples_per_s=round(their), pytorch_all=pytorch,
                    ratio=round(row["samples_per_s"] / their, 3))

    # The process, or None and why not.
    def start_pytorch(self, example, precision, batch):
        if self.args.plugin:
            return None, "this is not a GPU"
        found = subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.is_available())"],
                               text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if found.returncode != 0:
            return None, "python3 has no torch"
        if found.stdout.strip() != "True":
            return None, "python3's torch sees no CUDA device"
        log = open(self.log(f"pytorch_{example}_{precision}"), "w")
        process = subprocess.Popen([sys.executable, HERE + "/pytorch_speed.py", example, precision,
                                    str(batch)],
                                   text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        ready = process.stdout.readline()
        if not ready.startswith("ready"):
            process.wait(timeout=30)
            return None, f"it does not run ({os.path.basename(log.name)})"
        self.pytorch_version = ready.split()[1]
        return process, ""

    # ----------------------------------------------------------------------------------------- profile

    def profile(self):
        self.step("profile", "ncu", self.ncu)

    # What bounds each kernel: 200 launches of the third step.
    def ncu(self):
        example, batch = ("resnet50", "64") if not self.args.plugin else ("mnist_mlp", "8")
        try:
            self.once("ncu", [find_tool("ncu"), "--set=basic", "--target-processes=all", "--launch-skip=1200",
                              "--launch-count=200", HERE + "/bin/train_speed", "--device=cuda:0",
                              "--precision=BFLOAT16", f"{HERE}/examples/{example}.textproto", batch, "1",
                              "0"], 60)
        except Failed:
            with open(self.log("ncu")) as file:
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
        self.run(name, [HERE + "/bin/catchment", "train", f"{HERE}/examples/{example}.textproto",
                        f"--workers={workers}", "--servers=1", "--device=cuda:0", "--out=" + out,
                        "--overwrite",
                        "--json", f"--set=samples={samples}", f"--set=computation.precision={precision}"] +
                 settings,
                 90)
        with open(out + "/summary.json") as file:
            summary = json.load(file)
        wrong = []
        if summary.get("phase") != "DONE":
            wrong.append(f"phase {summary.get('phase')}")
        if "cuda:0" not in summary.get("device", ""):
            wrong.append(f"on {summary.get('device')}")
        if int(summary.get("samples", 0)) < samples:
            wrong.append(f"{summary.get('samples')} of {samples} samples")
        if int(summary.get("pushes_non_finite", 0)) > 0:
            wrong.append("gradients were not finite")
        if not self.args.plugin and summary.get("test_accuracy", 0) < least_accuracy:
            wrong.append(f"test accuracy {summary.get('test_accuracy')}, expected {least_accuracy}")
        if wrong:
            raise Failed("; ".join(wrong))
        shared = f", workers share the GPU {self.mps.state}" if workers > 1 and not self.args.plugin else ""
        return dict(detail=f"{precision}, {summary['device']}{shared}",
                    test_accuracy=round(summary.get("test_accuracy", 0), 4),
                    samples_per_s=round(summary["samples"] / max(summary["wall_seconds"], 1e-9)))

    def training(self):
        if not self.args.plugin:
            self.mps.start(works=lambda: self.probe("probe_mps", self.once))
        try:
            self.trainings()
        finally:
            self.mps.stop()

    def trainings(self):
        for example, *budget in MODELS:
            for workers in WORKERS:
                self.step("training", f"{example}, {workers} worker{'s' * (workers > 1)}",
                          lambda: self.train(example, workers, *budget, "FLOAT32"))
        for precision in ("TF32", "BFLOAT16", "FLOAT16"):
            example, *budget = MODELS[0]
            self.step("training", f"{example}, 2 workers, {precision}",
                      lambda: self.train(example, 2, *budget, precision))

    # ----------------------------------------------------------------------------------------- results

    def all(self):
        why = self.why_no_gpu()
        run = dict(device=self.device, tests=self.tests, sanitizer=self.sanitizer, speed=self.speeds,
                   profile=self.profile, training=self.training)
        for part, share in PARTS.items():
            self.share = share
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
            gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                                  "--format=csv,noheader"],
                                 text=True, stdout=subprocess.PIPE, timeout=30, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            gpu = "none that nvidia-smi shows"
        toolkit = re.search(r"CUDA: *(.*)", version)
        return dict(date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
                    commit=commit.group(1) if commit else "unknown", gpu=gpu,
                    cuda=toolkit.group(1) if toolkit else "", cublas=os.environ.get("CATCHMENT_CUBLAS")
                    or "not found",
                    pytorch=self.pytorch_version or "not used", plugin=self.args.plugin or "the bundle's",
                    minutes=round((time.monotonic() - self.start) / 60, 1))

    def write(self):
        facts = self.facts()
        note = "The work of the GPU was done by a plugin on the processor: nothing here is of a GPU." * bool(self.args.plugin)
        self.results.write(
            self.args.out, facts, note,
            f"Samples per second, the median of {ROUNDS} rounds of {SECONDS} s in turns. Catchment's step is "
            "a worker's: weights from the host, gradients to the host. PyTorch's weights stay on the "
            "device, where it updates them.")
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
