#!/usr/bin/env bash
# Programs for measurements that no other test runs are built, start and say how they are used.
set -euo pipefail
source tests/deploy/check.sh

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
