#!/usr/bin/env bash
# deploy/slurm/catchment.sbatch, and `catchment compare --launcher=slurm`, which submits it, on a real Slurm
# (tests/deploy/slurm_cluster.sh):
#
#   bazel test //tests/deploy:slurm_test
#
# Trains on MNIST from $CATCHMENT_DATA/mnist.
set -euo pipefail
[[ -s ${CATCHMENT_DATA:-}/mnist/train-images-idx3-ubyte.gz ]] ||
  { echo "SKIPPED: needs MNIST in \$CATCHMENT_DATA/mnist; deploy/fetch_mnist.sh fetches it"; exit 0; }
source tests/deploy/slurm_cluster.sh "$@"

readonly script=$bundle/deploy/slurm/catchment.sbatch
readonly mlp=$bundle/examples/mnist_mlp.textproto
readonly digits=$bundle/examples/drawn_digits.textproto
cd "$work"
start_slurm

echo "== MNIST, two servers and three workers over both nodes"
job=$(submit --nodes=2 --ntasks=3 "$script" --servers=2 --set epochs=2 --out="$work/out" "$mlp")
await_training "$job"
[[ $(worker_nodes) == "n1 n2" ]] || fail "workers are on $(worker_nodes), not on both nodes"
await "job $job ends" ended "$job"
[[ $(state "$job") == COMPLETED && $(exit_code "$job") == 0 ]] || fail "job $job: $(scontrol show job "$job"; log "$job")"
expect_summary "$work/out" '"phase": "DONE"' '"servers": 2' '"workers": 3' '"epochs": 2'
accuracy=$(sed -n 's/.*"test_accuracy": \([0-9.]*\).*/\1/p' "$work/out/summary.json")
awk "BEGIN { exit !($accuracy > 0.95) }" || fail "test accuracy $accuracy"
[[ -s $work/out/model.safetensors ]] || fail "no weights"
grep -q "listening on 10.213.78.11:" "$work/out/logs/server-0.log" || fail "server 0 is not on n1"
grep -q "listening on 10.213.78.12:" "$work/out/logs/server-1.log" || fail "server 1 is not on n2"
for task in 0 1 2; do [[ -s $work/out/logs/worker-$task.log ]] || fail "worker $task has no log"; done
for text in "status --watch $(master "$job") --certs=$work/out/certs.$job/operator" "epoch 2.00: test accuracy" \
  "/120,000 samples | " "the job is DONE (exit code 0)"; do
  says "$work/job-$job.log" "$text" || fail "the job's log does not have '$text': $(log "$job")"
done
await "no daemon is left" no_daemons

echo "== two jobs that share the nodes: each its own ports; cancelled, everything ends"
long=(--set epochs=1000000 "$digits")
a=$(submit --nodes=2 --ntasks=2 --oversubscribe "$script" --out="$work/out-a" "${long[@]}")
b=$(submit --nodes=2 --ntasks=2 --oversubscribe "$script" --out="$work/out-b" "${long[@]}")
await_training "$a"
await_training "$b"
[[ $(master "$a") != "$(master "$b")" ]] || fail "both masters are at $(master "$a")"
scancel "$a"
await "job $a ends" ended "$a"
[[ $(state "$a") == CANCELLED ]] || fail "job $a is $(state "$a")"
expect_summary "$work/out-a" '"phase": "STOPPED"' "Slurm job $a was cancelled"
trains "$b" >/dev/null || fail "job $b does not outlive job $a"

echo "== signaled before its time limit: it ends in order with a checkpoint, from which the next job resumes"
scancel --batch --signal=TERM "$b"
await "job $b ends" ended "$b"
[[ $(exit_code "$b") == 143 ]] || fail "exit code $(exit_code "$b"), not 143; $(log "$b")"
expect_summary "$work/out-b" '"phase": "STOPPED"'
await "no daemon is left" no_daemons
job=$(submit --nodes=2 --ntasks=2 "$script" --out="$work/out-b" --resume=auto "${long[@]}")
await_training "$job"
grep -q "resuming from checkpoint" "$work/out-b/logs/server-1.log" ||
  fail "server 1 does not go on from a checkpoint"
scancel "$job"
await "no daemon is left" no_daemons

