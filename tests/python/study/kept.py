"""Comparisons that the C++ commands have made, kept in data/comparisons/NAME:

report.json    as it was written
page.txt       the words of report.html, and a hash of the numbers of each picture
compare.json   the record of the comparison
runs.json      what a report reads of the directories of all runs; jobs as changes of the first
given.json     what the plan knows of the runs: settings of the algorithms, rates, a sentence
"""

import hashlib
import html
import json
import os
import re

from catchment.study.comparison import AlgorithmFacts, Comparison, LeftOutPair, Machine, SearchTrialResult
from catchment.study.run_result import RunResult, has_diverged, read_result, text_or_empty

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "comparisons")
NAMES = sorted(os.listdir(DIRECTORY))


def read(name, file):
    with open(os.path.join(DIRECTORY, name, file), encoding="utf-8", newline="") as stream:
        return stream.read()


def restore(name, out):
    """Writes the directories of the runs, and compare.json, as they were."""
    kept = json.loads(read(name, "runs.json"))
    base = kept["job"].splitlines(True)
    for directory, run in kept["runs"].items():
        job = list(base)
        for begin, end, text in reversed(run["job"]):
            job[begin:end] = [text]
        path = os.path.join(out, directory)
        os.makedirs(path)
        files = {
            "job.textproto": "".join(job),
            "summary.json": run.get("summary"),
            "metrics.jsonl": run.get("metrics"),
        }
        for file, text in files.items():
            if text is not None:
                with open(os.path.join(path, file), "w", encoding="utf-8") as stream:
                    stream.write(text)
    if os.path.exists(os.path.join(DIRECTORY, name, "compare.json")):
        with open(os.path.join(out, "compare.json"), "w", encoding="utf-8") as stream:
            stream.write(read(name, "compare.json"))


def comparison(name):
    """Returns the content of the report, with the results from the kept files."""
    report, given = json.loads(read(name, "report.json")), json.loads(read(name, "given.json"))
    files = json.loads(read(name, "runs.json"))["runs"]

    def result(run, rate, momentum):
        kept = files[run["directory"].replace(name + "/", "", 1)]
        result = RunResult(run["algorithm"], run["workers"], run["seed"], run["directory"])
        result.learning_rate, result.momentum = rate, momentum
        if "summary" not in kept:
            result.reason = "it did not write summary.json"
            return result
        summary = json.loads(kept["summary"])
        result.reason, result.diverged = text_or_empty(summary, "reason"), has_diverged(summary)
        result.done = summary["phase"] in ("DONE", "STOPPED")
        if result.done:
            read_result(summary, kept.get("metrics", ""), result)
        return result

    facts = [
        AlgorithmFacts(
            one["algorithm"], one["synchronous"], one["optimizer"], *given["facts"][one["algorithm"]]
        )
        for one in report["algorithms"]
    ]
    runs = [
        result(run, *given["rates"]["%s %d" % (run["algorithm"], run["workers"])]) for run in report["runs"]
    ]
    searched = [
        SearchTrialResult(
            one["rung"], one["share"], result(one, one["learning_rate"], one["momentum"]), one["chosen"]
        )
        for one in report["search"]
    ]
    return Comparison(
        algorithms=facts,
        runs=runs,
        searched=searched,
        machine=Machine(**report["machine"]) if report["machine"] else None,
        left_out=[LeftOutPair(**pair) for pair in report["left_out"]],
        wanted_target=report["target"]["test_accuracy"] if report["target"]["given"] else 0,
        untuned=given["untuned"],
        **{
            key: report[key]
            for key in ("command", "version", "job_name", "job", "stragglers", "seeds", "workers")
        },
        **{key: report[key] or "" for key in ("budget", "simulated")},
        **{key: report[key] or 0 for key in ("servers", "threads")},
    )


def words_of(page):
    """Returns the texts of a page, one a line, and for each picture how many numbers it has, and a hash."""

    def picture(match):
        markup = re.sub(
            r'"[^"]*\bs[0-9a-f]+(?:[cp]|-)\d+[^"]*"', '""', match.group()
        )  # names of clips and stripes
        markup = re.sub(r'aria-label="[^"]*"', "", markup)
        markup = re.sub(r">[^<]*<", "><", markup)
        numbers = re.findall(r"-?\d+\.?\d*", re.sub(r"#[0-9a-fA-F]{6}|[xy][12]=", "", markup))
        digest = hashlib.sha256(" ".join(numbers).encode()).hexdigest()[:16]
        return "<p>[picture: %d numbers, %s]</p>%s" % (len(numbers), digest, match.group())

    page = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    page = re.sub(r"<svg.*?</svg>", picture, page, flags=re.DOTALL)
    # Browsers show any space as one, except in preformatted text, whose lines are kept.
    keep = lambda match: match.group().replace(" ", "\u00a0").replace("\n", "\u2028")  # noqa: E731
    page = re.sub("(?<=<pre)[^>]*>.*?</pre>", keep, page, flags=re.DOTALL)
    texts = [re.sub("[ \n]+", " ", text).strip(" ") for text in re.split(r"<[^<>]*>", page)]
    return "\n".join(html.unescape(text).replace("\u2028", "\n") for text in texts if text) + "\n"
