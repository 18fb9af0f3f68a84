#!/usr/bin/env python3
"""Tests that what the pages point at is there: files and headings that they link to, fields of a job that
they name, flags of the programs; and that their tables of presets have each preset that the command has, with
its figures.

Links lead to sources all over the project, so the test looks at the tree that its own files come from.
"""

import glob
import json
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
        ["bash", "deploy/pbs/catchment.pbs"],
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


class Preset:
    """The figures of a preset by `catchment validate`: its text with 4 workers, and its bytes for each
    parameter with 8."""

    # It is so large that with minibatches of one sample activations are less than half a byte a parameter.
    MODEL = "model={layers {flatten {}} layers {dense {units: 2000}} layers {dense {units: 10}}}"

    def __init__(self, name):
        four, eight = self._validate(name, 4), self._validate(name, 8, self.MODEL, "batch_size=1")
        self.text = four["text"]
        servers, parameters = eight["memory"]["servers"], eight["parameters"]
        sums = {kind: sum(server[kind] for server in servers) for kind in ("total", "standby", "snapshot")}
        of_all = (sums["total"] - sums["standby"], sums["standby"], eight["memory"]["worker"]["total"])
        self.bytes = [round(some / parameters) for some in (*of_all, sums["snapshot"])]

    @staticmethod
    def _validate(name, workers, *settings):
        job = ["cli/catchment", "validate", "examples/algorithms/sync.textproto", "--json", "--servers=2"]
        settings = [*settings, f"workers={workers}", "faults.standby=1", f"algorithm.preset={name}"]
        answer = subprocess.run(job + ["--set=" + one for one in settings], stdout=subprocess.PIPE, text=True)
        return json.loads(answer.stdout)

    def steps(self):
        """The servers' learning rate and momentum, and whether it is Nesterov's; with elastic averaging the
        workers'."""
        fields = self.text[self.text.index("\noptimizer {") :]
        found = [re.search(rf"^  {name}: (\S+)", fields, re.M) for name in ("learning_rate", "momentum")]
        nesterov = "Nesterov" if "\n  nesterov: true" in fields else "no Nesterov"
        return [*(float(value[1]) for value in found), nesterov]


def all_presets():
    """[name of each preset], as the command has them."""
    command = ["cli/catchment", "validate", "--door"]
    asked = subprocess.run(command, input='{"about": true}\n', stdout=subprocess.PIPE, text=True)
    return [preset["name"] for preset in json.loads(asked.stdout)["presets"]]


def rows_below(page, heading):
    """{preset: (line number, cells)} of the table that begins with `heading`."""
    found, inside = {}, False
    for line, text in pages.prose(page):
        inside = text.startswith(heading) or (inside and text.startswith("|"))
        cells = [cell.strip() for cell in text.strip("|").split(" | ")]
        for name in re.findall(r"\w+", re.sub(r"\]\(.*?\)", "", cells[0])) if inside else []:
            if name in found:
                failures.append(f"{page}:{line}: has a second row for {name}")
            found[name] = line, cells
    found.pop("preset", None)
    return found


def check_rows(page, heading, wanted, differ):
    """Checks that a table has a row for each preset, of which `differ` says whether its cells are not what is
    wanted."""
    rows = rows_below(page, heading)
    for name in rows.keys() - wanted.keys():
        failures.append(f"{page}:{rows[name][0]}: there is no preset {name}; remove the row")
    for name, value in wanted.items():
        if name not in rows:
            failures.append(f"{page}: add a row for the preset {name} to the table {heading} It has {value}.")
        elif differ(rows[name][1], value):
            failures.append(f"{page}:{rows[name][0]}: {name} has {value}, not {rows[name][1]}")


def other_steps(cells, wanted):
    found = re.match(r"(?:workers': )?(Nesterov )?([\d.]+), ([\d.]+)", cells[4])
    steps = found and [float(found[2]), float(found[3]), "Nesterov" if found[1] else "no Nesterov"]
    return cells[4] != "as downpour" and steps != wanted


def check_presets():
    algorithms, sizing = "docs/algorithms/README.md", "docs/sizing.md"
    presets = {name: Preset(name) for name in all_presets()}
    steps = {name: preset.steps() for name, preset in presets.items()}
    check_rows(algorithms, "| preset | who waits |", steps, other_steps)
    costs = dict.fromkeys(presets, "the costs on its page")
    check_rows(algorithms, "| preset | sent |", costs, lambda *_: False)
    figures = {name: [str(number) for number in preset.bytes] for name, preset in presets.items()}
    check_rows(sizing, "| preset | servers |", figures, lambda cells, wanted: cells[1:] != wanted)
    for name in presets:
        page = f"docs/algorithms/{name}.md"
        if not os.path.exists(page) or f"examples/algorithms/{name}.textproto" not in pages.read(page):
            failures.append(f"{page}: describe the preset, and name its example")
    adaptive = {name for name, preset in presets.items() if "delay_adaptive {" in preset.text}
    page = "docs/algorithms/compensation.md"
    listed = re.search(r"part of the presets ([^.]*), and has", pages.read(page))
    if set(re.findall(r"`(\w+)`", listed[1])) != adaptive:
        failures.append(f"{page}: delay_adaptive is part of {', '.join(sorted(adaptive))}")
    count = re.compile(rf"\b{len(presets)}\s+(\w+\s+)?(preset|algorithm|choice)")
    for page in pages.paths():
        counted = count.search(pages.read(page))
        if counted:
            failures.append(f"{page}: leave out the number in '{counted[0]}': the next preset changes it")
    return presets


def main():
    paths, flags, presets = job_paths(), known_flags(), check_presets()
    for page in pages.paths():
        check_links(page)
        check_fields(page, paths)
        check_jobs(page, paths)
        if page in FLAG_PAGES or page == COMING_FROM:
            check_flags(page, flags)
    for failure in failures:
        print("FAILED:", failure)
    print(f"{len(pages.paths())} pages, {len(paths)} fields, {len(flags)} flags, {len(presets)} presets")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
