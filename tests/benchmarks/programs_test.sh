#!/usr/bin/env bash
# Benchmarks that no other test runs are built, start and say how they are used.
set -euo pipefail
source tests/deploy/check.sh

for name in checkpoint codecs wire; do
  run "tests/benchmarks/$name" --help
  expect_status 0
  expect_output "bazel run -c opt //tests/benchmarks:$name"
done
run tests/benchmarks/network/network_benchmark --benchmark_list_tests
expect_status 0
expect_output "Train/mlp/128/1"
for name in train_alone train_speed; do
  run "tests/benchmarks/network/$name"
  expect_output "usage: $name"
done
run tests/benchmarks/write_images
expect_status 2
expect_output "usage: write_images DIRECTORY"
run tests/benchmarks/write_images "$TEST_TMPDIR/images" 2 3 20 30
expect_status 0
expect_true "an image of the second class is there" test -s "$TEST_TMPDIR/images/class_0001/image_000002.jpg"
expect_true "measure_implicit_momentum is built" test -x tests/conformance/measure_implicit_momentum
