#!/usr/bin/env bash
# deploy/pbs/catchment.pbs with real daemons on two addresses of this machine. PBS itself is a stand-in, for
# Debian has no package of it. The stand-in does what the manual pages of OpenPBS say of qsub, pbs_tmrsh,
# qstat and qdel; tasks are sessions with an environment of PBS, not with that of the script.
set -euo pipefail
source tests/deploy/check.sh

readonly work=$TEST_TMPDIR/work
readonly stubs=$TEST_TMPDIR/stubs
mkdir -p "$work/bin" "$work/tasks" "$stubs"
for program in cli/catchment server/catchment_server worker/catchment_worker; do
  ln -s "$PWD/$program" "$work/bin"
done
readonly script=deploy/pbs/catchment.pbs
printf '%s\n' 127.0.0.2 127.0.0.2 127.0.0.3 127.0.0.3 >"$work/nodes"

stub qstat <<END
cat "$work/attributes"
END
# Notes the session of each task, by which qdel finds it.
cat >"$stubs/pbs_tmrsh" <<END
#!/usr/bin/env python3
import os, signal, subprocess, sys
host, command = sys.argv[1], sys.argv[2:]
assert host in open(os.environ["PBS_NODEFILE"]).read().split(), f"pbs_tmrsh: {host} is not a node of the job"
environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "PBS_JOBID": os.environ["PBS_JOBID"]}
if os.path.exists("$work/visible_gpus"):
    environment["CUDA_VISIBLE_DEVICES"] = open("$work/visible_gpus").read()
signals = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
defaults = lambda: [signal.signal(number, signal.SIG_DFL) for number in signals]
task = subprocess.Popen(command, cwd="/", env=environment, start_new_session=True, preexec_fn=defaults)
if command[0] != "kill":
    open(f"$work/tasks/{task.pid}", "w").close()
sys.exit(abs(task.wait()))
END
chmod +x "$stubs/pbs_tmrsh"

# attributes LINE...: what qstat tells of the job.
attributes() { printf '    %s\n' "$@" >"$work/attributes"; }

# qsub FLAG...: starts the script. Sets job, its process, whose output is in $work/output.
qsub() {
  rm -f "$work/tasks/"* "$work/output"
  env PATH="$stubs:$PATH" PBS_JOBID=12.pbs PBS_NODEFILE="$work/nodes" PBS_O_WORKDIR="$work" NCPUS=4 MARK=passed \
    CUDA_VISIBLE_DEVICES=of-the-first-host setsid "$script" --bin="$work/bin" "$@" >"$work/output" 2>&1 &
  job=$!
}

# Signals all processes of the job.
qdel() {
  local task
  for task in "$work/tasks/"*; do kill "-$1" -- "-${task##*/}" 2>/dev/null || true; done
  # Until its session has begun, it is a process.
  kill "-$1" -- "-$job" 2>/dev/null || kill "-$1" "$job" 2>/dev/null || true
}
clean_up() {
  local status=$?
  qdel KILL
  (exit "$status")
  finish
}
trap clean_up EXIT

# ends_with CODE: waits for the script.
ends_with() {
  status=0
  wait "$job" || status=$?
  output=$(cat "$work/output")
  expect_status "$1"
}

# await WHAT COMMAND...: until the command succeeds, or the job has ended.
await() {
  local what=$1
  shift
  until "$@"; do
    kill -0 "$job" 2>/dev/null || { fail "$what: the job has ended: $(cat "$work/output")"; return; }
    sleep 0.1
  done
}
said() { grep -qs -- "$1" "$work/output"; }
logged() { grep -qs -- "$2" "$work/out/logs/$1"; }
# program TEXT: the number of a daemon whose command line has the text.
program() { pgrep -f "^$work/bin/catchment_[a-z]* .*$1" | head -n 1; }

cat >"$work/short.textproto" <<'END'
name: "short"
model { synthetic { parameters: 2000 step_ms: 1 } }
data { synthetic { samples: 400 } }
batch_size: 2
epochs: 1
END
sed 's/epochs: 1/epochs: 1000000/' "$work/short.textproto" >"$work/endless.textproto"
attributes "run_count = 1"

