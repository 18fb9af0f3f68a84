#!/usr/bin/env bash
# deploy/gpu_bundle.sh, and what its run.sh does: where no GPU is, with a plugin that computes on the
# processor, and where kernels fail.
#
#   gpu_bundle_test.sh PLUGIN    the PTX of the kernels on the processor, or without nvcc the layers in plain loops
set -euo pipefail
source tests/deploy/check.sh

readonly plugin=$PWD/$1
readonly bundle=$TEST_TMPDIR/gpu.tar.gz
readonly here=$TEST_TMPDIR/unpacked
readonly results=$TEST_TMPDIR/results
readonly stubs=$TEST_TMPDIR/stubs
readonly calls=$TEST_TMPDIR/calls
readonly most_kib=61440  # what may travel to a GPU machine, with room to spare
# So many that no step depends on the processor's speed.
readonly minutes=60
mkdir -p "$here" "$stubs"

# expect_row PART PASSED FAILED NOT_RUN: in the summary of results.md.
expect_row() {
  run cat "$results/results.md"
  expect_output "| $1 | $2 | $3 | $4 |"
}

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
tar -xzf "$bundle" -C "$here" --strip-components=1
for file in run.sh check_gpu.py pytorch_speed.py bin/cuda_layers_test bin/train_speed bin/catchment \
            examples/resnet50.textproto VERSION; do
  expect_true "$file is in the bundle" test -s "$here/$file"
done

run "$here/run.sh" --frobnicate
expect_status 2
run "$here/run.sh" --parts=test
expect_status 2
expect_output "there is no test"

# Without a device, and on a machine with one too: its driver shows none.
run env CUDA_VISIBLE_DEVICES= "$here/run.sh" --out="$results"
expect_status 0
for part in device tests sanitizer speed profile training; do
  expect_output "$part, all: not run device: CUDA: "
done
for part in device tests sanitizer speed profile training; do expect_row $part 0 0 1; done
run python3 -c 'import json, sys; print({r["status"] for r in json.load(open(sys.argv[1]))["rows"]})' \
  "$results/results.json"
expect_output "{'not run'}"

# All parts, with programs in the place of NVIDIA's: a tool runs the program that it is given.
stub nvidia-smi <<<'echo "a stand-in"'
for tool in compute-sanitizer ncu; do
  stub $tool <<END
echo "$tool \$*" >>"$calls"
while [[ \$1 == --* ]]; do shift; done
exec "\$@"
END
done
run env CATCHMENT_DATA=/nowhere PATH="$stubs:$PATH" "$here/run.sh" --plugin="$plugin" --out="$results" \
  --minutes=$minutes
expect_status 0
expect_output "training, mnist_cnn, 1 worker: passed"
expect_output "speed, resnet50, BFLOAT16, batch 4: not run takes too long on a processor"
expect_row device 3 0 0
expect_row tests 1 0 0
expect_row sanitizer 2 0 0
expect_row speed 5 0 2
expect_row profile 1 0 0
expect_row training 12 0 0
expect_output "nothing here is of a GPU"
for tool in memcheck racecheck; do
  expect_true "$tool ran layers" grep -q "^compute-sanitizer --tool=$tool .*/bin/cuda_layers_test .*LstmOnDevice" \
    "$calls"
done
expect_true "ncu ran a step" grep -q "^ncu .*/bin/train_speed" "$calls"
for log in nvidia-smi libraries layers_test sanitizer_memcheck ncu speed_hep_lstm_TF32 \
  train_mnist_cnn_4_FLOAT32; do
  expect_true "$log.log was kept" test -e "$results/$log.log"
done

# A step without time left is skipped, which is not a failure.
run "$here/run.sh" --plugin="$plugin" --out="$results" --parts=training --minutes=0.01
expect_status 0
expect_row training 0 0 12
expect_row speed 0 0 1

# A kernel that fails is named at the second try, and the steps after it run. What fails ends the program, so
# its later tests run in another.
if [[ $plugin == *on_ptx* ]]; then
  run env CATCHMENT_PTX_FAULT=MaxPool "$here/run.sh" --plugin="$plugin" --out="$results" --parts=tests,speed \
    --minutes=$minutes
  expect_status 1
  expect_output "tests, layers_test: FAILED"
  expect_output "MaxPoolOnDevice"
  expect_output "with CATCHMENT_CUDA_SYNC=1: exit code"
  expect_output "speed, mnist_cnn, TF32, batch 4: FAILED"
  expect_output "speed, mnist_mlp, TF32, batch 4: passed"
  expect_row tests 0 1 0
  expect_row speed 3 2 2
  run cat "$results/speed_mnist_cnn_TF32_sync.log"
  expect_output "MaxPool"
else
  echo "kernels that fail: skipped: no nvcc"
fi
