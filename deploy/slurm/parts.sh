# shellcheck shell=bash
# What the scripts of Slurm and ../pbs/catchment.pbs have in common; they source it. It wants
#   script     the name of the script, which determines what it says and which flags it has
#   parts      the path of this file
# shellcheck disable=SC2154

shopt -s extglob
readonly most_restarts=5  # of each server and of each task of a worker

# Daemons have these seconds to end by themselves when the job is over; a program may still do something.
leave_seconds=30

# This job for Slurm's commands: the number of an array's last task is that of the array, with all of its tasks.
slurm_job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID:-0}}
slurm_job=${slurm_job:-${SLURM_JOB_ID:-}}

say() { echo "$script: $*"; }

die() {
  echo "$script: $1" >&2
  exit "${2:-1}"
}

# The script's own comment.
usage() { sed -n '2,/^set /{/^#SBATCH/d;/^set /d;s/^# \{0,1\}//;p}' "$0"; }

# has FLAG: succeeds unless the flag belongs to another of the scripts.
has() {
  case "$script $1" in
    *" --workers="*) [[ $script == servers.sbatch ]] ;;
    *" --servers-job="*) [[ $script == workers.sbatch ]] ;;
    "servers.sbatch --"@(threads|device|gpus?per?worker)=*) false ;;
    "workers.sbatch --"@(servers|set|server?flag|evaluator|no-evaluator|resume|overwrite|requeue-at-limit)?(=*)) false ;;
  esac
}

refuse_flag() {
  die "no such flag: $1; --worker-flag=$1 or --server-flag=$1 passes it to the daemons; --help lists them" 2
}

