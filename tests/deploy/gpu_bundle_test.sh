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
readonly stubs=$TEST_TMPDIR/stubs
readonly calls=$TEST_TMPDIR/calls
readonly most_kib=61440  # what may travel to a GPU machine, with room to spare
# So many that no step depends on the processor's speed.
minutes=600
mkdir -p "$here" "$stubs"

# check FLAG...: runs the bundle's check with a folder of results of its own.
check() {
  results=$(mktemp -d "$TEST_TMPDIR/results.XXXXXX")
  run "${variables[@]}" "$here/run.sh" --out="$results" --minutes="$minutes" "$@"
}
variables=(env CATCHMENT_DATA=/nowhere CATCHMENT_CUDNN=off)

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
for file in run.sh check_gpu.py pytorch_speed.py attached.py bin/cuda_layers_test bin/train_speed \
            bin/catchment python/catchment/torch.py examples/resnet50.textproto VERSION; do
  expect_true "$file is in the bundle" test -s "$here/$file"
done

run "$here/run.sh" --frobnicate
expect_status 2
run "$here/run.sh" --dry-run
expect_status 0
expect_output "part 1: 300 s"
run "$here/run.sh" --parts=test
expect_status 2
expect_output "there is no test"

# Without a device, and on a machine with one too: its driver shows none.
readonly all=device,tests,sanitizer,speed,attached,profile,training
variables+=(CUDA_VISIBLE_DEVICES=)
check --parts=$all
expect_status 0
for part in ${all//,/ }; do
  expect_output "$part, all: not run device: CUDA: "
done
for part in ${all//,/ }; do expect_row "$part" 0 0 1; done
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
variables+=(PATH="$stubs:$PATH")
check --parts=$all --plugin="$plugin"
expect_status 0
expect_output "training, mnist_cnn, 1 worker: passed"
expect_output "speed, resnet50, BFLOAT16, batch 4: not run takes too long on a processor"
expect_output "device, first steps: passed"
expect_output "device, libraries: passed"
expect_row tests 1 0 0
expect_row sanitizer 2 0 0
expect_row speed 4 0 2
if python3 -c "import torch" 2>/dev/null; then expect_row attached 2 0 0; else expect_row attached 0 0 2; fi
expect_row profile 1 0 0
expect_row training 12 0 0
expect_output "nothing here is of a GPU"
for tool in memcheck racecheck; do
  expect_true "$tool ran layers" grep -q "^compute-sanitizer --tool=$tool .*/bin/cuda_layers_test .*LstmOnDevice" \
    "$calls"
done
expect_true "ncu ran a step, at the clocks that there are" grep -q "^ncu --clock-control=none .*/bin/train_speed" "$calls"
for log in nvidia-smi libraries layers_test sanitizer_memcheck ncu speed_mnist_cnn_TF32 \
  train_mnist_cnn_4_FLOAT32; do
  expect_true "$log.log was kept" test -e "$results/$log.log"
  expect_true "$log.log is in the archive" grep -qx "${results##*/}/$log.log" <(tar -tzf "$results.tar.gz")
done

# A step without time left is skipped, which is not a failure.
minutes=0.01 check --parts=training --plugin="$plugin"
expect_status 0
expect_row training 0 0 12
expect_row speed 0 0 1

# A kernel that fails is named at the second try, and the steps after it run. What fails ends the program, so
# its later tests run in another.
if [[ $plugin == *on_ptx* ]]; then
  variables+=(CATCHMENT_PTX_FAULT=MaxPool)
  check --parts=tests,speed --plugin="$plugin"
  expect_status 1
  expect_output "tests, layers_test: FAILED"
  expect_output "MaxPoolOnDevice"
  expect_output "with CATCHMENT_CUDA_SYNC=1: exit code"
  expect_output "speed, mnist_cnn, TF32, batch 4: FAILED"
  expect_output "speed, resnet20_cifar10, TF32, batch 4: passed"
  expect_row tests 0 1 0
  expect_row speed 2 2 2
  run cat "$results/speed_mnist_cnn_TF32_sync.log"
  expect_output "MaxPool"
  variables+=(CATCHMENT_PTX_DRIVER=12040)
  check --plugin="$plugin"
  expect_status 0
  expect_output "device, all: not run device: CUDA: the NVIDIA driver supports CUDA 12.4 and the plugin needs 13.0"
else
  echo "kernels that fail: skipped: no nvcc"
fi
