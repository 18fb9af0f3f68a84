"""The report of `catchment tune`: report.json, whose keys docs/tune.md lists, report.html, and pictures."""

import contextlib
import importlib
import math
from typing import Any, Dict, List, Optional, Sequence

from . import files
from .axis import Unit, look_of
from .charts import Curve, CurvePoint, LineChart, draw
from .markup import escape_xml, html_command, html_figure, html_page, html_paragraph, html_table
from .text import one_line, percent, plural, short, to_json

Json = Dict[str, Any]
_SCHEMA = 2
_NONE = "–"
_PICTURES = ("optimization_history", "parallel_coordinate", "slice")
_HOW = (
    "Each trial is a run with other values. A trial is pruned if its score after a share of the budget is "
    "worse than those of others after the same share."
)
_SHARES = "The share of the variance between the completed trials that each field explains (PED-ANOVA)."


def importance_of(optuna: Any, study: Any, paths: Sequence[str]) -> Dict[str, Optional[float]]:
    """Returns the share of each field; None if there are too few results, or if they are equal."""
    found: Dict[str, float] = {}
    with contextlib.suppress(ValueError, RuntimeError, ZeroDivisionError):
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {path: found.get(path) if math.isfinite(found.get(path, math.nan)) else None for path in paths}


def result_of(number: int, state: str, settings: Dict[str, str], attributes: Json, series: List[Any]) -> Json:
    """Returns the figures of a trial; `series` has shares of the budget and scores."""
    ended = {"COMPLETE": "complete", "PRUNED": "pruned"}
    outcome = "diverged" if attributes.get("diverged") else ended.get(state, "open")
    if attributes.get("invalid"):
        outcome = "invalid"
    elif outcome == "open" and "reason" in attributes:
        outcome = "failed"
    keys = ("samples", "test_accuracy", "test_loss")
    return {
        "trial": number + 1,
        "settings": settings,
        "directory": "runs/trial-%d" % (number + 1),
        "outcome": outcome,
        "reason": attributes.get("invalid") or attributes.get("reason") or None,
        **{key: attributes.get(key) for key in keys},
        "series": series,
    }


def _score_text(trial: Json) -> str:
    if trial["test_accuracy"] is not None:
        return percent(trial["test_accuracy"])
    return _NONE if trial["test_loss"] is None else "loss " + short(trial["test_loss"], 4)


def answer_of(report: Json) -> str:
    """Returns "The best of 9 trials is trial 3, with 97.2 %: optimizer.learning_rate=0.03, batch_size=64"."""
    best = report["best"]
    if best is None:
        return "No trial has a result."
    settings = ", ".join("%s=%s" % pair for pair in best["settings"].items())
    trials = plural(len(report["trials"]), "trial")
    return "The best of %s is trial %d, with %s: %s" % (trials, best["trial"], _score_text(best), settings)


def _chart(report: Json) -> str:
    """Returns the accuracy of each trial over the budget; empty without accuracies."""
    curves, best = [], report["best"] and report["best"]["trial"]
    # The best trial is drawn over the others.
    for one in sorted(report["trials"], key=lambda one: one["trial"] == best):
        if one["test_accuracy"] is not None and one["series"]:
            points = [CurvePoint(100 * share, y, y, y) for share, y in one["series"]]
            name = "trial %d" % best if one["trial"] == best else ""
            curves.append(Curve(name, look_of(1 if name else 0), points, markers=True))
    if not curves:
        return ""
    ys = [point.y for curve in curves for point in curve.points]
    chart = LineChart("Test accuracy of each trial", "test accuracy", curves, "share of the budget in %")
    chart.y_unit, chart.x_high = Unit.PERCENT, 100
    chart.y_low, chart.y_high = max(0.0, min(ys) - 0.01), min(1.0, max(ys) + 0.01)
    return draw(chart)


def _page(report: Json) -> str:
    title, fields = "Search: " + report["job_name"], list(report["importance"])
    order = {"complete": 0, "pruned": 1}

    def rank(one: Json) -> Any:
        accuracy, loss = one["test_accuracy"], one["test_loss"]
        score = accuracy if accuracy is not None else -math.inf if loss is None else -loss
        return order.get(one["outcome"], 2), -score

    trials = sorted(report["trials"], key=rank)
    rows = [["trial", *fields, "result", "outcome", "samples"]]
    for one in trials:
        samples = _NONE if one["samples"] is None else "%d" % one["samples"]
        values = [one["settings"].get(path, _NONE) for path in fields]
        rows.append([str(one["trial"]), *values, _score_text(one), one["outcome"], samples])
    shares = [
        [path, "too few results" if share is None else percent(share)]
        for path, share in report["importance"].items()
    ]
    reasons = [[one["directory"], one_line(one["reason"])] for one in trials if one["reason"]]
    body = ["<h1>%s</h1>\n" % escape_xml(title), '<p class="answer">%s</p>\n' % escape_xml(answer_of(report))]
    body += [html_paragraph("Simulated: %s." % report["simulated"])] if report["simulated"] else []
    body += [html_paragraph(_HOW), html_figure([_chart(report)], ""), "<h2>Trials</h2>\n", html_table(rows)]
    body += ["<h2>Importance</h2>\n", html_paragraph(_SHARES)]
    body.append(html_table([["field", "share of the variance"], *shares]))
    if reasons:
        body += ["<h2>Runs without a result</h2>\n", html_table([["run", "reason"], *reasons], 2)]
    return html_page(title, "".join([*body, "<h2>How to repeat it</h2>\n", html_command(report["command"])]))


def write_report(report: Json, directory: str) -> None:
    files.write_file(directory + "/report.json", to_json({"schema": _SCHEMA, **report}, 2) + "\n")
    files.write_file(directory + "/report.html", _page(report))


def write_pictures(optuna: Any, study: Any, directory: str) -> None:
    """Writes Optuna's pictures to `directory`/plots, if matplotlib is there."""
    try:
        importlib.import_module("matplotlib").use("svg")
        pictures = importlib.import_module("optuna.visualization.matplotlib")
    except ImportError:
        return
    files.create_directory(directory + "/plots")
    for name in _PICTURES:
        axes = getattr(pictures, "plot_" + name)(study)
        figure = getattr(axes, "flat", [axes])[0].get_figure()
        figure.savefig("%s/plots/%s.svg" % (directory, name), bbox_inches="tight")
