#!/usr/bin/env python3
"""Runs the commands of README.md, deploy/README.md and docs/**.md, as they stand there.

Each page has a separate directory that looks like the project after a build; its commands run in it one
after another, so that one finds what another left. What is changed to be done in seconds is only appended:
the table RULES says what, and for each command that cannot run here what is checked instead, and which test
takes it. A command that no rule covers fails the test, and so does a rule that covers nothing.
"""

import collections
import functools
import glob
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

sys.path.insert(0, "tests/docs")
import pages

PROJECT = os.getcwd()
SCRATCH = os.path.join(os.environ["TEST_TMPDIR"], "pages")
DIGITS = "--set 'data.drawn_digits={train_samples: 256, test_samples: 64}'"
PATIENCE = 900  # seconds a command may take

failures = []


class Failed(Exception):
    pass


def expect(truth, message):
    if not truth:
        raise Failed(message)


# ----------------------------------------------------------------------------------------- where commands run


def make_directory(page):
    """The project as it is after `bazel build //...`, with a job of the user's own, job.textproto."""
    place = os.path.join(SCRATCH, page.replace("/", "_"))
    for folder in ("examples", "deploy", "python", "docs/figures"):
        shutil.copytree(folder, os.path.join(place, folder))
    for name in ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"):
        shutil.copy(name, place)
    shutil.copy("examples/drawn_digits.textproto", os.path.join(place, "job.textproto"))
    os.symlink(PROJECT, os.path.join(place, "bazel-bin"))
    os.mkdir(os.path.join(place, "bin"))
    os.symlink(os.path.join(PROJECT, "cli/catchment"), os.path.join(place, "bin/catchment"))
    return place


