#!/usr/bin/env bash
# `catchment compare` with real daemons, killed half-way: started again it does what is missing, and nothing
# twice.
set -euo pipefail

readonly catchment=cli/catchment
readonly out=$TEST_TMPDIR/out
readonly log=$TEST_TMPDIR/log
readonly compare=("$catchment" compare examples/mnist_mlp.textproto
  --set 'data.drawn_digits={train_samples: 2000, test_samples: 500}' "--algorithms=sync,downpour" \
    --workers=2 --seeds=2 --search=none
  --budget=samples:2000 --straggler=1:2x --out="$out")

fail() {
  echo "FAILED: $*"
  cat "$log"
  exit 1
}

# Prints which run directories have a result, and when it was written.
results() { stat --format='%n %y' "$out"/runs/*/summary.json 2>/dev/null || true; }

"${compare[@]}" >"$log" 2>&1 &
readonly pid=$!
until [[ $(results | wc -l) -ge 2 ]] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
kill -KILL "$pid" || fail "it ended before it could be killed"
wait "$pid" 2>/dev/null || true
# No daemon outlives it, so that nothing is written any more.
while pgrep -f -- "--out=$out/runs|checkpoint_dir=$out/runs" >/dev/null; do sleep 0.05; done

before=$(results)
[[ $(results | wc -l) -lt 4 ]] || fail "nothing was left to do"
[[ ! -e $out/report.json ]] || fail "a report of a part"

"${compare[@]}" >"$log" 2>&1 || fail "exit code $?"
[[ $(results | grep -cxF "$before") -eq $(wc -l <<<"$before") ]] || fail "a run that was done was run again"
grep -q "of 4 runs are already done" "$log" || fail "it does not say what was there"
[[ $(results | wc -l) -eq 4 ]] || fail "not all runs are done"
[[ $(grep -c '"done": true' "$out/report.json") -eq 4 ]] || fail "the report lacks a run"
grep -q "slowdown_factor: 2" "$out/runs/downpour-2-workers-seed-1/job.textproto" ||
  fail "there was no straggler"
grep -q "</html>" "$out/report.html" || fail "there is no page"

"${compare[@]}" --overwrite --workers=1 >"$log" 2>&1 && fail "a straggler that no run has was taken"
"${compare[@]}" --seeds=3 >"$log" 2>&1 && fail "another comparison was taken for the same"
grep -q -- "--seeds is 3, but was 2" "$log" || fail "the difference is not named"
echo PASSED
