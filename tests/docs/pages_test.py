#!/usr/bin/env python3
"""Tests that what the pages point at is there: files and headings that they link to, fields of a job that
they name, flags of the programs.

Links lead to sources all over the project, so the test looks at the tree that its own files come from.
"""

import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, "tests/docs")
import pages

TREE = os.path.dirname(os.path.realpath("README.md"))
# Pages whose flags are those of the project's programs.
FLAG_PAGES = [
    "README.md",
    "docs/quickstart.md",
    "docs/comparison.md",
    "docs/versions.md",
    "docs/advise.md",
    "docs/compare.md",
    "docs/models.md",
    "docs/operating.md",
    "docs/limits.md",
    "docs/security.md",
    "docs/troubleshooting.md",
    "docs/watching.md",
    "docs/sizing.md",
    "docs/choosing.md",
    "docs/outputs.md",
    "docs/tune.md",
    *glob.glob("docs/algorithms/*"),
]
# In this one those in a table's last column are.
COMING_FROM = "docs/coming_from.md"
# "model.safetensors" is not a field of a job.
FILES = ("cc", "h", "json", "jsonl", "md", "proto", "safetensors", "textproto")

failures = []


def headings(path):
    """The anchors that GitHub gives a page's headings."""
    found = []
    for _, line in pages.prose(path):
        heading = re.match(r"#+ +(.*?) *#*$", line)
        if heading:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            repeated = sum(re.fullmatch(re.escape(slug) + r"(-\d+)?", other) is not None for other in found)
            found.append(f"{slug}-{repeated}" if repeated else slug)
    return found


def check_links(page):
    for line, text in pages.prose(page):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
            if re.match(r"https?:", target):
                continue
            name, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
            if not os.path.exists(os.path.join(TREE, path)):
                failures.append(f"{page}:{line}: there is no {path}")
            elif anchor and anchor not in headings(os.path.join(TREE, path)):
                failures.append(f"{page}:{line}: {path} has no heading #{anchor}")


def job_paths():
    """Every path of fields, from docs/job_reference.md, which another test holds to proto/job.proto."""
    found, places = set(), [""]
    for _, line in pages.prose("docs/job_reference.md"):
        if line.startswith("In a job: "):
            places = [place + "." for place in re.findall(r"`([^`]+)`", line)]
        field = re.match(r" *- \*\*`(\w+)", line)
        if field:
            found |= {place + field[1] for place in places}
    return found | {path[len("algorithm.") :] for path in found if path.startswith("algorithm.")}


def check_fields(page, known):
    first = {path.split(".")[0] for path in known}
    for line, text in pages.prose(page):
        for path in re.findall(r"`(?:--set )?([a-z_0-9]+(?:\.[a-z_0-9]+)+)", text):
            names = path.split(".")
            if names[0] in first and names[-1] not in FILES and path not in known:
                failures.append(f"{page}:{line}: a job has no field {path}; docs/job_reference.md has all")


def check_jobs(page, known):
    """Parts of jobs have only fields that there are."""
    path = []
    for line, text in pages.blocks(page, "textproto"):
        for name, mark in re.findall(r"([a-z_0-9]*) *([:{}])", re.sub(r'"[^"]*"|#.*', "", text)):
            if mark == "}":
                path.pop()
                continue
            # Layers within layers are as the outer ones.
            field = re.sub(r"(\.residual\.(layers|shortcut))+\b(?=\.)", "", ".".join(path + [name]))
            if field not in known:
                failures.append(f"{page}:{line}: a job has no field {field}")
            if mark == "{":
                path.append(name)


def help_of(*program):
    return subprocess.run(
        [*program, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout


def known_flags():
    subcommands = re.findall(r"^  (?!catchment)(\w+) ", help_of("cli/catchment"), re.MULTILINE)
    programs = [["cli/catchment", subcommand] for subcommand in subcommands]
    programs += [
        ["cli/catchment"],
        ["server/catchment_server"],
        ["worker/catchment_worker"],
        *(["bash", f"deploy/slurm/{name}.sbatch"] for name in ("catchment", "servers", "workers")),
        ["bash", "deploy/bundle.sh"],
    ]
    return {
        flag
        for program in programs
        for flag in re.findall(r"(?<![\w-])--?([a-z][a-z_-]*)", help_of(*program))
    }


def check_flags(page, known):
    for line, text in pages.prose(page):
        if page == COMING_FROM:
            text = text.rstrip(" |").rpartition(" | ")[2] if text.startswith("|") else ""
        for code in re.findall(r"`([^`]*)`", text):
            if code.startswith("tensorboard "):  # a program of others
                continue
            for flag in re.findall(r"(?:^|\s)--([a-z][a-z_-]*)", code):
                if flag not in known and "bazel" not in code and "tests/" not in code:
                    failures.append(f"{page}:{line}: no program of the project has a flag --{flag}")


def main():
    paths, flags = job_paths(), known_flags()
    for page in pages.paths():
        check_links(page)
        check_fields(page, paths)
        check_jobs(page, paths)
        if page in FLAG_PAGES or page == COMING_FROM:
            check_flags(page, flags)
    for failure in failures:
        print("FAILED:", failure)
    print(f"{len(pages.paths())} pages, {len(paths)} fields, {len(flags)} flags")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
