"""report.html: one file that needs no others, for screens and for paper; and the writing of a report. Its
words are in page.html."""

import functools
from typing import Any, Dict, Iterable, List, Sequence, Tuple, Union

from . import answer, figures, files, text
from .command_line import Stream
from .comparison import Comparison, describe_stragglers, search_cost
from .findings import Findings, Standing, find
from .markup import escape_xml, fragment, html_command, html_figure, html_page, html_table
from .report_json import report_json
from .run_facts import of_directory
from .run_page import run_page
from .run_result import RunResult
from .statistics import spread_of

_WINNERS = {"synchronous": "waiting", "asynchronous": "not waiting", None: "neither"}


def write_report(comparison: Comparison, directory: str, out: Stream) -> None:
    """Writes report.json and report.html to `directory`, and the answer with their paths to `out`."""
    findings, run = find(comparison), comparison.run and of_directory(comparison.run)
    page, json = directory + "/report.html", directory + "/report.json"
    files.write_file(json, text.to_json(report_json(comparison, findings), 2) + "\n")
    files.write_file(page, run_page(run) if run else report_page(comparison, findings))
    sentences = "%s\n%s" % (answer.answer(comparison, findings), answer.where_synchronous_wins(findings))
    if run:
        sentences = "%s: %s" % (run.name, run.outcome)
    out.write("%s\n\nreport  %s\nfigures %s\n" % (sentences, page, json))


def report_page(comparison: Comparison, findings: Findings) -> str:
    c, f = comparison, findings
    title = "Algorithms compared: " + c.job_name
    over_workers = functools.partial(figures.over_workers, c, f)
    time = "Time to %.1f %% test accuracy over workers" % (100 * f.target)
    target = figures.time_to_target(c, f), over_workers("seconds", time, "seconds of training", True)
    throughput = (
        over_workers("throughputs", "Throughput", "samples a second"),
        over_workers("speed-up", "Speed-up against one worker", "times the throughput of one worker"),
    )
    body = fragment(
        "report",
        title=escape_xml(title),
        subtitle=escape_xml(_subtitle(c)),
        answer=escape_xml(answer.answer(c, f)),
        decided=_how_it_is_decided(c, f),
        warning=_machine_warning(c),
        accuracy=_accuracy_section(c, f),
        target_figures="".join(html_figure([picture], "") for picture in target),
        standings=_standings_table(f),
        synchronous=_synchronous_section(f),
        throughput=_captioned("throughput", *throughput),
        staleness=_captioned("staleness", figures.staleness_distributions(c)),
        time=_captioned("time", figures.workers_time(c)),
        bytes=html_figure([figures.bytes_on_the_wire(c)], ""),
        momentum=_captioned("momentum", figures.momentum_bars(c)),
        rates=_rates_table(c),
        search=_search_section(c),
        command=html_command(c.command),
        tables=_facts_tables(c) + _runs_table(c),
        job=escape_xml(c.job),
    )
    return html_page(title, body)


def _captioned(name: str, *pictures: str) -> str:
    return html_figure(pictures, fragment(name + "_caption").strip())


