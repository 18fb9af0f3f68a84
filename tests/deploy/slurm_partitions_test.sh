#!/usr/bin/env bash
# deploy/slurm/servers.sbatch on one partition and workers.sbatch on another, whose jobs are preempted,
# submitted by `catchment slurm` and by hand, on a real Slurm (tests/deploy/slurm_cluster.sh):
#
#   bazel test //tests/deploy:slurm_partitions_test
set -euo pipefail
source tests/deploy/slurm_cluster.sh "$@"

# A job of the partition urgent takes cores of jobs on spot, which have some seconds to leave.
# shellcheck disable=SC2034  # start_slurm reads it
readonly partitions="PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=stable Nodes=n1 PriorityTier=2 PreemptMode=OFF MaxTime=30 Default=YES
PartitionName=spot Nodes=n2 PriorityTier=1 PreemptMode=REQUEUE GraceTime=60 MaxTime=30
PartitionName=urgent Nodes=n2 PriorityTier=2 PreemptMode=OFF MaxTime=30"
readonly slurm=$bundle/deploy/slurm catchment=$bundle/bin/catchment out=$work/out
cd "$work"
start_slurm

# Each step adds 1/1024 to the weights, whoever computes it, and takes its time until the file `go` is there, so
# that the job outlasts all that the test does to it, and ends soon after.
cat >program.py <<'END'
import array, os, time
import catchment
worker = catchment.join({"w": memoryview(array.array("f", [0.0] * 64))}, 640000)
for _ in worker.minibatches():
    if not os.path.exists(os.environ["GO"]):
        time.sleep(0.5)
    for i in range(64):
        worker.gradients["w"][i] = -1
    worker.step(0.5)
END
program="GO=$work/go PYTHONPATH=$work/python python3 $work/program.py"
pair=("$catchment" slurm --servers_partition=stable --workers_partition=spot --workers=2 --servers=2 --server_cores=1
  --program="$program" --out="$out" --set=batch_size=64 --set=epochs=1 --set=algorithm.preset=downpour
  --set=algorithm.compensation.none={} --set=optimizer.nesterov=false --set=optimizer.momentum=0
  --set=optimizer.learning_rate=0.0009765625 --set=optimizer.schedule.decay=CONSTANT --set=faults.standby=1)

