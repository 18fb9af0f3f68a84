#!/usr/bin/env python3
"""Tests that what docs/coming_from.md calls "not here" is not here: no flag, field, value, preset or Python
function has a name that a feature of this kind would have.

A cell with "not here" that ABSENT does not cover fails the test, and so does an entry that covers no cell.
"""

import glob
import os
import re
import subprocess
import sys

PAGE = "docs/coming_from.md"
# The first setting in a row with "not here", and the names that would make the cell wrong.
ABSENT = {
    "--monitor": r"gpu_(use|utilization|load)|nvml",
    "op=Sum": r"reduce_sum|sum_gradients|reduction",
    "op=Adasum": r"adasum",
    "sparse": r"sparse\w*|embedding\w*",
    "SyncBatchNorm": r"sync_batch_?norm|\w+\.batch_norm\.(sync\w*|all_workers|group)",
    "allreduce": r"all_?reduce|all_?gather|all_?to_?all|reduce_?scatter",
    "--max-np": r"(max|maximum)_workers",
    "--num-nccl-streams": r"nccl\w*|gpu_direct\w*",
    "delay_all_reduce_named_params": r"delayed_parameters|reduce_later",
    "powerSGD_hook": r"power_?sgd|low_rank|rank",
    "post_localSGD_hook": r"local_steps_(after|from|warmup)|warmup_steps|start_local\w*",
    "torch.nn.SyncBatchNorm": r"sync_batch_?norm|\w+\.batch_norm\.(sync\w*|all_workers|group)",
}


def help_of(*program):
    return subprocess.run(
        [*program, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout


def flags():
    subcommands = re.findall(r"^  (?!catchment)(\w+) ", help_of("cli/catchment"), re.MULTILINE)
    programs = [["cli/catchment", name] for name in subcommands]
    programs += [["server/catchment_server"], ["worker/catchment_worker"]]
    return {
        flag
        for program in programs
        for flag in re.findall(r"^  --([a-z_]+)", help_of(*program), re.MULTILINE)
    }


def fields_and_values():
    """Paths of fields, and in capitals the values of enumerations: of docs/job_reference.md, which another
    test compares with proto/job.proto."""
    found, places = set(), [""]
    with open("docs/job_reference.md", encoding="utf-8") as file:
        for line in file:
            if line.startswith("In a job: "):
                places = [place + "." for place in re.findall(r"`([^`]+)`", line)]
            field = re.match(r" *- \*\*`(\w+)", line)
            if field:
                found |= {place + field[1] for place in places} | {field[1]}
            found |= set(re.findall(r"^ +- `([A-Z][A-Z0-9_]+)`", line))
    return found


def presets():
    return {
        os.path.splitext(os.path.basename(path))[0] for path in glob.glob("examples/algorithms/*.textproto")
    }


def functions():
    found = set()
    for path in glob.glob("python/catchment/[!_]*.py") + ["python/catchment/__init__.py"]:
        with open(path, encoding="utf-8") as file:
            found |= set(re.findall(r"^ *(?:def|class) ([A-Za-z]\w*)", file.read(), re.MULTILINE))
    return found


def absent_rows():
    """[(line number, the row's first setting)] of rows whose last column says "not here"."""
    found = []
    with open(PAGE, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.startswith("|"):
                continue
            cells = re.split(r" \| ", line.strip().strip("|").strip())
            if re.search(r"\bnot here\b", cells[-1], re.IGNORECASE):
                setting = re.search(r"`([^`(=]+(?:=(?:Sum|Adasum))?)", cells[0])
                found.append((number, setting[1] if setting else cells[0]))
    return found


def main():
    names = {
        "flag": flags(),
        "field or value": fields_and_values(),
        "preset": presets(),
        "Python function": functions(),
    }
    failures = [f"found no {kind} at all" for kind, some in names.items() if len(some) < 10]
    used = set()
    for line, setting in absent_rows():
        if setting not in ABSENT:
            failures.append(
                f'{PAGE}:{line}: {setting} is "not here"; add to ABSENT of '
                "tests/docs/coming_from_test.py the names that it would have"
            )
            continue
        used.add(setting)
        for kind, some in names.items():
            for name in sorted(some):
                if re.fullmatch(r"(.*\.)?(" + ABSENT[setting] + ")", name, re.IGNORECASE):
                    failures.append(
                        f'{PAGE}:{line}: {setting} is "not here", but there is the {kind} '
                        f"{name}; describe it in the cell"
                    )
    failures += [
        f'ABSENT of tests/docs/coming_from_test.py has {setting}, which no row calls "not here"'
        for setting in ABSENT.keys() - used
    ]
    for failure in failures:
        print("FAILED:", failure)
    print(", ".join(f"{len(some)} times a {kind}" for kind, some in names.items()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
