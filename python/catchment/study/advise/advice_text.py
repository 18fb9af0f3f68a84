"""The advice as text, and as JSON with the keys of docs/advise.md."""

import shlex
from typing import Any, Dict

from catchment.study import text
from catchment.study.text import count, percent, plural, rounded, short

from .evidence import Evidence, Noise
from .recommendations import EFFICIENCY, BatchAdvice, Change, Recommendations, Scaling, sentence
from .trials import SEEDS, Trial, Trials

# Workers of sync that wait for more than this share of their time should exchange less often.
_MUCH_WAITING = 0.1
_WIDTH = 110
_SETTINGS = {"preset": "", "job": ", the job's settings", "bounded": ", the job's with a bounded rate"}


def advice_text(evidence: Evidence, recommendations: Recommendations) -> str:
    trials, scaling, batch = recommendations
    words = _use(evidence, trials) + _waiting(trials) + "\n" + _table(trials) + "\n"
    words += _evidence(evidence, trials) + "\n"
    if evidence.compute_share is not None:
        words += _paragraph("computed", "  ", share=percent(evidence.compute_share))
    words += _servers(evidence, scaling) + _batch(evidence, batch)
    if evidence.job_file and trials.recommended:
        words += "\nNext:\n  %s --out=out\n" % _next_command(evidence, trials.trials[0])
    return words


def _paragraph(name: str, head: str = "", /, **values: object) -> str:
    return text.hanging_paragraph(head, sentence(name, **values), 2, _WIDTH)


def _settings(trial: Trial) -> Dict[str, str]:
    facts = trial.job.facts
    return {
        "name": trial.preset + _SETTINGS[trial.settings],
        "momentum": "" if facts["momentum"] is None else short(facts["momentum"], 3),
        "rate": short(facts["learning_rate"], 3),
    }


def _use(evidence: Evidence, trials: Trials) -> str:
    workers, sure = plural(evidence.workers, "worker"), "not_sure"
    if not trials.recommended:
        return _paragraph("none_trains", workers=workers)
    if trials.quadratic or trials.sure:
        sure = "quadratic" if trials.quadratic else "alone" if trials.recommended == 1 else "fastest"
    first = trials.trials[0]
    settings, time = _settings(first), text.duration(first.seconds_to(trials.target) or 0)
    if settings["momentum"]:
        settings["momentum"] = "momentum %s, " % settings["momentum"]
    reached = {"target": percent(trials.target), "time": time, "accuracy": percent(first.accuracy())}
    return _paragraph("use", workers=workers, sure=sentence(sure, seeds=SEEDS), **settings, **reached)


def _waiting(trials: Trials) -> str:
    sync = trials.find("sync")
    if sync is None or sync.waiting() <= _MUCH_WAITING:
        return ""
    rare = [trial for trial in map(trials.find, ("local_sgd", "diloco")) if trial]
    high = [one for one in rare if one.accuracy() >= trials.target]
    names = " and ".join("%s (%s)" % (one.preset, percent(one.waiting())) for one in high)
    words = sentence("rare" if high else "rare_lower", names=names) if rare else ""
    return _paragraph("waiting", share=percent(sync.waiting()), rare=words)


def _table(trials: Trials) -> str:
    table, to_target = text.Table(), "seconds to " + percent(trials.target)
    table.add(["", "preset", "momentum", "learning rate", "accuracy", to_target, "waiting", "staleness"])
    for i, trial in enumerate(trials.trials):
        seconds, mark = trial.seconds_to(trials.target), "*" if i < trials.recommended else ""
        accuracy = "diverged" if trial.diverged else percent(trial.accuracy())
        row = [mark, *_settings(trial).values(), accuracy, "" if seconds is None else short(seconds, 3)]
        table.add([*row, percent(trial.waiting()), short(trial.runs[0].staleness_mean, 3)])
    return "Tried (*: recommended):\n" + table.print()


def _evidence(evidence: Evidence, trials: Trials) -> str:
    table = text.Table(has_head=False)
    table.add(["step", "%s, %s" % (str(evidence.step), evidence.step_source)])
    for worker, times in sorted(evidence.slow.items()):
        table.add(["worker %d" % worker, "steps of %s times this time" % short(times, 3)])
    table.add(["network", "%s, %s" % (str(evidence.network), evidence.network_source)])
    table.add(["trained", trials.model])
    table.add(["samples", count(trials.samples)])
    return "The advice for %s rests on simulations:\n%s" % (evidence.subject, table.print())


