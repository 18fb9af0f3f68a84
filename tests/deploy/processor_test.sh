#!/usr/bin/env bash
# Every program on emulated processors: without AVX2 it says so in one line and ends with exit code 1, with
# AVX2 it runs. Without qemu-user (Debian's package) the test says so and is skipped.
set -euo pipefail
source tests/deploy/check.sh

if ! command -v qemu-x86_64 >/dev/null; then
  echo "SKIPPED: there is no qemu-x86_64 (package qemu-user), which emulates processors"
  exit 0
fi

# on PROCESSOR COMMAND...: sets $status, $output (of the command) and $errors (its standard error).
on() {
  local processor=$1
  shift
  status=0
  output=$(qemu-x86_64 -cpu "$processor" "$@" 2>"$TEST_TMPDIR/errors") || status=$?
  # The emulator warns of what it lacks beside what is asked for.
  errors=$(grep -v '^qemu-x86_64: warning: ' "$TEST_TMPDIR/errors" || true)
}

for path in cli/catchment server/catchment_server worker/catchment_worker; do
  program=$(basename "$path")
  # Without AVX, and with AVX but not AVX2.
  for old in Nehalem SandyBridge; do
    on "$old" "$path" --help
    expect_status 1
    expect_true "$program on $old prints nothing but its error" test -z "$output"
    [[ $errors == "$program: this processor lacks "*"AVX2"*"x86-64-v3"* && $errors != *$'\n'* ]] ||
      fail "expected of $program on $old one line that names AVX2, got: $errors"
  done
  # One instruction set of the compiler's choice is enough.
  on Haswell,-bmi2 "$path" --help
  expect_status 1
  [[ $errors == "$program: this processor lacks BMI2;"* ]] ||
    fail "expected that BMI2 is lacking, got: $errors"
  on Haswell,-xsave "$path" --help
  expect_status 1
  [[ $errors == "$program: "*"does not enable AVX"* ]] ||
    fail "expected that AVX is not enabled, got: $errors"

  on Haswell "$path" --help
  expect_status 0
  expect_output "$program"
  expect_true "$program on Haswell gives no error: $errors" test -z "$errors"
done
