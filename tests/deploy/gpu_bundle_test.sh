#!/usr/bin/env bash
# deploy/gpu_bundle.sh, and what its run.sh says where no GPU is, and with the layers in plain loops.
set -euo pipefail
source tests/deploy/check.sh

readonly bundle=$TEST_TMPDIR/gpu.tar.gz
readonly here=$TEST_TMPDIR/unpacked
readonly most_kib=61440  # what may travel to a GPU machine, with room to spare

run deploy/gpu_bundle.sh --help
expect_status 0
expect_output "--out=FILE"
run deploy/gpu_bundle.sh --frobnicate
expect_status 2
expect_output "no such flag: --frobnicate"

run deploy/gpu_bundle.sh --bin=. --out="$bundle"
expect_status 0
expect_output "$bundle: "
expect_true "the bundle is at most $most_kib KiB" test "$(du -k "$bundle" | cut -f1)" -le "$most_kib"
mkdir -p "$here"
tar -xzf "$bundle" -C "$here" --strip-components=1
for file in run.sh check_gpu.py pytorch_speed.py bin/layers_test bin/train_speed bin/catchment \
            tests/kernels/cuda/cuda_plugin_on_host.so examples/resnet50.textproto VERSION; do
  expect_true "$file is in the bundle" test -s "$here/$file"
done

run "$here/run.sh" --frobnicate
expect_status 2
run "$here/run.sh" --parts=test
expect_status 2
expect_output "there is no test"

# Without a device, and on a machine with one too: its driver shows none.
results=$TEST_TMPDIR/results
run env CUDA_VISIBLE_DEVICES= "$here/run.sh" --out="$results"
expect_status 0
for part in tests training speed; do
  expect_output "$part, all: not run device: CUDA: "
done
run cat "$results/results.md"
expect_output "| tests | 0 | 0 | 1 |"
expect_output "| speed | 0 | 0 | 1 |"
run python3 -c 'import json, sys; print([r["status"] for r in json.load(open(sys.argv[1]))["rows"]])' \
  "$results/results.json"
expect_output "['not run', 'not run', 'not run']"

run env CATCHMENT_DATA=/nowhere "$here/run.sh" --on_host --out="$results" --minutes=8
expect_status 0
expect_output "tests, layers_test: passed"
expect_output "training, mnist_cnn, 1 worker: passed"
expect_output "speed, all: not run plain loops on the processor"
run cat "$results/results.md"
expect_output "nothing here is of a GPU"
expect_output "| training | 12 | 0 | 0 |"

# A part that fails is named, and the others go on.
rm "$here/bin/layers_test"
run env CATCHMENT_DATA=/nowhere "$here/run.sh" --on_host --out="$results" --parts=tests,speed
expect_status 1
expect_output "tests, layers_test: FAILED"
expect_output "training, all: not run not asked for"
run cat "$results/results.md"
expect_output "| tests | 0 | 1 | 0 |"
