#!/usr/bin/env bash
set -euo pipefail
source tests/deploy/check.sh

readonly page=$TEST_TMPDIR/catchment.1

cli/catchment man >"$page"
if command -v groff >/dev/null; then
  run groff -man -Tutf8 -ww -rLL=80n -z "$page"
  expect_status 0
  [[ -z $output ]] || fail "groff: $output"
  text=$(groff -man -Tascii -P-c -P-b -P-o -P-u -rLL=100n "$page" | tr -s ' \n' ' ')
  for words in "catchment train JOB" "--resume[=auto]" "--role=worker|evaluator" "catchment stop out --now" \
    "catchment doctor" "Exit code: 0: the job has ended;"; do
    [[ $text == *"$words"* ]] || fail "the page does not show: $words"
  done
else
  echo "groff is not installed: not tested"
fi
if command -v mandoc >/dev/null; then
  run mandoc -T lint -W warning "$page"
  # The page has no date, so that the same program makes the same page.
  output=$(grep -v "missing date" <<<"$output" || true)
  [[ -z $output ]] || fail "mandoc: $output"
else
  echo "mandoc is not installed: not tested"
fi