run "$script" --help
expect_status 0
expect_output "qsub [PBS'S OPTIONS] -- deploy/pbs/catchment.pbs"
expect_no_output "shellcheck"
run "$script" job.textproto
expect_status 2
expect_output "is started with qsub"
run "$script" --requeue-at-limit job.textproto
expect_status 2
expect_output "depend=afterany"
cp "$script" "$work/copy"
run "$work/copy" job.textproto
expect_status 1
expect_output "start the original"

echo "== without certificates it ends, and leaves nothing in the way of the next one"
stub openssl <<<"exit 1"
qsub --out=out short.textproto
ends_with 1
expect_output "cannot make certificates"
rm "$stubs/openssl"

echo "== two servers and four workers on both hosts"
qsub --out=out --overwrite short.textproto
ends_with 0
expect_output "catchment.pbs: done: $work/out/summary.json"
expect_output "2 servers, the master at 127.0.0.2:"
expect_true "server 1 is not on the second host" logged server-1.log "listening on 127.0.0.3:"
for text in '"phase": "DONE"' '"workers": 4' '"servers": 2'; do
  grep -q "$text" "$work/out/summary.json" || fail "the summary lacks $text"
done
[[ ! -e $work/out/certs.12 ]] || fail "the certificates are left"

echo "== another job's directory"
qsub --out=out short.textproto
ends_with 1
expect_output "resume from it with --resume"

echo "== what a signal ends is started again; qdel ends the job in order"
attributes "run_count = 1" "Resource_List.walltime = 01:00:00"
qsub --out=out --overwrite --no-evaluator endless.textproto
await "it trains" said "training with 4 workers"
worker=$(program certs.12/worker)
grep -qz "^MARK=passed$" "/proc/$worker/environ" || fail "a worker lacks the environment of the job"
grep -qz "^CUDA_VISIBLE_DEVICES=" "/proc/$worker/environ" && fail "a worker has the first host's GPUs"
kill -KILL "$worker"
kill -KILL "$(program --index=1)"
await "the job goes back" logged server-0.log "server 1 was lost at version"
await "server 1 is started again" said "signal 9 ended server 1; started again at 127.0.0.3:"
await "a worker is started again" grep -qs "signal 9 ended catchment_worker; started again" "$work"/out/logs/worker-{0,1,2,3}.log
qdel TERM
ends_with 143
expect_output "stopping the job gracefully"
expect_output "ended before its budget was spent"
grep -q '"phase": "STOPPED"' "$work/out/summary.json" || fail "the job was not stopped in order"

echo "== PBS runs it again, and it continues"
attributes "run_count = 2" "Resource_List.walltime = 01:00:00"
qsub --out=out --overwrite --no-evaluator endless.textproto
await "it continues" said "resuming from checkpoint"
await "it trains" said "training with"
qdel TERM
ends_with 143

echo "== the walltime ends it, however soon"
attributes "run_count = 1" "Resource_List.walltime = 00:00:02"
qsub --out=out --resume=auto --no-evaluator endless.textproto
status=0
wait "$job" || status=$?
output=$(cat "$work/output")
[[ $status -ne 0 ]] || fail "exit code 0"
expect_output "the walltime is almost over"
expect_output "stopping the job gracefully"

echo "== a worker for two GPUs of each host"
attributes "run_count = 1" "Resource_List.ngpus = 8"
echo -n GPU-a,GPU-b,GPU-c,GPU-d >"$work/visible_gpus"
qsub --out=gpus --gpus-per-worker=2 --device=cpu --no-evaluator endless.textproto
await "it trains" said "training with 4 workers"
for task in 0 1 2 3; do
  session=$(<"$work/gpus/certs.12/tasks/workers.$task")
  worker=$(pgrep -s "$session" catchment_worke | head -n 1)
  tr '\0' '\n' <"/proc/$worker/environ" | sed -n 's/^CUDA_VISIBLE_DEVICES=//p'
done >"$work/visible"
[[ $(sort "$work/visible" | uniq -c | tr -s ' ' | tr '\n' ';') == " 2 GPU-a,GPU-b; 2 GPU-c,GPU-d;" ]] ||
  fail "workers see $(tr '\n' ' ' <"$work/visible")"
qdel TERM
ends_with 143
