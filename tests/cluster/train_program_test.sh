#!/usr/bin/env bash
# `catchment train --program` with real daemons: the program describes its model, and trains.
set -euo pipefail

readonly catchment=cli/catchment
readonly out=$TEST_TMPDIR/out
readonly log=$TEST_TMPDIR/log
readonly rows=$TEST_TMPDIR/rows.csv
# The directory of descriptions while the command runs.
export TMPDIR=$TEST_TMPDIR
readonly program="python3 tests/cluster/attached_program.py $rows"

fail() {
  echo "FAILED: $*"
  cat "$log"
  exit 1
}

# The value of a key of the run's summary.
summary() { python3 -c "import json, sys; print(json.load(open('$out/summary.json'))['$1'])"; }

# 240 rows of six features, whose class is where the first two features are.
awk 'BEGIN { srand(3); for (i = 0; i < 240; ++i) { a = rand() - 0.5; b = rand() - 0.5;
  printf "%f,%f,%f,%f,%f,%f,%d\n", 4 * a, 4 * b, rand(), rand(), rand(), rand(), (a > 0 ? 0 : (b > 0 ? 1 : 2)) } }' >"$rows"

"$catchment" train --program="$program" --workers=2 --set epochs=3 --set batch_size=16 --out="$out" >"$log" 2>&1 ||
  fail "exit code $?"
[[ $(summary phase) == DONE && $(summary samples) == 720 ]] || fail "it is not done"
[[ $(summary device) == "program: "* ]] || fail "the device is not the program's"
grep -q "initial_weights: \"$out/initial.safetensors\"" "$out/job.textproto" ||
  fail "the weights are not kept"
grep -q 'name: "dense1.weight"' "$out/job.textproto" || fail "the model is not in the job"
[[ -s $out/model.safetensors ]] || fail "there are no weights"
[[ ! -e $out/logs/evaluator.log ]] || fail "an evaluator was started, and there is no test set"
[[ -z $(compgen -G "$TMPDIR/catchment-program-*/model.textproto") ]] || fail "the description was left behind"

"$catchment" train --resume --program="$program" --set epochs=5 --out="$out" >"$log" 2>&1 ||
  fail "exit code $?"
[[ $(summary phase) == DONE && $(summary samples) == 1200 ]] || fail "it did not go on"

echo 'epochs: 2 batch_size: 24 algorithm { preset: "easgd" }' >"$TEST_TMPDIR/job.textproto"
TEST_SAMPLES=1 "$catchment" train "$TEST_TMPDIR/job.textproto" --program="$program" --overwrite --out="$out" \
  >"$log" 2>&1 || fail "exit code $?"
[[ $(summary algorithm) == easgd && $(summary samples) == 480 ]] || fail "the job file was not heard"
[[ $(summary test_loss) != None ]] || fail "the program did not score the weights"

# For daemons that are started one by one.
"$catchment" validate --program="$program" --set epochs=2 --write="$TEST_TMPDIR/written.textproto" >"$log" \
  2>&1 ||
  fail "exit code $?"
grep -q "started with a program" "$log" || fail "the model is not explained"
grep -q "initial_weights: \"$TEST_TMPDIR/written.textproto.safetensors\"" "$TEST_TMPDIR/written.textproto" ||
  fail "the job does not name its weights"
"$catchment" train "$TEST_TMPDIR/written.textproto" --program="$program" --overwrite --out="$out" >"$log" \
  2>&1 ||
  fail "exit code $?"
[[ $(summary samples) == 480 ]] || fail "the job that was written is another"

readonly compare=("$catchment" compare --program="$program" --workers=1 --seeds=1 --search=none --set epochs=1 --set batch_size=16
  --out="$TEST_TMPDIR/compared")
