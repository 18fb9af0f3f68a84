#!/usr/bin/env bash
# docs/job_reference.md is what its tool makes of proto/job.proto.
set -euo pipefail

docs/make_job_reference docs/job.descriptor >"$TEST_TMPDIR/made.md"
if ! diff -u docs/job_reference.md "$TEST_TMPDIR/made.md"; then
  echo "FAILED: docs/job_reference.md is not what proto/job.proto says now. Write it anew, with:"
  echo "    bazel run //docs:make_job_reference > docs/job_reference.md"
  exit 1
fi
