"""The rows of a check, and the files with them: results.md for people, results.json for programs, and one
archive of these with all logs."""

import json
import os
import tarfile
import time

PASSED, FAILED, NOT_RUN = "passed", "FAILED", "not run"


class NotRun(Exception):
    """Says why a step has no result, which is not a failure."""


class Failed(Exception):
    """Says what a step found wrong."""


def replace(path, write):
    """Has `write(path)` write a file that takes the place of `path` as a whole."""
    write(path + ".part")
    os.replace(path + ".part", path)


def write_text(path, text):
    def write(part):
        with open(part, "w") as file:
            file.write(text)

    replace(path, write)


class Results:
    """Collects rows of the parts, in their order. Each row is written when it is known."""

    def __init__(self, parts, folder, archive):
        self.parts, self.rows, self.folder, self.archive = parts, [], folder, archive
        self.facts, self.notes, self.speeds = {}, [], ""  # above the tables, and above that of speeds

    def step(self, part, name, step, planned):
        """Adds a row: what `step()` returns, or why there is nothing.
        The next step can run whatever happens."""
        row, start = dict(part=part, name=name), time.monotonic()
        try:
            row.update(status=PASSED, **step())
        except NotRun as why:
            row.update(status=NOT_RUN, detail=str(why))
        except Exception as why:  # whatever it is, the other steps continue
            row.update(status=FAILED, detail=str(why) or type(why).__name__)
        row.update(seconds=round(time.monotonic() - start, 1), planned_s=round(planned, 1))
        self.add(row)

    def skip(self, part, why, name="all"):
        """Adds a row for a whole part, or for one step."""
        self.add(dict(part=part, name=name, status=NOT_RUN, detail=why, seconds=0.0))

    def add(self, row):
        self.rows.append(row)
        print(f"{row['part']}, {row['name']}: {row['status']} {row.get('detail', '')}", flush=True)
        self.write()

    def count(self, status, part=None):
        return sum(row["status"] == status and part in (None, row["part"]) for row in self.rows)

    def write(self):
        """Writes both files."""
        write_text(self.folder + "/results.json", json.dumps(dict(self.facts, rows=self.rows), indent=1))
        lines = ["# What works on the GPU, and how fast", ""]
        for note in self.notes:
            lines += [f"**{note}**", ""]
        lines += ["| | |", "| --- | --- |"] + [f"| {key} | {value} |" for key, value in self.facts.items()]
        lines += ["", "## Summary", "", "| part | passed | FAILED | not run |", "| --- | --- | --- | --- |"]
        for part in self.parts:
            counts = [self.count(status, part) for status in (PASSED, FAILED, NOT_RUN)]
            lines.append(f"| {part} | " + " | ".join(map(str, counts)) + " |")
        for part in self.parts:
            lines += ["", "## " + part.capitalize(), ""]
            lines += [self.speeds, ""] * (part == "speed")
            lines += self.speed_table() if part == "speed" else self.table(part)
        write_text(self.folder + "/results.md", "\n".join(lines) + "\n")

    def pack(self):
        """Writes the archive of the folder."""

        def write(part):
            with tarfile.open(part, "w:gz", compresslevel=3) as archive:
                archive.add(self.folder, arcname=os.path.basename(self.folder), filter=self.is_small)

        replace(self.archive, write)

    @staticmethod
    def is_small(member):
        """Leaves out checkpoints and weights of trainings: the archive travels."""
        name = os.path.basename(member.name)
        return None if name == "checkpoints" or name.endswith(".safetensors") else member

    def table(self, part):
        return ["| what | | s | samples/s | test accuracy | |", "| --- | --- | --- | --- | --- | --- |"] + [
            f"| {r['name']} | {r['status']} | {r['seconds']} | {r.get('samples_per_s', '')} | "
            f"{r.get('test_accuracy', '')} | {r.get('detail', '')} |"
            for r in self.rows
            if r["part"] == part
        ]

    def speed_table(self):
        return ["| what | | Catchment | PyTorch | ratio | |", "| --- | --- | --- | --- | --- | --- |"] + [
            f"| {r['name']} | {r['status']} | {r.get('samples_per_s', '')} | "
            f"{r.get('pytorch_samples_per_s', '')} | {r.get('ratio', '')} | {r.get('detail', '')} "
            "|"
            for r in self.rows
            if r["part"] == "speed"
        ]