read_flags() {
  out=
  [[ $script == workers.sbatch ]] || out=catchment-${SLURM_JOB_ID:-}
  servers=${SLURM_JOB_NUM_NODES:-}
  servers_job=
  workers=
  evaluator=yes
  resume=()
  overwrite=()
  requeue=no
  changes=()
  bin=
  program=()
  server_flags=()
  worker_flags=()
  insecure=no
  given_threads=
  gpus_per_worker=1
  job=
  while [[ $# -gt 0 ]]; do
    has "$1" || refuse_flag "$1"
    case $1 in
      --out=?*) out=${1#*=} ;;
      --servers=*) servers=${1#*=} ;;
      --servers-job=?*) servers_job=${1#*=} ;;
      --workers=*) workers=${1#*=} ;;
      --set=?*) changes+=(--set "${1#*=}") ;;
      --set) [[ $# -gt 1 ]] || die "--set takes PATH=VALUE" 2; changes+=(--set "$2"); shift ;;
      --program=?*) program=("$1"); leave_seconds=75 ;;
      --server-flag=?* | --server_flag=?*) server_flags+=("${1#*=}") ;;
      --worker-flag=?* | --worker_flag=?*) worker_flags+=("${1#*=}") ;;
      --device=?* | --stage=?*) worker_flags+=("$1") ;;
      --threads=*) given_threads=${1#*=} ;;
      --trace=?* | --metrics_port=?* | --metrics-port=?*) server_flags+=("$1"); worker_flags+=("$1") ;;
      --gpus-per-worker=* | --gpus_per_worker=*) gpus_per_worker=${1#*=} ;;
      --no-evaluator | --evaluator=false) evaluator=no ;;
      --insecure) insecure=yes ;;
      --resume | --resume=auto) resume=("$1") ;;
      --requeue-at-limit) requeue=yes ;;
      --bin=?*) bin=${1#*=} ;;
      --help | -h) usage; exit 0 ;;
      --overwrite) overwrite=("$1") ;;
      -*) refuse_flag "$1" ;;
      *) [[ -z $job ]] || die "takes one job, and got $job and $1" 2; job=$1 ;;
    esac
    shift
  done
  out=${out//%a/${SLURM_ARRAY_TASK_ID:-}}
  if [[ $script == workers.sbatch ]]; then
    [[ -z $job ]] || die "takes no job, and got $job: the servers have it" 2
    [[ -n $servers_job ]] || die "--servers-job=JOBID is required, the number of the Slurm job of servers.sbatch" 2
    [[ -n $out ]] || die "--out=DIR is required, the directory of the servers" 2
  elif [[ -z $job && ${#program[@]} -eq 0 ]]; then
    die "takes a job file; --help shows how" 2
  fi
  [[ $script != servers.sbatch || $workers =~ ^[1-9][0-9]*$ ]] ||
    die "--workers=N is required, the workers with which training begins" 2
  [[ -n ${SLURM_JOB_ID:-} ]] || die "is started with sbatch; --help shows how" 2
  [[ $servers =~ ^[1-9][0-9]*$ ]] || die "--servers=$servers is not a positive number" 2
  [[ -z $given_threads || $given_threads =~ ^[1-9][0-9]*$ ]] ||
    die "--threads=$given_threads is not a positive number" 2
  [[ $gpus_per_worker =~ ^[1-9][0-9]*$ && $((${SLURM_GPUS_ON_NODE:-0} % gpus_per_worker)) -eq 0 ]] ||
    die "--gpus-per-worker=$gpus_per_worker does not divide the ${SLURM_GPUS_ON_NODE:-0} GPUs of a node" 2
}

find_programs() {
  scripts=$(realpath "$(dirname "$parts")/..")
  bin=${bin:-$scripts/../bin}
  [[ -x $bin/catchment_server ]] || die "no programs in $bin: start the script from a bundle \
(deploy/bundle.sh), or give --bin"
  bin=$(realpath "$bin")
}

# Sets nodes and addresses: the names, and what Slurm itself reaches them by.
find_nodes() {
  local node address
  addresses=()
  mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  for node in "${nodes[@]}"; do
    address=$(scontrol --oneliner show node "$node" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
    addresses+=("${address:-$node}")
  done
}

# Each role's files are in a directory of their own, which is all that a container of that role needs to see.
# Those of this job's last start may be left, if a node was lost.
make_certificates() {
  local role
  rm -rf "$certs"
  trap 'rm -rf "$certs"' EXIT
  [[ $insecure == no ]] || { mkdir -m 700 "$certs" || die "cannot make $certs"; return; }
  "$scripts/make_certs.sh" --days=400 --discard_authority_key "$certs" "${addresses[@]}" \
    >"$out/logs/certs.log" 2>&1 ||
    die "cannot make certificates, see $out/logs/certs.log; --insecure starts the job without"
  for role in server worker evaluator operator; do
    if ! mkdir -m 700 "$certs/$role" || ! cp "$certs/ca.crt" "$certs/$role" ||
      ! mv "$certs/$role.crt" "$certs/$role.key" "$certs/$role"; then
      die "cannot write to $certs"
    fi
  done
}

# secure ROLE: sets tls, the flags of a process with this role.
secure() {
  tls=(--insecure)
  [[ $insecure == yes ]] || tls=(--certs="$certs/$1")
}

# Sets workers, threads (of each) and worker_options (srun's).
share_out() {
  local on_node=$((${SLURM_GPUS_ON_NODE:-0} / gpus_per_worker))
  if [[ $on_node -gt 0 ]]; then
    workers=$((on_node * ${#nodes[@]}))
    threads=${SLURM_CPUS_PER_TASK:-$(((${SLURM_CPUS_ON_NODE:-1} + on_node - 1) / on_node))}
    worker_options=(--ntasks-per-node="$on_node" --gpus-per-task="$gpus_per_worker")
    [[ ${SLURM_CPUS_ON_NODE:-1} -ge $on_node ]] || worker_options+=(--overcommit)
  else
    workers=${SLURM_NTASKS:-${#nodes[@]}}
    threads=${SLURM_CPUS_PER_TASK:-1}
    worker_options=(--distribution=cyclic)
  fi
  threads=${given_threads:-$threads}
}

# Opens the file by which this job claims its directory; `catchment validate` locks it. Sets claim, a file
# descriptor.
open_claim() {
  mkdir -p "$out" || die "cannot make $out"
  out=$(realpath "$out")
  certs=$out/certs.$SLURM_JOB_ID
  exec {claim}<>"$out/command.lock" || die "cannot open $out/command.lock"
}

# Claims the directory and writes the job there. Nothing else in it is changed before.
write_job() {
  local explanation
  explanation=$("$bin/catchment" validate ${job:+"$job"} "${program[@]}" "${changes[@]}" \
    "${overwrite[@]}" --servers="$servers" --workers="$workers" --claim="$claim" --write="$out/job.textproto" 2>&1) ||
    die "the job does not start: $explanation"
  mkdir -p "$out/logs" || die "cannot make $out/logs"
  echo "$explanation" >"$out/logs/validate.log"
  sed -n '/^warnings$/,$p' <<<"$explanation"
}

# reason_in LOG [LINES]: prints the last line of a log, without time and source, that is not among its first
# LINES. There the daemons say why they have ended.
reason_in() {
  tail -n "+$((${2:-0} + 1))" "$1" 2>/dev/null | sed -n '/[^[:space:]]/p' | tail -n 1 |
    sed 's/^[IWEF][0-9]\{8\} [^]]*\] //'
}

# Prints the reason in the job's summary.
reason_in_summary() { sed -n 's/^ *"reason": "\(.*\)",\{0,1\}$/\1/p' "$out/summary.json" 2>/dev/null | head -n 1; }

# step NAME LOG OPTION... -- COMMAND...: starts a job step beside the others. Sets step_pid.
step() {
  local name=$1 log=$2 options=()
  shift 2
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  shift
  srun --job-name="$name" --overlap --mem=0 --kill-on-bad-exit=0 --wait=0 --input=none --open-mode=append \
    --output="$out/logs/$log" "${options[@]}" "$@" {claim}>&- &
  step_pid=$!
}

# signal_step NAME: sends SIGTERM to the processes of a step, if Slurm has not ended it itself.
signal_step() {
  local id
  id=$(squeue --noheader --steps --jobs="$slurm_job" --format="%i %j" | awk -v name="$1" '$2 == name { print $1; exit }')
  [[ -z $id ]] || scancel --signal=TERM "$id" 2>/dev/null
}

# Succeeds if an exit code is that of a program that a signal ended, other than those by which Slurm ends a
# step.
lost_by_signal() { [[ $1 -gt 128 && $1 -ne 130 && $1 -ne 143 ]]; }

# again COMMAND...: runs a command, and again when a signal has ended it. Tasks of workers and evaluators run
# this. After SIGTERM it ends with code $left, if that is set.
again() {
  local code restarts=0 asked=no
  # The program gets the step's signals, too, and decides when it ends.
  trap 'asked=yes' TERM
  trap : INT USR1 USR2
  while true; do
    "$@"
    code=$?
    [[ $asked == no || -z $left ]] || return "$left"
    lost_by_signal "$code" && [[ $asked == no && $restarts -lt $most_restarts ]] || return "$code"
    restarts=$((restarts + 1))
    echo "$script: signal $((code - 128)) ended ${1##*/}; started again" >&2
  done
}

# Prints the address at which server INDEX of this run has listened, if it has.
address_of() {
  tail -n "+$((${said_before[$1]} + 1))" "$out/logs/server-$1.log" 2>/dev/null |
    sed -n "s/^catchment_server $1: listening on //p" | tail -n 1
}

# Prints --servers. A server that has not listened yet chooses a free port; one that is started again keeps
# its own.
server_list() {
  local i address list=
  for ((i = 0; i < servers; ++i)); do
    address=$(address_of "$i")
    list+=${list:+,}${address:-${addresses[i % ${#nodes[@]}]}:0}
  done
  echo "$list"
}

# start_server INDEX: on the nodes in turn. Sets its entry of server_pids.
start_server() {
  local evaluators=()
  [[ $1 -gt 0 || $evaluator == no ]] || evaluators=(--evaluators=1)
  secure server
  step "server-$1" "server-$1.log" --nodes=1 --ntasks=1 --cpus-per-task="$server_cpus" --gres=none \
    --nodelist="${nodes[$1 % ${#nodes[@]}]}" -- \
    "$bin/catchment_server" --job="$out/job.textproto" --index="$1" --servers="$(server_list)" --out="$out" \
    "${evaluators[@]}" "${resume[@]}" "${tls[@]}" "${server_flags[@]}"
  server_pids[$1]=$step_pid
}

# start_workers STEP LOG OPTION... -- FLAG...
start_workers() {
  local options=()
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  shift
  step "${options[@]}" -- bash -c \
    "$(declare -f lost_by_signal again); $(declare -p script most_restarts left | sed 's/^declare -[^ ]*/declare/'); again \"\$@\"" \
    again "$bin/catchment_worker" --master="$master" "${worker_flags[@]}" "$@"
  others+=("$step_pid")
}

# Waits for the master's address. Sets master.
await_master() {
  while true; do
    master=$(address_of 0)
    [[ -z $master ]] || return 0
    kill -0 "${server_pids[0]}" 2>/dev/null || return 1
    # The signal may have been too early for the step.
    [[ $stopping == no ]] || signal_step server-0
    sleep 0.2
  done
}

# Prints what the master logs from now on, without times and sources, until follower_pid is killed.
follow_master() {
  local log=$out/logs/server-0.log
  tail --lines="+$((said_before[0] + 1))" --follow=name --retry "$log" 2>/dev/null {claim}>&- > >(
    exec sed -un 's/^[IWEF][0-9]\{8\} [^]]*\] //p') &
  follower_pid=$!
}

# Prints the commands for this job.
explain() {
  local command security=
  secure operator
  [[ $insecure == yes ]] || security=" ${tls[*]}"
  for command in "status --watch" stop; do say "  $bin/catchment $command $master$security"; done
}

# Succeeds if at most two minutes are left: Slurm sends the signal of the limit one minute before it, or up to
# a minute earlier.
at_limit() { [[ $(squeue --noheader --jobs="$slurm_job" --format=%L) =~ ^([01]:[0-9]{2}|2:00)$ ]]; }

# SIGTERM to the master alone: it ends the job, and with it every daemon.
stop_job() {
  say "stopping the job gracefully"
  stopping=yes
  ! at_limit || limit=yes
  signal_step server-0
}

master_says() {
  secure operator
  "$bin/catchment" health "$master" --service=catchment.v1.MasterService "${tls[@]}" 2>/dev/null
}

# restart_server INDEX: starts a server whose step has ended again. Fails, with the step's exit code in code,
# if the server is not to be started again.
restart_server() {
  code=0
  wait "${server_pids[$1]}" || code=$?
  [[ $stopping == no ]] && lost_by_signal "$code" && [[ ${restarts[$1]} -lt $most_restarts ]] || return 1
  restarts[$1]=$((${restarts[$1]} + 1))
  say "signal $((code - 128)) ended server $1; started again at $(address_of "$1")"
  start_server "$1"
}

# Starts servers again that a signal ended. Sets code when the master has ended.
watch_servers() {
  local i
  for i in "${!server_pids[@]}"; do
    kill -0 "${server_pids[i]}" 2>/dev/null && continue
    restart_server "$i" && continue
    [[ $i -ne 0 ]] || return 1
    [[ $code -eq 0 ]] || say "server $i ended with exit code $code: $(reason_in "$out/logs/server-$i.log")"
    unset "server_pids[$i]"
  done
}

# why_lost NAME: prints why no worker is left whose log begins with this name.
why_lost() {
  local logs=("$out/logs/$1"*.log) log
  # shellcheck disable=SC2012  # the names are this script's
  log=$(ls -t "${logs[@]}" 2>/dev/null | head -n 1)
  echo "no worker is left; the last lines of logs/$1*.log say why: $(reason_in "$log")"
}

# Waits until the master has ended for good, and sets code. Stops the job if all workers have failed or could
# not be started, because the master would wait for new ones.
watch_job() {
  local waits=0
  while watch_servers; do
    sleep 1
    if [[ -n $workers_pid ]] && ! kill -0 "$workers_pid" 2>/dev/null &&
      [[ $(master_says) == NOT_SERVING ]]; then
      waits=$((waits + 1))
      [[ $waits -ne 5 ]] || { lost=$(why_lost worker-); say "$lost"; stop_job; }
    fi
  done
}

# Prints the seconds since the machine was started, whatever the time of day is set to.
uptime_seconds() {
  local seconds
  read -r seconds _ </proc/uptime
  echo "${seconds%.*}"
}

# Waits for the daemons, which the master ends. Those that do not end are signaled, and then Slurm kills them.
end_others() {
  local pid deadline=$(($(uptime_seconds) + leave_seconds))
  for pid in "${others[@]}"; do
    while kill -0 "$pid" 2>/dev/null; do
      [[ $(uptime_seconds) -lt $deadline ]] || { kill "${others[@]}" 2>/dev/null; return; }
      sleep 0.2
    done
    wait "$pid" || say "a step ended with exit code $?; the last line of its log in $out/logs says why"
  done
}

# Returns this job to Slurm's queue, which ends the script. Fails if Slurm refuses, or is ending the job: one that
# was cancelled would come back, too.
return_to_queue() {
  [[ $(squeue --noheader --jobs="$slurm_job" --format=%T) == RUNNING ]] && scontrol requeue "$slurm_job" &&
    { sleep 60; exit 143; }
}

# Each step states its own needs; the resources of the whole job are not for each of them.
forget_resources() {
  unset SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE SLURM_CPUS_PER_TASK
  unset "${!SLURM_GPUS@}" "${!SLURM_MEM_PER@}" SLURM_DISTRIBUTION
}

# Claims the directory for the job, or for its continuation.
prepare_job() {
  open_claim
  [[ ${SLURM_RESTART_COUNT:-0} -eq 0 ]] || overwrite=()
  if [[ ${SLURM_RESTART_COUNT:-0} -gt 0 || ${resume[*]} == --resume=auto ]]; then
    resume=()
    if compgen -G "$out/checkpoints/*/manifest.textproto" >/dev/null; then resume=(--resume); fi
  fi
  # A program is asked once: later runs go on with the model that it described.
  if [[ -z $job && ${#resume[@]} -gt 0 ]]; then job=$out/job.textproto; fi
  write_job
  make_certificates
  # A program without a test set has nothing to score.
  if [[ ${#program[@]} -gt 0 ]] && ! grep -q test_samples "$out/job.textproto"; then evaluator=no; fi
}

# Starts the servers, then the workers of this job, if any, by start_own_workers, and the evaluator.
start_daemons() {
  local i
  for ((i = 0; i < servers; ++i)); do
    restarts+=(0)
    said_before+=("$(wc -l 2>/dev/null <"$out/logs/server-$i.log")")
  done
  start_server 0
  await_master || { stopping=yes; return; }
  # By this file workers of other Slurm jobs recognize the run.
  echo "$master start ${SLURM_RESTART_COUNT:-0}" >"$certs/master.new" && mv "$certs/master.new" "$certs/master"
  say "job $SLURM_JOB_ID: $servers servers, the master at $master, $workers workers, on ${nodes[*]}; $out"
  explain
  follow_master
  for ((i = 1; i < servers; ++i)); do start_server "$i"; done
  start_own_workers
  if [[ $evaluator == yes ]]; then
    secure evaluator
    start_workers evaluator evaluator.log --nodes=1 --ntasks=1 --cpus-per-task=1 --gres=none \
      --nodelist="${nodes[-1]}" -- --role=evaluator --device=cpu "${program[@]}" "${tls[@]}"
  fi
}

# Waits for the end of the job, and ends the script with its result.
finish_job() {
  watch_job
  unset "server_pids[0]"
  others+=("${server_pids[@]}")
  end_others
  # The follower looks at the log once a second.
  [[ -z $follower_pid ]] || { sleep 1.5; kill "$follower_pid" 2>/dev/null; }
  [[ $code -eq 0 ]] || die "training failed with exit code $code: \
$(reason_in "$out/logs/server-0.log" "${said_before[0]}"); logs are in $out/logs" "$code"
  if ! grep -qs '"phase": "DONE"' "$out/summary.json"; then
    [[ -z $lost ]] || die "$lost"
    if [[ $requeue == yes && $limit == yes ]]; then
      say "the time limit has ended the job, which returns to the queue"
      return_to_queue
    fi
    die "ended before its budget was spent: $(reason_in_summary)" 143
  fi
  say "done: $out/summary.json"
}

lost=
stopping=no
limit=no
workers_pid=
follower_pid=
others=()
server_pids=()
restarts=()
said_before=()
server_cpus=1
exec {claim}</dev/null
left=  # the exit code of a worker after SIGTERM; empty: its own
