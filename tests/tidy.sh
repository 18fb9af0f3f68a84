#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy on the product's sources, which are free of findings. It
# takes about a quarter of an hour on 2 cores, so .ci/run leaves it out; run it before a change of many files
# is submitted.
#
#   tests/tidy.sh                  all sources
#   tests/tidy.sh server/ cli/     those whose path has one of these regular expressions in it
#
# Needs Debian's clang-tidy-14. Exit codes: 0 no finding, 1 some, 2 the tool is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v run-clang-tidy-14 \
  >/dev/null || { echo "tidy: run-clang-tidy-14 is missing: apt install clang-tidy-14" >&2; exit 2; }
# Generated headers must be there to be included.
bazel build --noshow_progress //proto:all
deploy/compile_commands.py >/dev/null
patterns=("$@")
[[ $# -gt 0 ]] || patterns=("$PWD/(cli|common|kernels|optim|server|worker)/")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
run-clang-tidy-14 -quiet -p . -extra-arg=-iquote"$PWD" -extra-arg=-Wno-unknown-warning-option \
  "${patterns[@]}" >"$log" 2>/dev/null || status=1
# Without colours, and without the commands that ran.
sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -vE '^(clang-tidy-14 |$)' || true
[[ $status -ne 0 ]] || echo "tidy: no finding"
exit "$status"
