"""What deploy/gpu/run.sh does, which see: runs the parts, writes results.md and results.json."""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import time

import mps

HERE = os.path.dirname(os.path.abspath(__file__))
PASSED, FAILED, NOT_RUN = "passed", "FAILED", "not run"

# (example, samples on a GPU, samples in plain loops, least test accuracy on a GPU: well above chance, what to set
# without data in files)
MODELS = [
    ("mnist_cnn", 60000, 32, 0.9, ("mnist", "data={drawn_digits{}}")),
    ("hep_lstm", 40000, 200, 0.4, None),
    ("resnet20_cifar10", 40000, 8, 0.15,
     ("cifar10", "data={generated_images{size:32 classes:10 train_samples:10000 test_samples:1000}}")),
]
WORKERS = (1, 2, 4)
# (example, precision, batch size)
SPEEDS = [("mnist_cnn", "TF32", 256), ("mnist_cnn", "BFLOAT16", 256), ("resnet50", "BFLOAT16", 64),
          ("resnet50", "TF32", 64), ("hep_lstm", "TF32", 256)]
ROUNDS, SECONDS = 3, 3


class NotRun(Exception):
    pass


class Failed(Exception):
    pass


# A training in order, with its daemons, where it still can.
def end(process):
    process.terminate()
    try:
        return process.communicate(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


class Check:
    def __init__(self, args):
        self.args, self.start, self.rows = args, time.monotonic(), []
        self.env = dict(os.environ)
        if os.environ.get("CATCHMENT_CUBLAS"):
            # The programs and libraries of the bundle find their own before this.
            self.env["LD_LIBRARY_PATH"] = ":".join(
                [os.environ["CATCHMENT_CUBLAS"]] + [p for p in [os.environ.get("LD_LIBRARY_PATH")] if p])
        if args.on_host:
            self.env["CATCHMENT_CUDA_PLUGIN"] = HERE + "/bin/cuda_plugin_on_host.so"
        self.mps = mps.Mps(self.env)
        os.makedirs(args.out, exist_ok=True)

    def seconds_left(self):
        return 60 * self.args.minutes - (time.monotonic() - self.start)

    # Standard output of a program of ours; both streams go to a log.
    def run(self, name, command, seconds):
        log = f"{self.args.out}/{name}.log"
        limit = min(seconds, self.seconds_left())
        if limit < 5:
            raise NotRun(f"the {self.args.minutes:g} minutes are over")
        process = subprocess.Popen(command, env=self.env, cwd=HERE, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        late = False
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            late = True
            output, errors = end(process)
        with open(log, "w") as file:
            file.write(output + errors)
        if late and limit < seconds:
            raise NotRun(f"not to its end: the {self.args.minutes:g} minutes are over")
        if late:
            raise Failed(f"not done after {limit:.0f} s ({os.path.basename(log)})")
        if process.returncode != 0:
            lines = (errors.strip() or output.strip() or "no output").splitlines()
            raise Failed(f"exit code {process.returncode}: {lines[-1][:300]} ({os.path.basename(log)})")
        return output

    # Adds a row: what `step` returns, or why there is nothing.
    def step(self, part, name, step):
        row, start = dict(part=part, name=name), time.monotonic()
        try:
            row.update(status=PASSED, **step())
        except NotRun as why:
            row.update(status=NOT_RUN, detail=str(why))
        except Exception as why:  # whatever it is, the other steps continue
            row.update(status=FAILED, detail=str(why) or type(why).__name__)
        row["seconds"] = round(time.monotonic() - start, 1)
        self.rows.append(row)
        print(f"{part}, {name}: {row['status']} {row.get('detail', '')}", flush=True)

    def probe(self, name):
        self.run(name, [HERE + "/bin/train_speed", "--device=cuda", HERE + "/examples/mnist_mlp.textproto", "8", "1",
                        "0"], 120)

    # Empty, or why nothing can run on the GPU: the programs' own words.
    def why_no_gpu(self):
        if self.args.on_host:
            return ""
        try:
            self.probe("probe")
        except (Failed, NotRun) as why:
            return re.sub(r"^exit code 1: (.*?)(; use CPU or AUTO)? \(probe\.log\)$", r"\1", str(why))
        return ""

    # ------------------------------------------------------------------------------------------- tests

    def layers(self):
        where = "OnHost" if self.args.on_host else "OnDevice"
        report = self.args.out + "/layers_test.json"
        self.run("layers_test", [HERE + "/bin/layers_test", f"--gtest_filter=*{where}", "--gtest_output=json:" + report],
                 180)
        with open(report) as file:
            cases = [case for suite in json.load(file)["testsuites"] for case in suite["testsuite"]]
        ran = [case for case in cases if case["result"] == "COMPLETED"]
        if not ran or len(ran) < len(cases):
            raise Failed(f"{len(cases) - len(ran)} of {len(cases)} cases were skipped")
        return dict(detail=f"{len(ran)} cases of layers and losses, in float32, TF32, bfloat16 and float16")

    # ---------------------------------------------------------------------------------------- training

    def train(self, example, workers, budget, least_accuracy, without_data, precision):
        out = f"{self.args.out}/train_{example}_{workers}_{precision}"
        command = [HERE + "/bin/catchment", "train", f"{HERE}/examples/{example}.textproto", f"--workers={workers}",
                   "--servers=1", "--device=cuda:0", "--out=" + out, "--overwrite", "--json",
                   f"--set=samples={budget}", f"--set=computation.precision={precision}"]
        if self.args.on_host:
            command += ["--set=batch_size=4", "--threads=1", "--set=" + TINY[example]]
        elif without_data:
            folder, instead = without_data
            if not os.path.isdir(os.path.join(os.environ.get("CATCHMENT_DATA", "/none"), folder)):
                command.append("--set=" + instead)
        self.run(os.path.basename(out), command, 90)
        with open(out + "/summary.json") as file:
            summary = json.load(file)
        wrong = []
        if summary.get("phase") != "DONE":
            wrong.append(f"phase {summary.get('phase')}")
        if "cuda:0" not in summary.get("device", ""):
            wrong.append(f"on {summary.get('device')}")
        if int(summary.get("samples", 0)) < budget:
            wrong.append(f"{summary.get('samples')} of {budget} samples")
        if int(summary.get("pushes_non_finite", 0)) > 0:
            wrong.append("gradients were not finite")
        if not self.args.on_host and summary.get("test_accuracy", 0) < least_accuracy:
            wrong.append(f"test accuracy {summary.get('test_accuracy')}, expected {least_accuracy}")
        if wrong:
            raise Failed("; ".join(wrong))
        shared = f", workers share the GPU {self.mps.state}" if workers > 1 and not self.args.on_host else ""
        return dict(detail=f"{precision}, {summary['device']}{shared}", test_accuracy=round(summary.get("test_accuracy", 0), 4),
                    samples_per_s=round(summary["samples"] / max(summary["wall_seconds"], 1e-9)))

    def training(self):
        if not self.args.on_host:
            self.mps.start(works=lambda: self.probe("probe_mps"))
        try:
            self.trainings()
        finally:
            self.mps.stop()

    def trainings(self):
        for example, samples, few, least, without_data in MODELS:
            for workers in WORKERS:
                self.step("training", f"{example}, {workers} worker{'s' * (workers > 1)}", lambda: self.train(
                    example, workers, few if self.args.on_host else samples, least, without_data, "FLOAT32"))
        for precision in ("TF32", "BFLOAT16", "FLOAT16"):
            example, samples, few, least, without_data = MODELS[0]
            self.step("training", f"{example}, 2 workers, {precision}", lambda: self.train(
                example, 2, few if self.args.on_host else samples, least, without_data, precision))

    # ------------------------------------------------------------------------------------------- speed

    def speed(self, example, precision, batch):
        if self.seconds_left() < ROUNDS * 3 * SECONDS:
            raise NotRun(f"the {self.args.minutes:g} minutes are over")
        theirs, why = self.start_pytorch(example, precision, batch)
        ours, pytorch = [], []
        try:
            for _ in range(ROUNDS):
                ours.append(float(self.run(f"speed_{example}_{precision}", [
                    HERE + "/bin/train_speed", "--device=cuda:0", "--precision=" + precision, "--update=false",
                    f"{HERE}/examples/{example}.textproto", str(batch), "4", str(SECONDS)], 60)))
                if theirs:
                    theirs.stdin.write(f"{SECONDS}\n")
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
        found = subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.is_available())"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if found.returncode != 0:
            return None, "python3 has no torch"
        if found.stdout.strip() != "True":
            return None, "python3's torch sees no CUDA device"
        log = open(f"{self.args.out}/pytorch_{example}_{precision}.log", "w")
        process = subprocess.Popen([sys.executable, HERE + "/pytorch_speed.py", example, precision, str(batch)],
                                   text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        ready = process.stdout.readline()
        if not ready.startswith("ready"):
            process.wait(timeout=30)
            return None, f"it does not run ({os.path.basename(log.name)})"
        self.pytorch_version = ready.split()[1]
        return process, ""

    def speeds(self):
        for example, precision, batch in SPEEDS:
            self.step("speed", f"{example}, {precision}, batch {batch}", lambda: self.speed(example, precision, batch))

    # ----------------------------------------------------------------------------------------- results

    def skip(self, part, why):
        self.step(part, "all", lambda: (_ for _ in ()).throw(NotRun(why)))

    def all(self):
        self.pytorch_version = ""
        why = self.why_no_gpu()
        parts = dict(tests=lambda: self.step("tests", "layers_test", self.layers), training=self.training,
                     speed=self.speeds)
        for part, run in parts.items():
            if part not in self.args.parts:
                self.skip(part, "not asked for")
            elif why:
                self.skip(part, why)
            elif part == "speed" and self.args.on_host:
                self.skip(part, "plain loops on the processor have no speed worth a number")
            else:
                run()

    def facts(self):
        with open(HERE + "/VERSION") as file:
            version = file.read()
        commit = re.search(r"commit: *(.*)", version)
        try:
            gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                                 text=True, stdout=subprocess.PIPE, timeout=30, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            gpu = "none that nvidia-smi shows"
        toolkit = re.search(r"CUDA: *(.*)", version)
        return dict(date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
                    commit=commit.group(1) if commit else "unknown", gpu=gpu,
                    cuda=toolkit.group(1) if toolkit else "", cublas=os.environ.get("CATCHMENT_CUBLAS") or "not found",
                    pytorch=self.pytorch_version or "not used", on_host=self.args.on_host,
                    minutes=round((time.monotonic() - self.start) / 60, 1))

    def write(self):
        facts = self.facts()
        with open(self.args.out + "/results.json", "w") as file:
            json.dump(dict(facts, rows=self.rows), file, indent=1)
        lines = ["# What works on the GPU, and how fast", ""]
        lines += ["**The layers ran in plain loops on the processor: nothing here is of a GPU.**", ""] * facts["on_host"]
        lines += ["| | |", "| --- | --- |"] + [f"| {key} | {value} |" for key, value in facts.items()]
        lines += ["", "## Summary", "", "| part | passed | FAILED | not run |", "| --- | --- | --- | --- |"]
        for part in ("tests", "training", "speed"):
            counts = [sum(r["part"] == part and r["status"] == s for r in self.rows) for s in (PASSED, FAILED, NOT_RUN)]
            lines.append(f"| {part} | " + " | ".join(map(str, counts)) + " |")
        for part in ("tests", "training"):
            lines += ["", "## " + part.capitalize(), "", "| what | | s | samples/s | test accuracy | |",
                      "| --- | --- | --- | --- | --- | --- |"]
            lines += [f"| {r['name']} | {r['status']} | {r['seconds']} | {r.get('samples_per_s', '')} | "
                      f"{r.get('test_accuracy', '')} | {r.get('detail', '')} |" for r in self.rows if r["part"] == part]
        lines += ["", "## Speed", "",
                  f"Samples per second, the median of {ROUNDS} rounds of {SECONDS} s in turns. Catchment's step is a "
                  "worker's: weights from the host, gradients to the host. PyTorch's weights stay on the device, where "
                  "it updates them.", "", "| what | | Catchment | PyTorch | ratio | |",
                  "| --- | --- | --- | --- | --- | --- |"]
        lines += [f"| {r['name']} | {r['status']} | {r.get('samples_per_s', '')} | {r.get('pytorch_samples_per_s', '')} | "
                  f"{r.get('ratio', '')} | {r.get('detail', '')} |" for r in self.rows if r["part"] == "speed"]
        with open(self.args.out + "/results.md", "w") as file:
            file.write("\n".join(lines) + "\n")
        failed = sum(row["status"] == FAILED for row in self.rows)
        print(f"{self.args.out}/results.md: {failed} failed, {facts['minutes']} minutes")
        return 1 if failed else 0


# In plain loops on the processor a sample takes tenths of a second.
TINY = dict(mnist_cnn="data={drawn_digits{train_samples:32 test_samples:4}}",
            hep_lstm="data={generated_events{train_samples:200 test_samples:20}}",
            resnet20_cifar10="data={generated_images{size:32 classes:10 train_samples:8 test_samples:4}}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=HERE + "/results")
    parser.add_argument("--parts", default="tests,training,speed", type=lambda text: text.split(","))
    parser.add_argument("--minutes", default=8, type=float)
    parser.add_argument("--on_host", action="store_true")
    args = parser.parse_args()
    unknown = set(args.parts) - {"tests", "training", "speed"}
    if unknown:
        parser.error(f"--parts: there is no {', '.join(sorted(unknown))}; there are tests, training and speed")
    args.out = os.path.abspath(args.out)
    check = Check(args)
    try:
        check.all()
    finally:
        status = check.write()
    return status


if __name__ == "__main__":
    sys.exit(main())
