#!/usr/bin/env python3
"""Breaks every rule, one line at a time, and reports which breaks no test notices: its arithmetic is made
another, or a statement is left out.

Works on a copy of the tree, so the tree itself is never broken. A break is tried against the test that bears
the rule's name first, then against those next to it, then against the conformance suite, until one notices. A
survivor is a break that all of them let pass: either a test is missing, or the line makes no difference,
which tests/conformance/survivors.md then explains.

    tests/conformance/mutate.py                        everything: some hundred breaks, an hour on 2 cores
    tests/conformance/mutate.py --only gap_aware gate  files whose path has one of these in it
    tests/conformance/mutate.py --copy /tmp/mutated    leaves the copy there, so that a second run builds less
    tests/conformance/mutate.py --since=94ac31f        only lines that no source file had at that commit
    tests/conformance/mutate.py --list                 what would be broken, and how
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMPENSATIONS = (
    "closed_loop_momentum",
    "delay_compensation",
    "gap_aware",
    "gradient_compensation",
    "momentum_control",
    "open_loop_momentum",
    "staleness_factor",
    "step_bound",
)
QUORUM = ["//tests/server/shard:quorum_test", "//tests/server/shard:shard_quorum_test"]

# Folder, file, or path without a suffix, of rules -> the tests next to it.
RULES = {
    **{f"server/rules/{name}": ["//tests/server/compensation/..."] for name in COMPENSATIONS},
    **{
        f"server/rules/{name}": ["//tests/server/rules/..."]
        for name in ("accrued_gradient", "elastic_difference", "rule")
    },
    "server/shard/momentum_log": ["//tests/server/compensation/..."],
    "optim": ["//tests/optim/..."],
    "server/shard/gate.cc": [
        "//tests/server/shard:gate_test",
        "//tests/server/shard:shard_waiting_test",
        *QUORUM,
    ],
    "server/shard/group.cc": ["//tests/server/shard:group_test"],
    **{f"server/shard/{name}": QUORUM for name in ("calls", "deadlines", "quorum", "quorum_counts")},
    "server/shard/push_ledger.cc": ["//tests/server/shard:push_ledger_test"],
    "common/job/parameter_layout.cc": ["//tests/common/layout/..."],
    "common/codec": ["//tests/common/codec/..."],
    "common/job/worker_scaling.cc": ["//tests/server/control:master_worker_scaling_test"],
    "worker/algorithms": ["//tests/worker/algorithms/..."],
    "common/job/learning_rate.cc": [
        "//tests/common/job:learning_rate_test",
        "//tests/common/job:learning_rate_golden_test",
    ],
}
SUITE = ["//tests/conformance/..."]

# Patterns and their replacements; each match in each line is one break.
BREAKS = [
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" \* ", " / "),
    (r" / ", " * "),
    (r" \+= ", " -= "),
    (r" -= ", " += "),
    (r" < ", " >= "),
    (r" <= ", " > "),
    (r" > ", " <= "),
    (r" >= ", " < "),
    (r" == ", " != "),
    (r" != ", " == "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r"std::min\b", "std::max"),
    (r"std::max\b", "std::min"),
    (r"std::(f?abs)\(", r"-std::\1("),
    (r"\b1 - ", "2 - "),
    (r"= -(?=[a-z])", "= "),
    (r"\b(?!0\.0f?\b)(\d+\.\d+f?|\d+e-?\d+f?)\b", r"(2 * \1)"),
]
# Loops, checks, strings and declarations are not arithmetic.
SKIP = re.compile(r'^\s*(//|#|namespace|using|template|CHECK|LOG|assert)|for \(|"')

# Statements to delete: those that fill a line, except declarations and the last return of a function.
STATEMENT = re.compile(
    r"^ +(?!(return|break|continue|using|const|constexpr|static|alignas|auto)\b)"
    r"((if|for) \(.*\) |(?![\w:<>, ]+[&*]* (const |__restrict )?\w+( =|[;({\[])))\S.*;$"
)


def is_statement(before, line):
    whole = all(line.count(a) == line.count(b) for a, b in ("()", "{}", "[]"))
    return (
        whole
        and re.search(r"[;{}:]$|^#pragma", before.strip())
        and STATEMENT.search(line)
        and '"' not in line
    )


def breaks_of(path):
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if path.suffix == ".cc" and is_statement(lines[number - 1], line):
            yield number, line, "  ;"
        if SKIP.search(line):
            continue
        code = line.split("//")[0]
        for pattern, replacement in BREAKS:
            for match in re.finditer(pattern, code):
                broken = line[: match.start()] + match.expand(replacement) + line[match.end() :]
                yield number, line, broken


def without_spaces(line):
    return "".join(line.split("//")[0].split())


def lines_at(tree, commit):
    """Returns the lines of all C++ files at a commit, without spaces and comments."""

    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=tree, check=True, capture_output=True).stdout.decode(
            errors="replace"
        )

    names = [
        name
        for name in git("ls-tree", "-r", "--name-only", commit).splitlines()
        if name.endswith((".cc", ".h"))
    ]
    return {without_spaces(line) for name in names for line in git("show", f"{commit}:{name}").splitlines()}


def sources(root):
    for rule, tests in RULES.items():
        path = root / rule
        files = (
            path.glob("*.[ch]*")
            if path.is_dir()
            else [path]
            if path.suffix
            else path.parent.glob(f"{path.name}.[ch]*")
        )
        files = sorted(file for file in files if file.exists())
        if not files:
            sys.exit(f"{rule}: there is no such file; name in RULES where its lines are now")
        for file in files:
            yield file, tests


def stages(root, file, tests):
    """Targets to try one after the other."""
    named = Path("tests") / file.parent / f"{file.stem}_test.cc"
    own = [f"//{named.parent}:{named.stem}"] if (root / named).exists() else []
    return [stage for stage in (own, tests, SUITE) if stage]


def bazel_test(root, targets, *options):
    """Returns what notices: the tests that fail, or the compiler; nothing, if all pass."""
    command = [
        "bazel",
        "test",
        "--noshow_progress",
        "--curses=no",
        "--color=no",
        "--test_output=summary",
        "--notest_keep_going",
        "--test_timeout=60",
        *options,
        *targets,
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    failed = re.findall(
        r"^(//\S+) +(?:\(cached\) )?(?:FAILED|TIMEOUT)", done.stdout + done.stderr, re.MULTILINE
    )
    if not failed and "C++ compilation of rule" not in done.stderr:
        sys.exit(done.stdout + done.stderr)
    return ", ".join(failed) or "the compiler"


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--only", nargs="*", default=[""], help="parts of paths")
    arguments.add_argument("--copy", help="where the copy of the tree is made, and stays")
    arguments.add_argument(
        "--since", metavar="COMMIT", help="break only lines that are newer than this commit"
    )
    arguments.add_argument("--list", action="store_true", help="break nothing")
    options = arguments.parse_args()

    tree = Path(__file__).resolve().parents[2]
    old = lines_at(tree, options.since) if options.since else set()
    plan = [
        (file.relative_to(tree), tests, b)
        for file, tests in sources(tree)
        if any(part in str(file) for part in options.only)
        for b in breaks_of(file)
        if without_spaces(b[1]) not in old
    ]
    if options.list:
        for file, _, (number, line, broken) in plan:
            print(f"{file}:{number + 1}\n  {line.strip()}\n  {broken.strip()}")
        print(f"{len(plan)} breaks")
        return 0

    copy = Path(options.copy or Path(tempfile.mkdtemp(prefix="mutate_")) / tree.name)
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=tree, check=True, capture_output=True
    ).stdout.decode()
    for name in filter(None, files.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, copy / name)
    if (tree / "user.bazelrc").exists():
        shutil.copy2(tree / "user.bazelrc", copy)
    nearest = sorted({target for _, tests, _ in plan for target in tests})
    print(f"{len(plan)} breaks; building in {copy}", flush=True)
    if bazel_test(copy, nearest + SUITE):
        sys.exit("the tests fail without a mutation; fix that first")

    survivors, start = 0, time.time()
    for done, (file, tests, (number, line, broken)) in enumerate(plan, 1):
        path = copy / file
        text = path.read_text()
        lines = text.splitlines(keepends=True)
        lines[number] = broken + "\n"
        path.write_text("".join(lines))
        # Broken code stays out of the cache.
        tried = (bazel_test(copy, targets, "--disk_cache=") for targets in stages(copy, file, tests))
        notices = next(filter(None, tried), "nothing")
        path.write_text(text)
        survivors += notices == "nothing"
        print(f"{file}:{number + 1}: noticed by {notices}\n  {line.strip()}\n  {broken.strip()}")
        left = (time.time() - start) / done * (len(plan) - done)
        print(f"{done} of {len(plan)}, {survivors} survive, about {left / 60:.0f} minutes left", flush=True)
    if not options.copy:
        shutil.rmtree(copy.parent)
    print(f"{len(plan)} breaks, {survivors} survivors")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