def _table(head: str, rows: Iterable[Sequence[Any]], left: int = 1) -> str:
    """Returns a table below the names of the columns, which are separated by "|"; a cell may be None."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    return html_table([head.split("|"), *cells], left)


def _subtitle(comparison: Comparison) -> str:
    """Returns the line under the title."""
    c = comparison
    names, workers = ", ".join(facts.name for facts in c.algorithms), ", ".join(map(str, c.workers))
    line = "%s; %s workers; %s" % (names, workers, text.plural(c.seeds, "seed"))
    more = {"budget ": c.budget, "emulated: ": describe_stragglers(c), "simulated: ": c.simulated}
    return "; ".join([line, *(name + value for name, value in more.items() if value)])


def _how_it_is_decided(comparison: Comparison, findings: Findings) -> str:
    target = ["target_given" if findings.target_given else "target_chosen", "interpolated"]
    names = target if findings.target > 0 else []
    return "".join(map(fragment, [*names, "one_seed" if comparison.seeds == 1 else "significance"]))


def _machine_warning(comparison: Comparison) -> str:
    machine, most = comparison.machine, comparison.workers[-1]
    if machine is None or most * comparison.threads <= machine.processors:
        return ""
    processors, workers = text.plural(machine.processors, "processor"), text.plural(most, "worker")
    return fragment("warning", processors=processors, workers=workers)


def _accuracy_section(comparison: Comparison, findings: Findings) -> str:
    c, f = comparison, findings
    pairs = [
        [figures.accuracy_chart(c, f, workers, x) for x in ("seconds", "samples")]
        for workers in reversed(c.workers)
    ]
    if not any(map(any, pairs)):
        return ""
    end = figures.over_workers(c, f, "accuracies", "Test accuracy at the end", "test accuracy", True)
    pictures = "".join(html_figure(pair, "") for pair in [[end], *pairs])
    return fragment("accuracy", pictures=pictures, lowest="%.0f %%" % (100 * figures.lowest_shown(c, f)))


def _synchronous_section(findings: Findings) -> str:
    rows = []
    for duel in findings.duels:
        measure, _, words = answer.MEASURES[duel.measure]
        waiting = "%s: %s" % (duel.synchronous, words(duel.synchronous_values))
        other = "%s: %s" % (duel.asynchronous, words(duel.asynchronous_values))
        ratio = answer.ratio_in_words(duel.ratio)
        rows.append([measure, waiting, other, _WINNERS[duel.winner], duel.workers, ratio])
    table = _table("measure|best that waits for all|best that does not|wins|workers|ratio", rows, 4)
    sentences = escape_xml(answer.where_synchronous_wins(findings))
    return fragment("synchronous", answer=sentences, duels=table) if rows else ""


def _standings_table(findings: Findings) -> str:
    scored, rows = any(standing.accuracies for standing in findings.standings), []
    for one in findings.standings:
        columns = (
            (one.seconds, answer.seconds_of),
            (one.samples, answer.count_of),
            (one.accuracies, answer.percent_of) if scored else (one.losses, answer.number_of),
            (one.throughputs, answer.count_of),
        )
        cells = [words(spread_of(values)) if values else "" for values, words in columns]
        reached = "%d of %d" % (one.reaching, one.runs)
        rows.append([one.algorithm, one.workers, reached, *cells, *_rates(one)])
    head = "algorithm|workers|reached|time to target|samples to target|%s at the end|samples a second|"
    return _table(head % ("accuracy" if scored else "test loss") + "learning rate|momentum", rows)


def _rates(one: Union[Standing, RunResult]) -> List[str]:
    return [text.short(one.learning_rate), "" if one.momentum is None else text.short(one.momentum)]


def _rates_table(comparison: Comparison) -> str:
    """Returns the result and the cost of the search for each algorithm with each number of workers."""
    rows = []
    chosen = {(trial.run.algorithm, trial.run.workers) for trial in comparison.searched if trial.chosen}
    first: Dict[Tuple[str, int], RunResult] = {}
    for run in comparison.runs:
        first.setdefault((run.algorithm, run.workers), run)
    for kind, run in first.items():
        cost = search_cost(comparison, *kind)
        by = "job or preset: no trial of the search trained" if cost > 0 else "job, preset or --set"
        words = "%.2f runs" % cost if cost > 0 else "none"
        rows.append([*kind, *_rates(run), "search" if kind in chosen else by, words])
    return _table("algorithm|workers|learning rate|momentum|set by|cost of the search", rows, 2)


def _search_section(comparison: Comparison) -> str:
    rows = []
    for trial in comparison.searched:
        run, share, end = trial.run, text.percent(trial.share), "chosen" if trial.chosen else ""
        rows.append([run.algorithm, run.workers, *_rates(run), share, _score(run), end])
    head = "algorithm|workers|tried: learning rate|momentum|share of the budget|test score|"
    seed = str(comparison.searched[0].run.seed) if rows else ""
    return fragment("search", seed=seed, trials=_table(head, rows, 2)) if rows else ""


def _score(run: RunResult) -> str:
    """Returns "97.2 %", "loss 0.31", "diverged" or "failed"."""
    if run.diverged:
        return "diverged"
    if run.accuracy is not None:
        return text.percent(run.accuracy)
    return "failed" if run.loss is None else "loss %.4g" % run.loss


def _facts_tables(comparison: Comparison) -> str:
    """Returns the tables of the machine, of the algorithms, and of what is left out."""
    c, machine = comparison, comparison.machine
    rows: List[Tuple[str, Any]] = []
    if machine:
        rows += [("processor", machine.processor), ("processors", machine.processors)]
        rows += [("memory", text.bytes_text(machine.memory_bytes)), ("system", machine.system)]
    rows += [("version", c.version), ("servers", c.servers), ("threads of a worker", c.threads)]
    rows += [("device", c.runs[0].device if c.runs else "")]
    settings = [(one.name, "yes" if one.synchronous else "no", one.optimizer) for one in c.algorithms]
    tables = _table("machine|", (row for row in rows if row[1] != 0), 2)
    tables += _table("algorithm|waits for all|optimizer", settings, 3)
    return tables + (_table("left out|workers|why", c.left_out, 3) if c.left_out else "")


def _runs_table(comparison: Comparison) -> str:
    rows = []
    for run in comparison.runs:
        accuracy = None if run.accuracy is None else text.percent(run.accuracy)
        loss = None if run.loss is None else "%.4f" % run.loss
        numbers = [text.seconds(run.seconds), text.count(text.rounded(run.updates)), accuracy, loss]
        staleness = ["%.2f" % run.staleness_mean, text.short(run.staleness_p99)]
        rows.append([run.directory, *numbers, *staleness, "" if run.done else "not done: " + run.reason])
    return _table("run|time|updates|accuracy|test loss|staleness mean|99 of 100|", rows)