# program TEXT: the number of a process of a bundle's program whose command line has the text; not that of a
# shell or srun.
program() { pgrep -f "^[^ ]*bin/catchment_[a-z]* .*$1" | head -n 1; }
# The time of a step does not depend on the machine, so that the job trains for a minute at least.
cat >"$work/minute.textproto" <<'END'
name: "minute"
model { synthetic { parameters: 20000 step_ms: 20 } }
data { synthetic { samples: 12000 } }
algorithm { preset: "downpour" }
batch_size: 2
epochs: 1
block_kib: 16
checkpoint { every_updates: 50 }
END
minute=("$script" --servers=2 "$work/minute.textproto")

echo "== what a signal ends is started again inside the allocation, and the job goes back to its last checkpoint"
out=$work/out-f
job=$(submit --nodes=2 --ntasks=2 "${minute[@]}" --out="$out")
await "a checkpoint of job $job" compgen -G "$out/checkpoints/*/manifest.textproto"
kill -KILL "$(program "--index=1 .*--out=$out")"
await "server 1 is back" says "$out/logs/server-0.log" "server 1 was lost at version"
kill -KILL "$(program "--index=0 .*--out=$out")"
await "the master is back" says "$out/logs/server-0.log" "the master was lost at version"
kill -KILL "$(program --threads=)"
await "the worker is back" grep -qF "signal 9 ended catchment_worker; started again" "$out"/logs/worker-{0,1}.log
await "job $job ends" ended "$job"
[[ $(state "$job") == COMPLETED ]] || fail "job $job: $(scontrol show job "$job"; log "$job")"
expect_summary "$out" '"phase": "DONE"' '"samples": 12000' '"recoveries": 2' '"updates_computed_again"'
for server in 0 1; do says "$work/job-$job.log" "signal 9 ended server $server; started again at" || fail "$(log "$job")"; done
await "no daemon is left" no_daemons

echo "== a node is lost: Slurm requeues the job, which continues from its last checkpoint and trains its budget"
out=$work/out-g
job=$(submit --nodes=2 --ntasks=2 "${minute[@]}" --out="$out")
await "a checkpoint of job $job" compgen -G "$out/checkpoints/*/manifest.textproto"
lose_node n2
await "job $job waits again" pending "$job"
await "no daemon is left" no_daemons
start_node n2
await "both nodes idle" both_idle
start_again "$job"
await "job $job ends" ended "$job"
[[ $(state "$job") == COMPLETED ]] || fail "job $job: $(scontrol show job "$job"; log "$job")"
expect_summary "$out" '"phase": "DONE"' '"samples": 12000'
says "$out/logs/server-0.log" "resuming from checkpoint" || fail "job $job did not continue from a checkpoint"
[[ $(log "$job" | grep -c "the master at") -eq 2 ]] || fail "the log does not have both starts: $(log "$job")"
await "no daemon is left" no_daemons

echo "== a requeued job goes on by itself"
job=$(submit --nodes=1 --ntasks=1 "$script" --out="$work/out-c" "${long[@]}" --set checkpoint.every_updates=50)
await "a checkpoint of job $job" compgen -G "$work/out-c/checkpoints/*/manifest.textproto"
scontrol requeue "$job"
await "job $job waits again" pending "$job"
start_again "$job"
await "job $job goes on" grep -q "resuming from checkpoint" "$work/out-c/logs/server-0.log"
scancel "$job"
await "no daemon is left" no_daemons

echo "== at its time limit a job ends in order, returns to the queue, and continues"
out=$work/out-limit
job=$(submit --time=2 --nodes=1 --ntasks=1 "$script" --requeue-at-limit --out="$out" "${long[@]}")
await_training "$job"
# As Slurm does by --signal, up to a minute earlier.
scancel --batch --signal=TERM "$job"
await "job $job waits again" pending "$job"
expect_summary "$out" '"phase": "STOPPED"'
start_again "$job"
await "job $job goes on" grep -q "resuming from checkpoint" "$out/logs/server-0.log"
scancel "$job"
await "no daemon is left" no_daemons

