#!/usr/bin/env bash
# The tables of docs/outputs.md are what their tool makes of the measures.
set -euo pipefail

cp docs/outputs.md "$TEST_TMPDIR/made.md"
chmod u+w "$TEST_TMPDIR/made.md"
docs/make_outputs "$TEST_TMPDIR/made.md"
if ! diff -u docs/outputs.md "$TEST_TMPDIR/made.md"; then
  echo "FAILED: docs/outputs.md is not what common/measures says now. Write it anew, with:"
  echo "    bazel run //docs:make_outputs"
  exit 1
fi
