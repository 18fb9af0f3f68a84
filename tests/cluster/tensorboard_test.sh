#!/usr/bin/env bash
# TensorBoard's event files of a training with real daemons, and of one that goes on from it, against
# metrics.jsonl, by a reader that shares nothing with the writer.
set -euo pipefail

readonly out=$TEST_TMPDIR/out

train() {
  cli/catchment train "$@" --out="$out" >"$TEST_TMPDIR/log" 2>&1 ||
    { cat "$TEST_TMPDIR/log"; tail -n 20 "$out"/logs/*; exit 1; }
}

train examples/mnist_mlp.textproto --servers=2 --workers=2 --set algorithm.preset=staleness_aware \
  --set 'data.drawn_digits={train_samples: 4000, test_samples: 500}' --set evaluation.every_epochs=0.5 --set epochs=3
python3 tests/cluster/check_event_files.py "$out"
train --resume --set epochs=5
event_files=("$out"/tensorboard/*)
[[ ${#event_files[@]} -eq 2 ]] || { echo "FAILED: a resumed run begins a new file"; exit 1; }
python3 tests/cluster/check_event_files.py "$out"