echo "== \`catchment slurm\` submits, and a script that it has printed starts an earlier run anew"
out=$work/out-s
of_digits=(slurm "$digits" --nodes=2 --workers=2 --set=epochs=1 --out="$out" --sbatch_flag=--output="$work/job-%j.log")
job=$("$bundle/bin/catchment" "${of_digits[@]}" --submit | sed -n 's/^submitted as Slurm job \([0-9]*\),.*/\1/p')
await "job $job ends" ended "$job"
[[ $(state "$job") == COMPLETED ]] || fail "job $job: $(scontrol show job "$job"; log "$job")"
expect_summary "$out" '"phase": "DONE"' '"servers": 2' '"workers": 2'
! "$bundle/bin/catchment" "${of_digits[@]}" --submit >"$work/polled" 2>&1 || fail "a finished run is not in the way"
says "$work/polled" "contains the result of a finished run" || fail "$(cat "$work/polled")"
"$bundle/bin/catchment" "${of_digits[@]}" --overwrite >"$work/job.sh" || fail "no script"
job=$(submit "$work/job.sh")
await "job $job ends" ended "$job"
[[ $(state "$job") == COMPLETED ]] || fail "job $job: $(scontrol show job "$job"; log "$job")"
expect_summary "$out" '"phase": "DONE"'
[[ $(grep -c "listening on" "$out/logs/server-0.log") -eq 1 ]] || fail "the log of the earlier run is left"
await "no daemon is left" no_daemons

echo "== one worker for each GPU"
job=$(submit --nodes=2 --gpus-per-node=2 "$script" --no-evaluator --set device=CPU --set epochs=1 --out="$work/out-gpu" "$digits")
await "job $job ends" ended "$job"
[[ $(exit_code "$job") == 0 ]] || fail "job $job: $(log "$job")"
expect_summary "$work/out-gpu" '"workers": 4'

echo "== one worker for two GPUs"
job=$(submit --nodes=2 --gpus-per-node=2 "$script" --gpus-per-worker=2 --no-evaluator --set device=CPU --set epochs=1 \
  --out="$work/out-gpus" "$digits")
await "job $job ends" ended "$job"
[[ $(exit_code "$job") == 0 ]] || fail "job $job: $(log "$job")"
expect_summary "$work/out-gpus" '"workers": 2'

echo "== a program with a model of its own, without a job file; resumed, it is not asked for its model again"
cat >"$work/program.py" <<'END'
import array, os
import catchment
if os.environ.get("CATCHMENT_DESCRIBE"):
    print("asked for the model", file=open("asked", "a"))
worker = catchment.join({"w": memoryview(array.array("f", [0.0] * 64))}, 640)
for _ in worker.minibatches():
    for i in range(64):
        worker.gradients["w"][i] = worker.parameters["w"][i] - 1
    worker.step(0.5)
END
program="PYTHONPATH=$work/python python3 $work/program.py"
job=$(submit --nodes=2 --ntasks=2 "$script" --out="$work/out-program" --program="$program" --set epochs=2)
await "job $job ends" ended "$job"
[[ $(exit_code "$job") == 0 ]] || fail "job $job: $(log "$job")"
expect_summary "$work/out-program" '"phase": "DONE"' '"workers": 2' '"samples": 1280'
[[ ! -e $work/out-program/logs/evaluator.log ]] || fail "an evaluator was started, and there is no test set"
job=$(submit --nodes=1 --ntasks=1 "$script" --out="$work/out-program" --program="$program" --resume --set epochs=4)
await "job $job ends" ended "$job"
[[ $(exit_code "$job") == 0 ]] || fail "job $job: $(log "$job")"
expect_summary "$work/out-program" '"phase": "DONE"' '"samples": 2560'
[[ $(wc -l <"$work/asked") -eq 1 ]] || fail "the program was asked for its model $(wc -l <"$work/asked") times"

echo "== without any worker left the job fails"
job=$(submit --nodes=2 --ntasks=2 "$script" --out="$work/out-e" "${long[@]}")
await_training "$job"
# With the shells that would start them again.
pkill -KILL -f bin/catchment_worker
await "job $job ends" ended "$job"
[[ $(exit_code "$job") == 1 ]] || fail "exit code $(exit_code "$job"), not 1: $(log "$job")"
[[ $(last_line "$job") == *"no worker is left"* ]] || fail "the log does not say why: $(log "$job")"
await "no daemon is left" no_daemons

echo "== every task of a job array trains, also from a folder with a space in its name"
mkdir "$work/my folder"
cp -r "$bundle" "$work/my folder/bundle"
array=$(submit --nodes=1 --ntasks=1 --array=0-1 "$work/my folder/bundle/deploy/slurm/catchment.sbatch" --no-evaluator \
  --set epochs=1 --out="$work/out-array-%a" "$digits")