TEST_SAMPLES=1 "${compare[@]}" --algorithms=sync,downpour >"$log" 2>&1 || fail "exit code $?"
[[ $(grep -c '"done": true' "$TEST_TMPDIR/compared/report.json") -eq 2 ]] || fail "the comparison lacks a run"
TEST_SAMPLES=1 "${compare[@]}" --algorithms=sync,downpour >"$log" 2>&1 || fail "exit code $?"
grep -q "2 of 2 runs are already done" "$log" || fail "what was done was done again"
"${compare[@]}" --algorithms=sync,downpour --overwrite >"$log" 2>&1 &&
  fail "runs were compared without a test set"
grep -q "pass a test set to join()" "$log" || fail "it does not say what is missing"

# A program that hangs in a step or after its last one, and ignores SIGTERM, is ended by its worker, which is
# asked to stop, too.
for fault in busy endless; do
  rm -rf "$out"  # with the log of an earlier run
  "$catchment" train --program="exec $program $fault" --set epochs=1 --overwrite --out="$out" >"$log" 2>&1 &
  train=$!
  until grep -qs "computes forever" "$out/logs/worker-0.log"; do
    kill -0 "$train" || fail "it ended by itself"
    sleep 0.1
  done
  kill -TERM "$train"
  code=0
  wait "$train" || code=$?
  [[ $code -eq 143 ]] || fail "exit code $code of a run that was stopped"
  grep -q "received SIGTERM" "$out/logs/worker-0.log" || fail "the worker was not asked to stop"
  # The time of a step that hangs counts: after it the program has 5 s more, and not all of its 12 s again.
  [[ $fault == endless ]] || grep -qE "did not end within (1[7-9]|[2-9][0-9]) s" "$out/logs/worker-0.log" ||
    fail "the program had its time twice"
done

# The last line has the reason, and of a long one its end.
while read -r fault reason; do
  "$catchment" train --program="$program $fault" --overwrite --out="$out" >"$log" 2>&1 && fail "$fault: it ended well"
  [[ $(tail -n 1 "$log") == "catchment train: "*"$reason" ]] || fail "$fault: the last line is not its reason"
done <<'END'
traceback RuntimeError: Caught OSError in process 0. ... OSError: no space is left in /dev/shm
long xxx has no end
stream the program has left the job: the stream has ended and cannot be read again (exit code 0)
END

# An only worker that hangs is ended and started again.
mkdir "$TEST_TMPDIR/hangs"
"$catchment" train --program="if [ -z \"\$CATCHMENT_DESCRIBE\" ] && rmdir $TEST_TMPDIR/hangs; then exec $program hang; fi; exec $program" --set epochs=1 \
  --set faults.stuck_seconds=1 --set faults.heartbeat_timeout_seconds=2 --overwrite --out="$out" >"$log" 2>&1 ||
  fail "a worker that hangs ends the job"
grep -q "started worker-0 again (1 of at most 5 times)" "$log" || fail "the worker was not started again"

# A process that the program starts in the background ends with its description.
"$catchment" validate --program="sleep 97.31 & exec $program" >"$log" 2>&1 || fail "validate"
for ((i = 0; i < 600; ++i)); do pgrep -f "^sleep 97.31" >/dev/null || break; sleep 0.1; done
pgrep -f "^sleep 97.31" && fail "a process outlives the command"

"$catchment" train --program="true" --out="$TEST_TMPDIR/none" >"$log" 2>&1 &&
  fail "a program without a model was taken"
grep -q 'ended (exit code 0) without describing its model: does it call catchment.join()?' "$log" ||
  fail "no reason"
"$catchment" train --program="echo a hint; exit 3" --out="$TEST_TMPDIR/none" >"$log" 2>&1 &&
  fail "a failure was taken"
if ! grep -q 'ended (exit code 3)' "$log" || ! grep -q 'a hint' "$log"; then
  fail "the program's message is not shown"
fi
[[ ! -e $TEST_TMPDIR/none ]] || fail "a directory was made for nothing"
"$catchment" train examples/mnist_mlp.textproto --program="$program" --out="$TEST_TMPDIR/none" >"$log" 2>&1 &&
  fail "a job with layers was taken"
grep -q "the program of --program defines both; remove them from the job file" "$log" || fail "the conflict is not named"
echo PASSED
