# shellcheck shell=bash
# For tests of scripts: source it. Every check names what was expected and what came, and the test goes on; it
# fails at its end.
failures=0
trap finish EXIT

finish() {
  local status=$?
  [[ $status -eq 0 ]] || echo "FAILED: the test itself ended with exit code $status"
  [[ $failures -eq 0 ]] || echo "$failures checks failed"
  [[ $status -eq 0 && $failures -eq 0 ]] || exit 1
}

# run COMMAND...: sets $status and $output (both streams).
run() {
  status=0
  output=$("$@" 2>&1) || status=$?
}

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

expect_status() {
  [[ $status -eq $1 ]] || fail "expected exit code $1, got $status; output: $output"
}

expect_output() {
  [[ $output == *"$1"* ]] || fail "expected in the output: $1; got: $output"
}

expect_no_output() {
  [[ $output != *"$1"* ]] || fail "not expected in the output: $1; got: $output"
}

# expect_true WHAT COMMAND...
expect_true() {
  local what=$1
  shift
  "$@" || fail "$what"
}

# stub NAME: makes $stubs/NAME, with standard input as its body.
stub() {
  { echo "#!/bin/bash"; cat; } >"${stubs:?}/$1"
  chmod +x "$stubs/$1"
}