def _servers(evidence: Evidence, scaling: Scaling) -> str:
    rows = ["%.2f with %s" % (row["computing"], plural(row["servers"], "server")) for row in scaling.rows]
    name = "no_servers" if scaling.servers is None else "enough_servers"
    end = sentence(name, servers=plural(scaling.servers or 0, "server"), efficiency="%.2f" % EFFICIENCY)
    return _paragraph("servers", preset=evidence.job.preset, rows=", ".join(rows), end=end)


def _change(change: Change) -> str:
    return sentence("change", **{key: "%.2f" % times for key, times in change._asdict().items()})


def _batch(evidence: Evidence, advice: BatchAdvice) -> str:
    samples, noise = count(rounded(advice.samples_per_update)), evidence.noise
    if advice.noise_scale is None or not (noise and advice.twice and advice.half):
        return _paragraph("no_scale", samples=samples, reason=advice.reason)
    return _paragraph(
        "scale",
        samples=samples,
        place=advice.place,
        scale=count(rounded(advice.noise_scale)),
        trace=short(noise.trace, 3),
        square=short(noise.squared_gradient, 3),
        updates=plural(noise.updates, "update"),
        verdict=sentence(advice.place.replace(" ", "_")),
        twice=_change(advice.twice),
        half="" if advice.place == "below" else "; half as many " + _change(advice.half),
    )


def _next_command(evidence: Evidence, first: Trial) -> str:
    command = "catchment train %s --workers=%d --servers=%d"
    command %= evidence.job_file, evidence.workers, evidence.servers
    if first.settings == "preset":
        command += " --set algorithm={preset:'%s'}" % first.preset
        reset = evidence.preset_optimizer
        reset = shlex.quote(reset) if " " in reset else reset
        command += " --set " + reset if evidence.own_optimizer else ""
    elif first.settings == "bounded":
        command += " --set optimizer.learning_rate=" + short(first.job.facts["learning_rate"])
    return command


def advice_json(evidence: Evidence, recommendations: Recommendations) -> Dict[str, Any]:
    trials, scaling, batch = recommendations
    noise, sync = evidence.noise, trials.find("sync")
    rows = [_trial_json(trial, i < trials.recommended, trials) for i, trial in enumerate(trials.trials)]
    return {
        "subject": evidence.subject,
        "preset": evidence.job.preset,
        "workers": evidence.workers,
        "servers": evidence.servers,
        "evidence": {
            "step": str(evidence.step),
            "step_source": evidence.step_source,
            "slow_workers": [{"worker": one, "times": times} for one, times in sorted(evidence.slow.items())],
            "network": str(evidence.network),
            "network_source": evidence.network_source,
            "compute_share": evidence.compute_share,
        },
        "sure": trials.sure,
        "recommended": rows[: trials.recommended],
        "sync_waiting": sync and sync.waiting(),
        "trials": {
            **{key: getattr(trials, key) for key in ("quadratic", "model", "samples", "target")},
            "rows": rows,
            "left_out": trials.left_out,
        },
        "scaling": {"servers": scaling.servers, "rows": scaling.rows},
        "samples_per_update": batch.samples_per_update,
        "batch": {
            "place": batch.place,
            "noise_scale": batch.noise_scale,
            **{"noise_" + key: getattr(noise, key, None) for key in Noise._fields},
            "twice": batch.twice and batch.twice._asdict(),
            "half": batch.half and batch.half._asdict(),
        },
    }


def _trial_json(trial: Trial, recommended: bool, trials: Trials) -> Dict[str, Any]:
    return {
        "preset": trial.preset,
        "settings": trial.settings,
        **{key: trial.job.facts[key] for key in ("learning_rate", "momentum")},
        "recommended": recommended,
        "diverged": trial.diverged,
        "accuracy": None if trial.diverged else trial.accuracy(),
        "accuracies": [None if run.diverged else run.accuracy for run in trial.runs],
        "seconds_to_target": trial.seconds_to(trials.target),
        "samples_per_second": trial.runs[0].samples_per_second,
        "waiting": trial.waiting(),
        "staleness": trial.runs[0].staleness_mean,
    }