# submit_pair FLAG...: sets servers and workers, the numbers of the two jobs.
submit_pair() {
  "${pair[@]}" --submit "$@" >"$work/submitted" 2>&1 || fail "not submitted: $(cat "$work/submitted")"
  read -r servers workers < <(sed -n 's/^submitted as Slurm jobs \([0-9]*\), .* and \([0-9]*\), .*/\1 \2/p' "$work/submitted")
}
# submit_workers FLAG...: by hand; prints the number of the job.
submit_workers() { submit --partition=spot --array=1 "$slurm/workers.sbatch" --program="$program" "$@"; }
# joins COUNT: whether workers have joined so often.
joins() { [[ $(grep -c "worker [0-9]* .* joined" "$out/logs/server-0.log") -ge $1 ]]; }
restarts() { scontrol show job "$1" | sed -n 's/.* Restarts=\([0-9]*\) .*/\1/p'; }
# returned NAME...: whether one of the array's tasks has left, and waits in the queue.
returned() {
  local task
  for task in "$@"; do if pending "$task" && [[ $(restarts "$task") -gt 0 ]]; then echo "$task" >"$work/returned"; return; fi; done
  return 1
}
runs() { [[ $(state "$1") == RUNNING ]]; }
server_pid() { pgrep -f "^[^ ]*bin/catchment_server .*--index=$1" | head -n 1; }
files() { sha256sum "$out/job.textproto" "$out/logs/validate.log" "$out/certs.$1"/{master,*/*}; }

echo "== a partition that does not exist is named, with those that do"
! "${pair[@]}" --workers_partition=spott --submit >"$work/polled" 2>&1 || fail "submitted to a partition that does not exist"
says "$work/polled" "no partition spott; it has spot, stable, urgent" || fail "$(cat "$work/polled")"
[[ -z $(squeue --noheader) && ! -e $out ]] || fail "something was submitted: $(squeue)"

echo "== servers on one partition and workers on the other train"
submit_pair
await "training begins" says "$out/logs/server-0.log" "training with 2 workers"
[[ $(worker_nodes) == n2 ]] || fail "workers are on $(worker_nodes)"
first_servers=$servers first_workers=$workers

echo "== a second submission with the same --out, and workers of another job, change nothing there"
before=$(files "$servers")
submit_pair --overwrite
await "job $servers ends" ended "$servers"
says "catchment-servers-$servers.log" "in use by another run on host" || fail "$(cat "catchment-servers-$servers.log")"
for task in 1 2; do
  await "task $task of job $workers ends" ended "${workers}_$task"
  [[ $(state "${workers}_$task") == FAILED ]] || fail "$(scontrol show job "${workers}_$task")"
  says "catchment-workers-${workers}_$task.log" "Slurm job $servers, that of the servers, has ended (FAILED)" ||
    fail "$(cat "catchment-workers-${workers}_$task.log")"
done
other=$(submit --partition=stable "$slurm/servers.sbatch" --workers=1 --out="$work/out-other" "$bundle/examples/drawn_digits.textproto")
await "job $other has begun" test -s "$work/out-other/certs.$other/master"
job=$(submit_workers --servers-job="$other" --out="$out")
await "job $job ends" ended "$job"
[[ $(last_line "$job") == *"$out belongs to the servers of Slurm job $first_servers, not to those of $other"* ]] ||
  fail "$(log "$job")"
scancel "$other"
await "job $other ends" ended "$other"
servers=$first_servers workers=$first_workers
[[ $(files "$servers") == "$before" ]] || fail "the directory was changed: $(ls -lR "$out")"
! joins 3 || fail "a worker of another job has joined: $(cat "$out/logs/server-0.log")"

echo "== a preempted worker leaves, the other one trains, and it joins again"
urgent=$(submit --partition=urgent --cpus-per-task=3 --wrap="sleep infinity")
await "a task waits again" returned "${workers}_1" "${workers}_2"
preempted=$(cat "$work/returned")
await "job $urgent has its place" runs "$urgent"
says "catchment-workers-$preempted.log" "left the run; the task returns to Slurm's queue, unless Slurm ends it" ||
  fail "$(cat "catchment-workers-$preempted.log")"
[[ $(grep -c "worker [0-9]* .* left" "$out/logs/server-0.log") -eq 1 ]] || fail "not one left: $(cat "$out/logs/server-0.log")"
"$catchment" status "$out" >"$work/status" || fail "no status: $(cat "$work/status")"
says "$work/status" "workers: 1 of 2" || fail "not one worker: $(cat "$work/status")"
scancel "$urgent"
start_again "$preempted"
await "the worker is back" joins 3

echo "== so does one whose task is requeued"
other=${workers}_$((${preempted#*_} % 2 + 1))
scontrol requeue "$other"
await "task $other waits again" returned "$other"
runs "$preempted" || fail "task $preempted went with it: $(squeue)"
start_again "$other"
await "the worker is back" joins 4
[[ $(grep -c "joining the run of Slurm job $servers" "catchment-workers-$other.log") -eq 2 ]] ||
  fail "$(cat "catchment-workers-$other.log")"

echo "== a task leaves before its time limit, and joins again; a cancelled one does not"
# As Slurm does by --signal.
scancel --batch --signal=TERM "$preempted"
await "task $preempted waits again" pending "$preempted"
runs "$other" || fail "task $other went with it: $(squeue)"
start_again "$preempted"
await "the worker is back" joins 5
job=$(submit_workers --servers-job="$servers" --out="$out")
await "another worker trains" joins 6
scancel "$job"
await "job $job ends" ended "$job"
cancelled=$job

echo "== a server that is killed returns in its place, without a loss"
kill -KILL "$(server_pid 1)"
await "server 1 is back" says "$out/logs/server-0.log" "server 1 was lost, and has restored its shard"

echo "== servers that Slurm requeues continue, and their workers find them again"
scontrol requeue "$servers"
await "job $servers waits again" pending "$servers"
await "a worker waits" says "catchment-workers-$preempted.log" "waiting for the servers of Slurm job $servers (PENDING)"
start_again "$servers"
await "the workers are back" joins 8

echo "== the job ends, with each sample trained once"
touch "$work/go"
await "job $servers ends" ended "$servers"
[[ $(state "$servers") == COMPLETED ]] || fail "job $servers: $(cat "catchment-servers-$servers.log")"
expect_summary "$out" '"phase": "DONE"' '"samples": 640000' '"updates_computed_again": 0'
python3 - "$out/model.safetensors" <<'END' || fail "steps were lost or counted twice"
import array, json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
begin, end = json.loads(data[8 : 8 + size])["w"]["data_offsets"]
weights = array.array("f", data[8 + size + begin : 8 + size + end])
print(weights[0] * 1024, "steps of 10000")
assert set(weights) == {10000 / 1024}, set(weights)
END
for task in 1 2; do
  await "task $task ends" ended "${workers}_$task"
  [[ $(state "${workers}_$task") == COMPLETED ]] || fail "task $task: $(cat "catchment-workers-${workers}_$task.log")"
done
[[ -z $(compgen -G "$out/certs*") ]] || fail "certificates are left: $(ls "$out")"
await "no daemon is left" no_daemons

[[ $(state "$cancelled") == CANCELLED ]] || fail "job $cancelled: $(scontrol show job "$cancelled")"

echo "== workers that come too late end with a sentence"
job=$(submit_workers --servers-job="$servers" --out="$out")
await "job $job ends" ended "$job"
[[ $(state "$job") == COMPLETED && $(last_line "$job") == *"the job in $out is DONE; no worker is needed" ]] || fail "$(log "$job")"
job=$(submit_workers --servers-job=4711 --out="$work/nowhere")
await "job $job ends" ended "$job"
[[ $(exit_code "$job") == 1 && $(last_line "$job") == *"has ended (no longer known to Slurm): there is no run in "* ]] ||
  fail "$(log "$job")"
echo PASSED