for task in 0 1; do
  await "task $task of job $array ends" ended "${array}_$task"
  expect_summary "$work/out-array-$task" '"phase": "DONE"'
done
await "no daemon is left" no_daemons

echo "== at its time limit a task of an array returns without the others, also one with the number of the array"
array=$(submit --nodes=1 --ntasks=1 --array=0-1 "$script" --no-evaluator --requeue-at-limit --out="$work/out-task-%a" \
  "${long[@]}")
for job in "$array" $((array + 1)); do await "job $job trains" trains "$job"; done
minutes=$(squeue --noheader --jobs="${array}_1" --format=%M | cut -d: -f1)
scontrol update JobId="${array}_1" TimeLimit=$((minutes + 2))
scancel --batch --signal=TERM "${array}_1"
await "task 1 waits again" pending "${array}_1"
expect_summary "$work/out-task-1" '"phase": "STOPPED"'
trains $((array + 1)) >/dev/null || fail "task 0 went with it: $(log $((array + 1)))"
scancel "$array"
await "no daemon is left" no_daemons

echo "== a second job with the same --out ends before it changes anything there"
out=$work/out-same
a=$(submit --nodes=2 --ntasks=2 --oversubscribe "$script" --servers=2 --out="$out" --set checkpoint.every_updates=50 \
  "${long[@]}")
await_training "$a"
before=$(sha256sum "$out/job.textproto" "$out/logs/validate.log" "$out/certs.$a"/*/*)
array=$(submit --nodes=1 --ntasks=1 --oversubscribe --array=0-1 "$script" --out="$out" --set epochs=1 "$digits")
for task in 0 1; do
  await "task $task of job $array ends" ended "${array}_$task"
  [[ $(exit_code "${array}_$task") == 1 ]] || fail "task $task: $(scontrol show job "${array}_$task")"
done
for job in "$work"/job-{"$array",$((array + 1))}.log; do
  [[ $(tail -n 1 "$job") == *"in use by another run on host "*"wait until it has ended"* ]] || fail "$job: $(cat "$job")"
done
[[ $(sha256sum "$out/job.textproto" "$out/logs/validate.log" "$out/certs.$a"/*/*) == "$before" ]] ||
  fail "a job that did not start has changed the directory: $(ls -lR "$out")"
kill -KILL "$(program --index=1)"
await "server 1 is back" says "$work/job-$a.log" "signal 9 ended server 1; started again at"
await "the job goes back" says "$out/logs/server-0.log" "the job goes back to"
await "status finds the certificates" "$bundle/bin/catchment" status "$out"
await_training "$a"
"$bundle/bin/catchment" stop "$out" --reason="enough" >"$work/stop.log" || fail "stop: $(cat "$work/stop.log")"
await "job $a ends" ended "$a"
expect_summary "$out" '"phase": "STOPPED"'
[[ $(last_line "$a") == *"ended before its budget was spent: enough" ]] || fail "no reason in $(log "$a")"
[[ -z $(compgen -G "$out/certs*") ]] || fail "certificates are left: $(ls "$out")"

echo "== what cannot train says so in its last line"
job=$(submit --nodes=1 "$script" --out="$out" "$digits")
await "job $job ends" ended "$job"
[[ $(last_line "$job") == *"resume from it with --resume"* ]] || fail "the remedy is not named: $(log "$job")"
job=$(submit --nodes=1 "$script" --out="$work/out-none" --resume "$digits")
await "job $job ends" ended "$job"
[[ $(last_line "$job") == *"checkpoint"* ]] || fail "the reason is not named: $(log "$job")"
job=$(submit --nodes=1 "$script" --out="$work/out-d" --set optimizer.momentum=2 "$digits")
await "job $job ends" ended "$job"
[[ $(state "$job") == FAILED && $(exit_code "$job") == 1 ]] || fail "job $job: $(state "$job") $(exit_code "$job")"
[[ $(last_line "$job") == *"optimizer.momentum"* ]] || fail "the log does not name the field: $(log "$job")"

