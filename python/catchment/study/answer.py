"""The sentences of a report, and its numbers in words."""

import functools
from typing import Callable, Dict, Sequence, Tuple

from .comparison import Comparison, describe_stragglers
from .findings import Duel, Findings, Standing
from .statistics import Ratio, Spread, spread_of
from .text import count, plural, rounded


def answer(comparison: Comparison, findings: Findings) -> str:
    """Returns one or two sentences: the algorithm that reached the target first, the ratio to the next one
    with its spread over seeds, and whether the difference is statistically significant. A sentence before
    them says which learning rates were not searched for, if they matter."""
    scored = any(standing.accuracies or standing.losses for standing in findings.standings)
    untuned = comparison.untuned + " " if scored and comparison.untuned else ""
    return untuned + _finding(comparison, findings)


def _finding(comparison: Comparison, findings: Findings) -> str:
    standings = findings.with_workers(findings.workers)
    setting = _setting(comparison, findings.workers)
    if not standings:
        diverged = [run.diverged for run in comparison.runs if run.workers == findings.workers]
        if not diverged or not all(diverged):
            return "No run with the most workers has finished."
        return setting + ", training diverged in every run; a smaller learning rate may train."
    if findings.target <= 0:
        return "%s: %s" % (setting, _fastest(standings))
    target = "a %.1f %% lower loss" if _is_quadratic(comparison) else "%.1f %% test accuracy"
    target %= 100 * findings.target
    winner = standings[0]
    if not winner.reached:
        words = "%s, no algorithm reached %s in every run." % (setting, target)
        return words + _not_reached(standings)
    after = seconds_of(spread_of(winner.seconds))
    words = "%s, %s reached %s first, after %s" % (setting, winner.algorithm, target, after)
    words += " over %d seeds." % winner.runs if winner.runs > 1 else "."
    if findings.lead:
        words += _behind(standings[1], findings.lead)
    if findings.lead_over_synchronous and not standings[1].synchronous:
        waiting = next(one for one in standings if one.synchronous)
        words += _behind(waiting, findings.lead_over_synchronous)
    return words + _not_reached(standings)


def _is_quadratic(comparison: Comparison) -> bool:
    """Returns True if the "accuracy" is the share of a quadratic's initial loss that is gone."""
    return "quadratic" in comparison.simulated


def _setting(comparison: Comparison, workers: int) -> str:
    simulated = "Simulated on a quadratic function, with" if _is_quadratic(comparison) else "Simulated, with"
    how = "%s %s" % (simulated if comparison.simulated else "With", plural(workers, "worker"))
    return ", ".join([how, describe_stragglers(comparison)] if comparison.stragglers else [how])


def _fastest(standings: Sequence[Standing]) -> str:
    first = standings[0]
    if first.losses and not first.accuracies:
        words = "%s had the lowest test loss at the end, %s. Accuracy is not defined for real targets."
        return words % (first.algorithm, number_of(spread_of(first.losses)))
    best = max(standings, key=lambda standing: spread_of(standing.throughputs).mean)
    speed = count_of(spread_of(best.throughputs))
    return "%s trained the most samples a second, %s. No run has test scores." % (best.algorithm, speed)


def _behind(other: Standing, ratio: Ratio) -> str:
    """Returns " sync took 4.10 s (3.90 to 4.30), 1.35 times as long: statistically significant (...)." The
    ratio is the geometric mean of the seeds' ratios, not the ratio of the means."""
    mean = " in the geometric mean" if ratio.has_interval else ""
    what = other.algorithm, seconds_of(spread_of(other.seconds)), ratio.value, mean, _significance(ratio)
    return " %s took %s, %.2f times as long%s: %s." % what


def _significance(ratio: Ratio) -> str:
    if not ratio.has_interval:
        return "one seed cannot show whether this is significant"
    pairs = ", corrected for %d pairs," % ratio.pairs if ratio.pairs > 1 else ""
    words = "%sstatistically significant (95 %% confidence interval%s %.2f to %.2f)"
    return words % ("" if ratio.beyond_noise else "not ", pairs, ratio.low, ratio.high)


def _not_reached(standings: Sequence[Standing]) -> str:
    others = [(one, percent_of(spread_of(one.accuracies))) for one in standings if not one.reached]
    words = "%s (%d of %d runs; %s at the end)"
    names = [words % (one.algorithm, one.reaching, one.runs, end) for one, end in others]
    return " Not in every run: %s." % ", ".join(names) if names else ""


def where_synchronous_wins(findings: Findings) -> str:
    """Returns sentences that list the measures in which synchronous and asynchronous training win; empty
    without duels."""
    if not findings.duels:
        return ""
    if not any(duel.ratio.has_interval for duel in findings.duels):
        return "One seed cannot show whether synchronous training is significantly better or worse."
    won = [_won(duel) for duel in findings.duels if duel.winner]
    if not won:
        return "No difference between synchronous and asynchronous training is significant."
    return "Significant differences between synchronous and asynchronous training: %s." % "; ".join(won)


def _won(duel: Duel) -> str:
    names = duel.asynchronous, duel.synchronous
    winner, other = names[::-1] if duel.winner == "synchronous" else names
    workers, won = plural(duel.workers, "worker"), MEASURES[duel.measure][1]
    return "with %s, %s %s than %s" % (workers, winner, won, other)


def _with_spread(form: str, spread: Spread, scale: float = 1) -> str:
    """Returns a mean and its range: "3.1 s (2.9 to 3.3)". `form` has the unit, if there is one."""
    words = form % (scale * spread.mean)
    if spread.n < 2:
        return words
    number = form.split(" ")[0]
    return "%s (%s to %s)" % (words, number % (scale * spread.low), number % (scale * spread.high))


seconds_of = functools.partial(_with_spread, "%.2f s")
percent_of = functools.partial(_with_spread, "%.2f %%", scale=100)
number_of = functools.partial(_with_spread, "%.4g")


def count_of(spread: Spread) -> str:
    mean, low, high = (count(rounded(value)) for value in spread[1:])
    return mean if spread.n < 2 else "%s (%s to %s)" % (mean, low, high)


def ratio_in_words(ratio: Ratio) -> str:
    """Returns "1.60 (1.40 to 1.80)", without an interval if there is one seed."""
    if not ratio.has_interval:
        return "%.2f" % ratio.value
    return "%.2f (%.2f to %.2f)" % (ratio.value, ratio.low, ratio.high)


MEASURES: Dict[str, Tuple[str, str, Callable[[Spread], str]]] = {  # in words, who won, a value in words
    "seconds_to_target": ("time to the target", "reached the target sooner", seconds_of),
    "samples_to_target": ("samples to the target", "reached the target after fewer samples", count_of),
    "errors": ("errors at the end", "ended with fewer errors", percent_of),
}
