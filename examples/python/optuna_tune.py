#!/usr/bin/env python3
r"""Searches for a learning rate and a momentum with Optuna (pip install optuna), which chooses the values and
ends trials that are worse than the earlier ones at the same number of samples:

    python3 examples/python/optuna_tune.py examples/mnist_mlp.textproto --trials=20 --out=optuna -- \
        --workers=2

What follows `--` is passed to `catchment train`. Each trial is a run in --out, with its logs. The same
command continues a search that was interrupted, whose trials are in --out/study.db. `catchment tune` searches
without Optuna.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

import optuna


def new_scores(path, read):
    """Returns the scores that metrics.jsonl has beyond `read` of them,
    as pairs of samples and test accuracy."""
    scores = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                if not line.endswith("\n"):  # it is being written
                    break
                metrics = json.loads(line)
                if metrics.get("test_accuracy") is not None:
                    scores[metrics["tested_at_samples"]] = metrics["test_accuracy"]
    return sorted(scores.items())[read:]


def train(trial, arguments):
    """Trains with the values of a trial. Returns the final test accuracy,
    None if the run failed. Raises TrialPruned."""
    values = {
        "optimizer.learning_rate": trial.suggest_float("learning_rate", 0.001, 1, log=True),
        "optimizer.momentum": trial.suggest_float("momentum", 0, 0.95),
    }
    out = os.path.join(arguments.out, f"trial-{trial.number}")
    command = [arguments.catchment, "train", arguments.job, f"--out={out}", "--overwrite", *arguments.train]
    command += [f"--set={path}={value:.4g}" for path, value in values.items()]
    os.makedirs(out, exist_ok=True)
    with open(out + ".log", "w", encoding="utf-8") as log, subprocess.Popen(
        command, stdout=log, stderr=subprocess.STDOUT
    ) as run:
        read = 0
        try:
            while True:
                ended = run.poll() is not None
                for samples, accuracy in new_scores(os.path.join(out, "metrics.jsonl"), read):
                    trial.report(accuracy, samples)
                    read += 1
                    if not ended and trial.should_prune():
                        raise optuna.TrialPruned()
                if ended:
                    break
                time.sleep(0.2)
        finally:
            if run.poll() is None:
                run.send_signal(signal.SIGINT)  # it ends its servers and workers
    if run.returncode != 0:
        return None
    with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
        return json.load(file)["test_accuracy"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--out", required=True)
    parser.add_argument("--catchment", default="catchment", help="the command")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:end])
    arguments.train = words[end + 1 :]
    os.makedirs(arguments.out, exist_ok=True)
    study = optuna.create_study(
        study_name="catchment",
        direction="maximize",
        load_if_exists=True,
        storage=f"sqlite:///{os.path.join(arguments.out, 'study.db')}",
        sampler=optuna.samplers.TPESampler(seed=1),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
    )
    finished = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED, optuna.trial.TrialState.FAIL
    while len(study.get_trials(states=finished)) < arguments.trials:
        trial = study.ask()
        try:
            accuracy = train(trial, arguments)
        except optuna.TrialPruned:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        if accuracy is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, accuracy)
    if not study.get_trials(states=(optuna.trial.TrialState.COMPLETE,)):
        raise SystemExit(f"no trial has a result; {arguments.out}/trial-*.log have the reasons")
    print(f"best: trial {study.best_trial.number}, {study.best_value:.2%}, {study.best_params}")


if __name__ == "__main__":
    main()
