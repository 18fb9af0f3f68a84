"""The rows of a check, and the files with them: results.md for people, results.json for programs."""

import json
import time

PASSED, FAILED, NOT_RUN = "passed", "FAILED", "not run"


class NotRun(Exception):
    """Says why a step has no result, which is not a failure."""


class Failed(Exception):
    """Says what a step found wrong."""


class Results:
    """Collects rows of the parts, in their order, and writes them."""

    def __init__(self, parts):
        self.parts, self.rows = parts, []

    def step(self, part, name, step):
        """Adds a row: what `step()` returns, or why there is nothing.
        The next step can run whatever happens."""
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

    def skip(self, part, why):
        """Adds a row for the whole part."""
        self.rows.append(dict(part=part, name="all", status=NOT_RUN, detail=why, seconds=0.0))
        print(f"{part}, all: {NOT_RUN} {why}", flush=True)

    def count(self, status, part=None):
        return sum(row["status"] == status and part in (None, row["part"]) for row in self.rows)

    def write(self, folder, facts, note, speeds):
        """Writes both files. `note` is on top of results.md, and `speeds` above the table of speeds."""
        with open(folder + "/results.json", "w") as file:
            json.dump(dict(facts, rows=self.rows), file, indent=1)
        lines = ["# What works on the GPU, and how fast", ""]
        lines += [f"**{note}**", ""] * bool(note)
        lines += ["| | |", "| --- | --- |"] + [f"| {key} | {value} |" for key, value in facts.items()]
        lines += ["", "## Summary", "", "| part | passed | FAILED | not run |", "| --- | --- | --- | --- |"]
        for part in self.parts:
            counts = [self.count(status, part) for status in (PASSED, FAILED, NOT_RUN)]
            lines.append(f"| {part} | " + " | ".join(map(str, counts)) + " |")
        for part in self.parts:
            lines += ["", "## " + part.capitalize(), ""]
            lines += [speeds, ""] * (part == "speed")
            lines += self.speed_table() if part == "speed" else self.table(part)
        with open(folder + "/results.md", "w") as file:
            file.write("\n".join(lines) + "\n")

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