echo "== a comparison, each run a job: killed, it finds its jobs again; those that a node's loss ended are submitted again"
compare=("$bundle/bin/catchment" compare "$work/minute.textproto" --launcher=slurm --nodes=2 "--algorithms=downpour,easgd"
  --workers=2 --seeds=1 --search=none --servers=2 --budget=samples:3000 --out="$work/out-compare")
# twice TEXT FILE: whether two lines of a file have the text.
twice() { [[ $(grep -cF "$1" "$2" 2>/dev/null) -eq 2 ]]; }
both_run() {
  local names=downpour-2-workers-seed-1,easgd-2-workers-seed-1
  [[ $(squeue --noheader --states=running --name="$names" | wc -l) -eq 2 ]]
}
gone() { ! kill -0 "$1" 2>/dev/null; }
scontrol update PartitionName=main State=DOWN
"${compare[@]}" >"$work/compare-1.log" 2>&1 &
pid=$!
await "both runs are submitted" twice "submitted as Slurm job" "$work/compare-1.log"
kill -KILL "$pid"
wait "$pid" || true
"${compare[@]}" >"$work/compare-2.log" 2>&1 &
pid=$!
await "both jobs are found" twice "already" "$work/compare-2.log"
says "$work/compare-2.log" "submitted as" && fail "a run is submitted twice: $(cat "$work/compare-2.log")"
scontrol update PartitionName=main State=UP
await "both runs are started" both_run
lose_node n2
await "both runs are submitted again" twice "submitted as Slurm job" "$work/compare-2.log"
twice "was lost (NODE_FAIL)" "$work/compare-2.log" ||
  fail "the loss is not named: $(cat "$work/compare-2.log")"
start_node n2
await "the comparison ends" gone "$pid"
wait "$pid" || fail "the comparison: exit code $?: $(cat "$work/compare-2.log")"
python3 - "$work/out-compare/report.json" <<'END' || fail "the report: $(cat "$work/compare-2.log")"
import json, sys
report = json.load(open(sys.argv[1]))
runs = {run["algorithm"]: run for run in report["runs"]}
assert runs.keys() == {"downpour", "easgd"}, runs.keys()
assert all(run["done"] and run["samples"] >= 3000 for run in runs.values()), runs
assert report["machine"] is None, report["machine"]
END
for run in downpour easgd; do
  expect_summary "$work/out-compare/runs/$run-2-workers-seed-1" '"phase": "DONE"' '"workers": 2' \
    '"servers": 2'
  [[ ! -e $work/out-compare/runs/$run-2-workers-seed-1/checkpoints ]] ||
    fail "the checkpoints of $run are still there"
done
timeout "$patience" "${compare[@]}" >"$work/compare-3.log" 2>&1 ||
  fail "started again: $(cat "$work/compare-3.log")"
says "$work/compare-3.log" "2 of 2 runs are already done" || fail "it does not say what was there"
says "$work/compare-3.log" "submitted as" && fail "a run that was done was submitted again"
await "no daemon is left" no_daemons

echo "== a comparison with a GPU for each worker, on as many nodes as that needs"
timeout "$patience" "$bundle/bin/catchment" compare "$digits" --launcher=slurm --nodes=2 --gpus-per-node=2 \
  --algorithms=sync --workers=1,4 --seeds=1 --search=none --budget=samples:2000 --set device=CPU \
  --out="$work/out-compare-gpu" >"$work/compare-gpu.log" 2>&1 ||
  fail "$(cat "$work/compare-gpu.log")"
for workers in 1 4; do
  expect_summary "$work/out-compare-gpu/runs/sync-$workers-workers-seed-1" '"phase": "DONE"' \
    "\"workers\": $workers"
done
[[ $(grep -c '"done": true' "$work/out-compare-gpu/report.json") -eq 2 ]] || fail "the report lacks a run"

echo "== a comparison in a directory that the nodes do not see ends with the remedy"
mkdir "$work/private"
# shellcheck disable=SC2016  # the inner shell expands its arguments
timeout "$patience" unshare \
  --mount bash -c 'mount -t tmpfs private "$1" && shift && exec "$@"' - "$work/private" \
  "${compare[@]}" --out="$work/private/out" >"$work/compare-4.log" 2>&1 &&
  fail "it takes a directory that is not shared"
says "$work/compare-4.log" "choose an --out on a file system that this machine and all nodes share" ||
  fail "the reason is not named: $(cat "$work/compare-4.log")"
echo PASSED