def shell(command, place):
    environment = {"PATH": os.path.join(place, "bin") + ":" + os.environ["PATH"], "HOME": place}
    try:
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"not done within {PATIENCE} s") from None
    expect(done.returncode == 0, f"exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


@functools.lru_cache(maxsize=None)
def help_of(program, *words):
    """Returns what `program WORDS --help` prints."""
    return subprocess.run(
        [program, *words, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout


def flags_of(command):
    return re.findall(r"(?<!\S)--([a-z][a-z_-]*)", command)


def expect_flags(command, help_text):
    for flag in flags_of(command):
        expect(re.search(rf"--?{flag}\b", help_text), f"there is no flag --{flag}")


# --------------------------------------------------------------------------------------------- kinds of rules


def run(append="", replace=(), leaves=()):
    """The command itself, with `append` behind it and each (placeholder, value) of `replace` filled in; then
    these files are there."""

    def check(command, place):
        for placeholder, value in replace:
            command = re.sub(rf"\b{placeholder}\b", value, command)
        shell(command + " " + append, place)
        for name in leaves:
            expect(glob.glob(os.path.join(place, name)), f"it left no {name}")
        return "run" + (", with " + append if append else "")

    return check


def taken_by(test, what, says):
    """Another test runs it, and has `says` in it: the same script, or the page that it takes it from."""

    def check(command, place):
        expect(says in pages.read(test), f"{test} does not take it: it says nothing of {says}")
        shell_words(command)
        return f"in {test}: {what}"

    return check


def shell_words(command):
    """bash takes it, and the project's scripts in it are there."""
    subprocess.run(["bash", "-nc", command], check=True)
    for word in re.findall(r"(?<!\S)deploy/[\w./-]+\.sh", command):
        expect(os.access(word, os.X_OK), f"there is no script {word}")


def labels(command, place):
    """Bazel does not run in its own test, and setting up would change this machine. What is built is what
    runs here."""
    shell_words(command)
    for package, name in re.findall(r"//([\w/]+):(\w+)", command):
        if package == "tests/deploy":
            expect(os.path.exists(f"{package}/{name}.sh"), f"there is no //{package}:{name}")
    setup = "; tests/deploy/setup_test.sh runs setup.sh with stand-ins for Debian's tools"
    return "bash -n, scripts and tests exist" + (setup if "setup.sh" in command else "")


def daemon(command, place):
    """A line for node0 or node1."""
    taken = taken_by(
        "tests/cluster/two_namespaces_test.sh", "run in two network namespaces", "deploy/README.md"
    )
    words = command.split("$ ", 1)[1]
    expect_flags(words, help_of(words.split()[0].replace("bazel-bin/", "")))
    return taken(words, place) + "; flags exist"


def program(command, place):
    """NumPy and PyTorch are not here: train_program_test trains with a program that needs neither."""
    subcommand = command.split()[1]
    expect(
        f'"$catchment" {subcommand} --program=' in pages.read("tests/cluster/train_program_test.sh"),
        f"no test has {subcommand} with a program",
    )
    expect_flags(re.sub(r'"[^"]*"', "", command), help_of("cli/catchment", subcommand))
    for path in re.findall(r"examples/\S+\.py", command):
        expect(os.path.exists(os.path.join(place, path)), f"there is no {path}")
    return "files and flags exist; tests/cluster/train_program_test.sh does it with another program"


def two_sites(command, place):
    """PyTorch is not here, and the flags need none."""
    taken = taken_by("tests/python/two_sites_test.py", "run with PyTorch", "examples/python/gpt_two_sites.py")
    expect_flags(command, help_of(sys.executable, "examples/python/gpt_two_sites.py"))
    return taken(command, place) + "; flags exist"


def tune(command, place):
    """Optuna is not here. An array of Slurm's starts the same command several times."""
    command = re.sub(r'^sbatch .*--wrap="(.*)"$', r"\1", command)
    expect_flags(command, help_of("cli/catchment", "tune"))
    path = command.split()[2]
    expect(os.path.exists(os.path.join(place, path)), f"there is no {path}")
    return "file and flags exist; tests/python/study/tune_test.py searches with Optuna"


def sbatch(command, place):
    """Slurm is in slurm_test, with other numbers of nodes and tasks: here the script and its own flags."""
    script, flags = re.match(r"sbatch (?:--\S+ )*(\S+\.(?:sbatch|pbs)) (.*)", command).groups()
    expect(os.path.exists(os.path.join(place, script)), f"there is no {script}")
    shell(f"bash -n {script}", place)
    expect_flags(flags, shell(f"bash {script} --help", place))
    for word in shlex.split(flags):
        expect(word.startswith("--") or os.path.exists(os.path.join(place, word)), f"there is no {word}")
    tests = [
        one
        for one in [*glob.glob("tests/deploy/slurm*_test.sh"), "tests/deploy/pbs_test.sh"]
        if os.path.basename(script) in pages.read(one)
    ]
    expect(tests, f"no test starts {script}")
    return f"script, files and flags exist; {tests[0]} starts the same script"


def qsub(command, place):
    """PBS is a stand-in in pbs_test, with other numbers of hosts: here the script and its own flags."""
    script, flags = re.match(r"qsub .* -- \$PWD/(\S+\.pbs) (.*)", command).groups()
    return sbatch_program(f"sbatch {script} {flags}", place)


def slurm(command, place):
    """The command submits from an installation: here its flags and files."""
    taken = taken_by("tests/deploy/slurm_test.sh", "submitted to a real Slurm", '(slurm "$digits"')
    if "--workers_partition" in command:
        test = "tests/deploy/slurm_partitions_test.sh"
        taken = taken_by(test, "submitted to a real Slurm", "slurm --servers_partition=")
    expect_flags(re.sub(r'"[^"]*"', "", command), help_of("cli/catchment", "slurm"))
    for path in re.findall(r"\S+\.textproto|examples/\S+\.py", command):
        expect(os.path.exists(os.path.join(place, path)), f"there is no {path}")
    return taken(command, place) + "; files and flags exist"


def sbatch_program(command, place):
    """As sbatch, with a program, whose words are not the script's."""
    command = re.sub(r'--program="[^"]*"', "--program=train.py", command.replace("catchment-0.1.0/", ""))
    return sbatch(re.sub(r"--set (\S+)", r"--set=\1", command), place)


def sbatch_worker(command, place):
    """A worker that joins a job, in a job of its own."""
    words = re.search(r"--wrap='catchment_worker (.*)'$", command)[1]
    expect_flags(re.sub(r'"[^"]*"', "", words), help_of("worker/catchment_worker"))
    return "flags exist; //tests/cluster:joining_test has workers join"


def mpiexec(command, place):
    """No MPI is here: the shell, as whose variables an index comes, and the worker's flags."""
    words = re.search(r"sh -c '(catchment_worker .*) \|\| true'", command)[1]
    subprocess.run(["sh", "-nc", words], check=True)
    expect_flags(words, help_of("worker/catchment_worker"))
    return "sh -n, flags exist"


def compare_on(test, system):
    """A check of a comparison on a cluster, which `test` does with a smaller job."""

    def check(command, place):
        expect('/bin/catchment" compare' in pages.read(f"tests/deploy/{test}"), f"{test} has no comparison")
        expect_flags(command, help_of("cli/catchment", "compare"))
        for path in re.findall(r"(?:compare |--overlay=)(\S+)", command):
            expect(os.path.exists(os.path.join(place, path)), f"there is no {path}")
        return f"files and flags exist; tests/deploy/{test} compares {system}"

    return check


def docker(command, place):
    """No daemon of Docker's: container_test builds the same Dockerfile with buildah, and trains in it."""
    for word in command.split():
        if "/" not in word or word.startswith(("--", "/work", "registry.example/")):
            continue
        path = word.replace("/opt/catchment", "catchment-0.1.0")
        expect(os.path.exists(os.path.join(place, path)), f"there is no {path}")
    train = re.search(r" catchment (train) (.*)", command)
    if train:
        expect_flags(train[2], help_of("cli/catchment", train[1]))
    return "files and flags exist; tests/deploy/container_test.sh does it with buildah"


def cluster_container(command, place):
    """podman-hpc, Shifter and Apptainer are for clusters: here files and the daemon's flags."""
    for path in re.findall(r"(?<!\S)(?:/opt/catchment|catchment-0\.1\.0)/\S+", command):
        path = path.replace("/opt/catchment", "catchment-0.1.0")
        expect(os.path.exists(os.path.join(place, path)), f"there is no {path}")
    definition = re.search(r" (deploy/apptainer/\S+)", command)
    if definition:
        expect(
            os.path.exists(os.path.join(place, "catchment-0.1.0", definition[1])),
            f"there is no {definition[1]}",
        )
    worker = re.search(r"\bcatchment_worker (.*)", command)
    if worker:
        expect_flags(worker[1], help_of("worker/catchment_worker"))
    train = re.search(r"\.sif (train) (.*)", command)
    if train:
        expect_flags(train[2], help_of("cli/catchment", train[1]))
    return (
        "files and flags exist; tests/deploy/apptainer_test.sh builds the image, "
        "container_test.sh the Dockerfile's"
    )


def kubectl(command, place):
    """No cluster: what the command names is in the manifests that an earlier command of the page has made."""
    shell_words(command)
    made = pages.read(os.path.join(place, "job.yaml"))
    for kind, name in [("Job", word) for word in re.findall(r"job/(\S+)", command)] + [
        ("StatefulSet", word) for word in re.findall(r"(catchment-server)-0\b", command)
    ]:
        expect(f"\nkind: {kind}\nmetadata:\n  name: {name}\n" in made, f"no {kind} {name}")
    for label, value in re.findall(r"--selector=(\S+?)=(\S+)", command):
        expect(f"{label}: {value}\n" in made, f"no Pod has {label}: {value}")
    inside = re.search(r"(?: -- |^)catchment (\w+)(.*)", command)
    if inside:
        expect_flags(inside[2], help_of("cli/catchment", inside[1]))
    return "names are in the manifests; tests/deploy/kubernetes_test.sh runs their Pods as processes"


def piped_to_kubectl(command, place):
    """The part before the pipe, since there is no cluster."""
    shell(command.split("|")[0], place)
    return "run, without kubectl"


def program_on_kubernetes(command, place):
    """PyTorch is not here."""
    taken = taken_by("tests/deploy/kubernetes_test.sh", "run with another program", "in_cluster program")
    expect_flags(re.sub(r'"[^"]*"', "", command.split("|")[0]), help_of("cli/catchment", "manifests"))
    for path in re.findall(r"examples/\S+\.py", command):
        expect(os.path.exists(os.path.join(place, path)), f"there is no {path}")
    return taken(command, place) + "; files and flags exist"


def systemd(command, place):
    """It would change this machine. Its files are the project's; systemd_test has systemd check the units."""
    shell_words(command)
    for pattern in re.findall(r"/opt/catchment/(\S+)", command):
        expect(glob.glob(pattern), f"there is no {pattern}")
    for unit in re.findall(r"catchment-(?:server|worker@)", command):
        expect(os.path.exists(f"deploy/systemd/{unit}.service"), f"there is no unit {unit}")
    program = command.split()[0]
    if program in ("useradd", "install") and shutil.which(program):
        expect_flags(command, help_of(program))
    return "bash -n, files, units and flags exist; tests/deploy/systemd_test.sh has systemd check the units"


# -------------------------------------------------------------------------------------------------- the table

GPU_BUNDLE = taken_by(
    "tests/deploy/gpu_bundle_test.sh",
    "made, unpacked and run, on the processor in place of a GPU",
    "deploy/gpu_bundle.sh",
)
HIDDEN = re.compile(
    r"\s*(bazel|bazel-bin/\S+|catchment (train|compare|simulate|advise|report|validate|health)|"
    r"deploy/\S+\.sh)( |$)"
)
COMPARED = ("report.html", "report.json")
SOMETIMES = ("model-best.safetensors", "program.txt")  # with evaluation.keep_best, with --program
TRAINED = (
    "summary.json",
    "metrics.jsonl",
    "tensorboard",
    "model.safetensors",
    "checkpoints",
    "job.textproto",
    "catchment.claim",
    "logs",
)

Rule = collections.namedtuple("Rule", "page command check")
RULES = [
    Rule(page, re.compile(command), check)
    for page, command, check in [
        (
            "README.md",
            r"deploy/quickstart\.sh && source \.venv/bin/activate",
            taken_by(
                "tests/deploy/quickstart_test.sh",
                "run with stand-ins for Bazel and the command",
                "deploy/quickstart.sh",
            ),
        ),
        ("README.md", r"pip install torch", labels),
        *(
            (
                page,
                r"deploy/wheel\.sh( && pip install .*)?|pip install out-bundle/.*",
                taken_by("tests/deploy/wheel_test.sh", "made, and installed", "deploy/wheel.sh"),
            )
            for page in ("README.md", "deploy/README.md")
        ),
        ("README.md", r"catchment train --program=.*", program),
        ("README.md", r"catchment slurm .*", slurm),
        ("README.md", r"catchment manifests .* \| kubectl apply -f -", program_on_kubernetes),
        ("docs/quickstart.md", r"bazel-bin/cli/catchment validate \S+", run()),
        (
            "docs/quickstart.md",
            r"bazel-bin/cli/catchment train \S+ --servers=2 .*--out=out",
            run(f"{DIGITS} --set samples=512", leaves=["out/" + name for name in TRAINED]),
        ),
        (
            "docs/quickstart.md",
            r"bazel-bin/cli/catchment train .*--out=out-downpour",
            run(f"{DIGITS} --set samples=512", leaves=["out-downpour/" + name for name in TRAINED]),
        ),
        ("docs/quickstart.md", r"bazel-bin/cli/catchment train --resume .*", run("--set samples=1024")),
        (
            "README.md",
            r"catchment compare .*--out=out-compare",
            run(
                f"{DIGITS} --seeds=1 --search=none --budget=samples:1024",
                leaves=["out-compare/" + name for name in COMPARED],
            ),
        ),
        ("deploy/README.md", r"node[01]\$ deploy/setup\.sh && bazel .*", labels),
        ("deploy/README.md", r"node[01]\$ bazel-bin/.*", daemon),
        (
            "docs/security.md",
            r"deploy/make_certs\.sh .*",
            taken_by("tests/deploy/make_certs_test.sh", "run", "deploy/make_certs.sh"),
        ),
        ("docs/operating.md", r"catchment doctor --out=out", run()),
        ("deploy/README.md", r"bazel test .*", labels),
        ("deploy/README.md", r'(podman run|apptainer exec) .* bash -c ".*"', labels),
        (
            "deploy/README.md",
            r"deploy/bundle\.sh",
            run("--bin=bazel-bin", leaves=["out-bundle/catchment-0.1.0.tar.gz"]),
        ),
        (
            "deploy/README.md",
            r"deploy/gpu_bundle\.sh|tar -xzf catchment-gpu-\S+|catchment-gpu-\S+/run\.sh",
            GPU_BUNDLE,
        ),
        (
            "docs/results/gpu.md",
            r"deploy/gpu_bundle\.sh|tar -xzf catchment-gpu-\S+ && catchment-gpu-\S+/run\.sh",
            GPU_BUNDLE,
        ),
        ("deploy/README.md", r"tar -xzf \S+", run(leaves=["catchment-0.1.0/bin/catchment"])),
        (
            "deploy/README.md",
            r"catchment-0\.1\.0/bin/catchment train .*",
            run("--set samples=512", leaves=["out-digits/model.safetensors"]),
        ),
        ("deploy/README.md", r"catchment slurm .*", slurm),
        ("deploy/README.md", r"sbatch .*", sbatch),
        ("deploy/README.md", r"qsub .*", qsub),
        ("deploy/README.md", r"mpiexec .*", mpiexec),
        ("deploy/README.md", r"docker .*", docker),
        (
            "deploy/README.md",
            r"podman-hpc .*|srun (podman-hpc|shifter) .*|(cd \S+ && )?apptainer .*",
            cluster_container,
        ),
        ("deploy/README.md", r"catchment manifests --program=.* \| kubectl .*", program_on_kubernetes),
        ("deploy/README.md", r"catchment manifests [^|]*", run(leaves=["job.yaml"])),
        ("deploy/README.md", r"catchment manifests .* \| kubectl apply -f -", piped_to_kubectl),
        (
            "deploy/README.md",
            r"deploy/make_certs\.sh .*",
            taken_by("tests/deploy/make_certs_test.sh", "run", "deploy/make_certs.sh"),
        ),
        ("deploy/README.md", r"kubectl .*|catchment status localhost:7000 .*", kubectl),
        (
            "deploy/README.md",
            r"catchment validate .*--write=complete\.textproto",
            run(leaves=["complete.textproto"]),
        ),
        ("deploy/README.md", r"(useradd|install|cp|systemctl) .*", systemd),
        (
            "docs/compare.md",
            r"catchment compare .*--launcher=slurm .*",
            compare_on("slurm_test.sh", "on a real Slurm"),
        ),
        (
            "docs/compare.md",
            r"catchment compare .*--launcher=kubectl .*",
            compare_on("kubernetes_test.sh", "with the manifests' Pods as processes"),
        ),
        (
            "docs/compare.md",
            r"catchment compare .*",
            run(
                f"{DIGITS} --workers=1,2 --seeds=1 --search=none --budget=samples:512",
                leaves=["out/" + name for name in COMPARED],
            ),
        ),
        (
            "docs/compare.md",
            r"catchment simulate .*--out=sim",
            run(f"{DIGITS} --seeds=1", leaves=["sim/" + name for name in COMPARED]),
        ),
        (
            "docs/simulate.md",
            r"catchment simulate .*--out=sim",
            run(f"{DIGITS} --budget=samples:4096", leaves=["sim/" + name for name in COMPARED]),
        ),
        (
            "docs/simulate.md",
            r"catchment simulate .*--out=sim-large",
            run(
                f"{DIGITS} --budget=samples:4096 --workers=64",
                leaves=["sim-large/" + name for name in COMPARED],
            ),
        ),
        ("docs/simulate.md", r"catchment train .*", run(f"{DIGITS} --set samples=512")),
        (
            "docs/simulate.md",
            r"catchment simulate .*--out=sim-from",
            run(f"{DIGITS} --budget=samples:2048", leaves=["sim-from/" + name for name in COMPARED]),
        ),
        ("docs/advise.md", r"catchment advise examples/.*", run(f"{DIGITS} --set samples=4096")),
        (
            "docs/tune.md",
            r"python3 examples/python/optuna_tune\.py .*",
            taken_by("tests/python/optuna_test.py", "run with Optuna", "examples/python/optuna_tune.py"),
        ),
        ("docs/tune.md", r'catchment tune .*|sbatch .* --wrap="catchment tune .*"', tune),
        ("docs/advise.md", r"catchment advise .*", run()),
        (
            "docs/watching.md",
            r"catchment train .*",
            run(f"{DIGITS} --set samples=512", leaves=["trace/spans-*.json"]),
        ),
        ("docs/watching.md", r"catchment trace .*", run(leaves=["trace/trace.json"])),
        ("docs/advise.md", r"catchment train .*", run(f"{DIGITS} --set samples=512")),
        ("docs/compare.md", r"catchment train .*", run(f"{DIGITS} --set samples=512")),
        ("docs/compare.md", r"catchment report .*", run(leaves=["report/" + name for name in COMPARED])),
        ("docs/python.md", r"export .*", labels),
        ("docs/python.md", r"catchment (train|compare|validate) .*", program),
        ("docs/faq.md", r"catchment simulate .*", run(leaves=["sim/" + name for name in COMPARED])),
        ("docs/tutorial_slurm.md", r"catchment validate .*", program),
        ("docs/tutorial_slurm.md", r"sbatch .*\.sbatch .*", sbatch_program),
        ("docs/tutorial_slurm.md", r"sbatch .*--wrap='catchment_worker .*'", sbatch_worker),
        ("docs/lightning.md", r"catchment train .*", program),
        ("docs/algorithms/muloco.md", r"catchment train .*", program),
        ("docs/jax.md", r"catchment train .*", program),
        ("docs/keras.md", r"catchment train .*", program),
        (
            "docs/python.md",
            r"deploy/wheel\.sh|pip install .*",
            taken_by("tests/deploy/wheel_test.sh", "made, and installed", "deploy/wheel.sh"),
        ),
        (
            "docs/codecs.md",
            r"catchment train .*",
            run(
                f"{DIGITS} --set samples=512",
                replace=[("PUSH", "TOP_K"), ("PULL", "BFLOAT16"), ("F", "0.1")],
                leaves=["out/summary.json"],
            ),
        ),
        (
            "docs/algorithms/diloco_async.md",
            r"catchment simulate .*--out=sim",
            run(f"{DIGITS} --budget=samples:4096", leaves=["sim/" + name for name in COMPARED]),
        ),
        (
            "docs/algorithms/diloco_async.md",
            r"catchment simulate .*--out=sim-workers",
            run(f"{DIGITS} --workers=2,9 --seeds=1 --budget=samples:2048"),
        ),
        (
            "docs/algorithms/decoupled_diloco.md",
            r"catchment simulate .*--out=sim",
            run("--budget=samples:4096", leaves=["sim/" + name for name in COMPARED]),
        ),
        (
            "docs/algorithms/decoupled_diloco.md",
            r"catchment simulate .*--out=sim-workers",
            run(f"{DIGITS} --workers=2,9 --seeds=1 --budget=samples:2048"),
        ),
        (
            "docs/results/decoupled.md",
            r"catchment simulate examples/synthetic.*--out=(failures|link)",
            run("--budget=samples:4096"),
        ),
        (
            "docs/results/decoupled.md",
            r"catchment simulate examples/mnist_mlp.*--out=(accuracy|speeds)",
            run(f"{DIGITS} --seeds=1 --workers=2 --budget=samples:512"),
        ),
        ("docs/results/decoupled.md", r"python3 examples/python/gpt_two_sites\.py .*", two_sites),
        ("docs/results/decoupled.md", r"catchment compare --program=.*", program),
        (
            "docs/results/large_batch.md",
            r"for \w+ in .* do catchment simulate .*; done",
            run(
                replace=[
                    (r"samples:\d+", f"samples:512 {DIGITS}"),
                    (r"(16|32|64|128|256):[\d.]+", ""),
                    (r"16,64,256|16,64|64,256", "2,4"),
                    (r"LARS:17", "LARS:1"),
                ]
            ),
        ),
        (
            "docs/results/large_batch.md",
            r"catchment simulate .*",
            run(f"{DIGITS} --workers=1,2,4 --budget=samples:512"),
        ),
        ("docs/results/large_batch.md", r"catchment tune .*", tune),
        (
            "docs/results/scaling.md",
            r"for \w+ in .* do catchment simulate \S+/mnist_mlp\S+ .*; done",
            run(replace=[("samples:180000", f"samples:512 {DIGITS}"), (r"15,30,60", "15")]),
        ),
        (
            "docs/results/scaling.md",
            r"catchment simulate .* --straggler=3:4x .*",
            run(f"{DIGITS} --workers=4 --seeds=1 --search=none --budget=samples:512"),
        ),
        (
            "docs/results/scaling.md",
            r"catchment (simulate|compare) \S+/mnist_\S+ .*",
            run(f"{DIGITS} --workers=1,2 --seeds=1 --budget=samples:512"),
        ),
        (
            "docs/results/scaling.md",
            r"catchment simulate .* --workers=1024 .*",
            run("--workers=64 --seeds=1 --budget=samples:5120"),
        ),
        (
            "docs/results/scaling.md",
            r"catchment (simulate|compare) .*",
            run("--workers=1,2 --seeds=1 --budget=samples:2000"),
        ),
        (
            "docs/results/scaling.md",
            r"catchment report .*",
            run(leaves=["out-mlp-report/" + name for name in COMPARED]),
        ),
        # The small runs do not reach 87 %, so they have no chart of the time.
        (
            "docs/results/scaling.md",
            r"PYTHONPATH=python python3 -c .*",
            run(replace=[("Time to 87.0 % test accuracy over workers", "Test accuracy at the end")]),
        ),
        (
            "docs/algorithms/compensation.md",
            r"catchment train .*",
            run(f"{DIGITS} --set samples=1024", leaves=["out/summary.json"]),
        ),
    ]
]


# -------------------------------------------------------------------------------------------- what is checked


def check_pages():
    used = set()
    for page in pages.paths():
        place = None
        for line, command in pages.commands(page):
            rule = next((r for r in RULES if r.page == page and r.command.fullmatch(command)), None)
            if rule is None:
                failures.append(
                    f"{page}:{line}: no rule of tests/docs/commands_test.py covers this command; "
                    "add one to RULES that runs it; where it is none, mark its block as ```text, "
                    "and a part of a job as ```textproto:\n"
                    f"    {command}"
                )
                continue
            used.add(rule)
            place = place or make_directory(page)
            start = time.monotonic()
            try:
                done = rule.check(command, place)
                print(f"{page}:{line}: {command}\n    {done} ({time.monotonic() - start:.1f} s)", flush=True)
            except (Failed, subprocess.CalledProcessError) as error:
                failures.append(f"{page}:{line}: {command}\n    {error}")
    for rule in RULES:
        if rule not in used:
            failures.append(
                "RULES of tests/docs/commands_test.py has one that covers nothing: "
                f"{rule.page}, {rule.command.pattern}"
            )


def check_hidden_commands():
    """Blocks marked as text hold no commands."""
    for page in pages.paths():
        for line, text in pages.blocks(page, "text"):
            if HIDDEN.match(text):
                failures.append(f"{page}:{line}: a command in a block that is marked as text is not tested")


def check_promises():
    """The table of the files that `train` writes, on the quick start,
    has the files that are checked above."""
    table = r"writes to `--out`:\n\n\| file \|.*\n\|.*\n((?:\|.*\n)+)"
    promised = re.search(table, pages.read("docs/quickstart.md"))[1]
    names = [name.rstrip("/") for name in re.findall(r"^\| `([^`]+)`", promised, re.MULTILINE)]
    if set(names) != {*TRAINED, *SOMETIMES}:
        failures.append(f"docs/quickstart.md promises {names} of `train`; TRAINED has {list(TRAINED)}")


def check_two_hosts():
    """From two fresh machines to training on both, by deploy/README.md alone: under eight commands."""
    section = re.search(r"\n## On several machines\n(.*?)\n## ", pages.read("deploy/README.md"), re.DOTALL)[1]
    count = len(re.findall(r"^    node[01]\$ ", section, re.MULTILINE))
    servers = len(re.findall(r"\$ bazel-bin/server/catchment_server ", section))
    workers = len(re.findall(r"\$ bazel-bin/worker/catchment_worker (?!.*--role)", section))
    data = section.count("deploy/fetch_mnist.sh")
    print(
        f"deploy/README.md: {count} commands from two fresh machines to {servers} servers and {workers} "
        "workers"
    )
    if not (count < 8 and servers == workers == data == 2):
        failures.append(
            "deploy/README.md, On several machines: two hosts must train with under eight "
            f"commands, set-up, build and data included: {count} commands, {servers} servers, "
            f"{workers} workers, data on {data} hosts"
        )


def check_python():
    """The Python of docs/wire_protocol.md computes what the programs do: what the quick start's first
    training left, and the order of 8 samples (that of tests/worker/data/epoch_order_test.cc)."""
    page = {}
    exec("\n".join(line for _, line in pages.blocks("docs/wire_protocol.md", "python")), page)
    orders = [[1, 0, 3, 4, 6, 5, 2, 7], [5, 1, 0, 7, 2, 4, 3, 6]]
    if [page["epoch_order"](1, epoch, 8) for epoch in (0, 1)] != orders:
        failures.append("docs/wire_protocol.md: epoch_order is not the workers'")
    out = os.path.join(SCRATCH, "docs_quickstart.md/out")
    tensors = [(name, about["shape"]) for name, about in safetensors(f"{out}/model.safetensors").items()]
    manifest = pages.read(glob.glob(f"{out}/checkpoints/*/manifest.textproto")[0])
    if page["fingerprint"](tensors) != int(re.search(r"^fingerprint: (\d+)", manifest, re.MULTILINE)[1]):
        failures.append("docs/wire_protocol.md: fingerprint is not the servers'")
    values = sum(math.prod(shape) for _, shape in tensors)
    for shard, path in enumerate(sorted(glob.glob(f"{out}/checkpoints/*/shard-?-of-2.safetensors"))):
        begin, end = page["shard_range"](values, shard, 2)
        sizes = page["block_sizes"]((begin, end), 1024)
        blocks = metadata(path)["catchment"].count("blocks {")
        there = safetensors(path)["weights"]["shape"][0]
        if there != end - begin or there != sum(sizes) or len(sizes) != blocks:
            failures.append(f"docs/wire_protocol.md: shard_range or block_sizes is not that of {path}")


def header(path):
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def safetensors(path):
    """The tensors of a file, in the order of their data."""
    tensors = {name: about for name, about in header(path).items() if name != "__metadata__"}
    return dict(sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]))


def metadata(path):
    return header(path)["__metadata__"]


def main():
    check_promises()
    check_hidden_commands()
    check_two_hosts()
    check_pages()
    check_python()
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
