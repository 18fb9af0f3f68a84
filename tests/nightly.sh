#!/usr/bin/env bash
# Runs every test: those of `bazel test //...`, and the long ones that it leaves out, which are tagged
# "nightly".
#
#   tests/nightly.sh [TARGET...]
#
# TARGET...   only these instead of all
#
# Prints a table in Markdown with the result and the seconds of each test, slowest first, and at last how many
# passed, failed and were skipped. Some tests install Debian packages, which needs root; what cannot run is
# skipped, and the table says why.
# Exit codes: 0 nothing failed, 1 something did.
set -uo pipefail

# Prints "SECONDS TARGET RESULT" for each line of Bazel's that gives a test's result, slowest first.
results() {
  awk '/^\/\/[^ ]+ +(\(cached\) )?(PASSED|FLAKY|FAILED|TIMEOUT|INCOMPLETE|NO STATUS|REMOTE FAILURE)/ {
    seconds = match($0, /[0-9.]+s$/) ? substr($0, RSTART, RLENGTH - 1) : 0
    print seconds, $1, ($0 ~ /PASSED|FLAKY/ ? "passed" : "failed") }' "$log" | sort -rn
}

# Prints why a test, or a part of it, did not run here; nothing where all of it ran.
# why_skipped TARGET
why_skipped() {
  local logs=bazel-testlogs/${1#//}
  grep -rhE --include=test.log -A1 '(: Skipped$|^SKIPPED: )' "${logs/://}" 2>/dev/null |
    grep -v ': Skipped$' | sed 's/^SKIPPED: //' | head -n 1
}

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
targets=("$@")
[[ $# -gt 0 ]] || mapfile -t targets < <(bazel query --noshow_progress 'tests(//...)' 2>/dev/null)
bazel test --keep_going --noshow_progress --curses=no --color=no --nocache_test_results "${targets[@]}" 2>&1 |
  tee "$log"
status=${PIPESTATUS[0]}

passed=0
failed=0
skipped=0
printf '\n| test | result | seconds |\n| --- | --- | --- |\n'
while read -r seconds target result; do
  reason=$(why_skipped "$target")
  if [[ $result == failed ]]; then
    failed=$((failed + 1))
  elif [[ -n $reason ]]; then
    skipped=$((skipped + 1))
    result="skipped, or a part of it: $reason"
  else
    passed=$((passed + 1))
  fi
  echo "| \`$target\` | $result | $seconds |"
done < <(results)
printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[[ $status -eq 0 && $failed -eq 0 ]]
