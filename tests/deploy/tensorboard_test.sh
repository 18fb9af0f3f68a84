#!/usr/bin/env bash
# TensorBoard itself reads what a training leaves for it.
#
#   bazel test //tests/deploy:tensorboard_test
#
# Installs tensorboard from PyPI into a temporary environment. Needs python3 with
# venv, and a network.
set -euo pipefail

readonly out=$TEST_TMPDIR/out
readonly python=$TEST_TMPDIR/venv/bin/python

python3 -m venv "$TEST_TMPDIR/venv"
"$python" -m pip install --quiet --disable-pip-version-check tensorboard
cli/catchment train examples/mnist_mlp.textproto --workers=2 --set algorithm.preset=staleness_aware \
  --set 'data.drawn_digits={train_samples: 4000, test_samples: 500}' --set evaluation.every_epochs=0.5 \
  --set epochs=20 --out="$out"
"$python" tests/deploy/read_with_tensorboard.py "$out"
