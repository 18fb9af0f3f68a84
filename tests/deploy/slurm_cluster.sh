# shellcheck shell=bash
# For tests on a real Slurm: munge, slurmctld and two slurmd, all on this machine. Source it with the test's
# arguments: what follows runs as root in separate namespaces (processes, network, mounts), which end with the
# test, however it ends. Installs slurm-wlm and munge on Debian 12 where they are missing, and uses nothing of
# an installed Slurm but its programs. Begin with start_slurm; $partitions takes the place of the partition.
readonly packages=(slurm-wlm munge)
readonly patience=300  # seconds that a wait may take; Bazel ends the whole test after 900

fail() {
  echo "FAILED: $*"
  tail -n 25 "$work"/*.log "$work"/out*/logs/*.log 2>/dev/null || true
  exit 1
}

# await WHAT COMMAND...: repeats the command until it succeeds.
await() {
  local what=$1 deadline=$((SECONDS + patience))
  shift
  until "$@" >"$work/polled" 2>&1; do
    [[ $SECONDS -lt $deadline ]] || fail "not within $patience s: $what; '$*' last printed: $(cat "$work/polled")"
    sleep 0.2
  done
}

# -------------------------------------------------------------------------------------- before the namespaces

install_missing() {
  if command -v sbatch && command -v slurmctld && command -v slurmd &&
    command -v munged; then return; fi >/dev/null
  if apt-get --quiet update; then
    DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends install "${packages[@]}" &&
      return
  fi
  echo "FAILED: could not install ${packages[*]}"
  exit 1
}

clean_up() {
  [[ -z $inside ]] || kill -KILL "$inside" 2>/dev/null || true
  wait
  rm -rf "$work"
}

export PATH=$PATH:/usr/sbin:/sbin
if [[ ${1:-} != --inside ]]; then
  source tests/deploy/rights.sh
  require_rights unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc \
    mount --bind /etc/hosts /etc/hosts
  install_missing
  # A short path: munge's socket is in it.
  work=$(mktemp -d /tmp/catchment-slurm.XXXXXX)
  inside=
  trap clean_up EXIT
  tar -xzf deploy/catchment.tar.gz -C "$work"
  mv "$work"/catchment-* "$work/catchment"
  cp -rL python "$work/python"
  unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc bash "$0" --inside "$work" &
  inside=$!
  wait "$inside"
  inside=
  exit 0
fi

# ------------------------------------------------------------------------------------------------ inside them

readonly work=$2
readonly bundle=$work/catchment
export SLURM_CONF=$work/slurm.conf

start_slurm() {
  local node
  # Slurm takes no addresses from a machine that has a loopback interface alone.
  ip link set lo up
  ip link add cluster0 type veth peer name cluster1
  for node in 10 11 12; do ip address add "10.213.78.$node/24" dev cluster0; done
  ip link set cluster0 up
  hostname slurmhost
  printf '%s\n' "127.0.0.1 localhost" "10.213.78.10 slurmhost" >"$work/hosts"
  mount --bind "$work/hosts" /etc/hosts
  mkdir -p "$work"/{munge,state,spool-n1,spool-n2}
  chmod 755 "$work"
  dd if=/dev/urandom of="$work/munge/key" bs=1 count=1024 status=none
  chmod 600 "$work/munge/key"
  munged --foreground --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" --force >"$work/munged.log" 2>&1 &
  # Each node has its own address; the number of processors is configured, not detected.
  cat >"$SLURM_CONF" <<END
ClusterName=catchment
SlurmctldHost=slurmhost(10.213.78.10)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldPort=6817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=20
GresTypes=gpu
NodeName=n1 NodeHostname=slurmhost NodeAddr=10.213.78.11 Port=6821 CPUs=4 RealMemory=2000 Gres=gpu:2
NodeName=n2 NodeHostname=slurmhost NodeAddr=10.213.78.12 Port=6822 CPUs=4 RealMemory=2000 Gres=gpu:2
${partitions:-PartitionName=main Nodes=n1,n2 Default=YES MaxTime=30 OverSubscribe=FORCE:4}
END
  for node in 0 1; do mknod "$work/gpu$node" c 1 3; done
  echo "Name=gpu File=$work/gpu[0-1]" >"$work/gres.conf"
  await "munge" test -S "$work/munge/socket"
  slurmctld -D -f "$SLURM_CONF" >"$work/slurmctld.log" 2>&1 &
  for node in n1 n2; do start_node "$node"; done
  await "both nodes idle" both_idle
}

declare -A slurmd_pids
start_node() {
  slurmd -D -f "$SLURM_CONF" -N "$1" >>"$work/slurmd-$1.log" 2>&1 &
  slurmd_pids[$1]=$!
}

# lose_node NODE: its slurmd and all tasks on it end at once, and Slurm is notified.
lose_node() {
  local pid
  kill -KILL "${slurmd_pids[$1]}"
  scontrol update NodeName="$1" State=DOWN Reason=lost || fail "scontrol does not take $1 away"
  for pid in $(pgrep -f bin/catchment_); do
    if grep -qxz "SLURMD_NODENAME=$1" "/proc/$pid/environ" 2>/dev/null; then kill -KILL "$pid"; fi
  done
}

both_idle() { [[ $(sinfo --noheader --Node --format="%N %t" 2>/dev/null | sort -u) == $'n1 idle\nn2 idle' ]]; }

# submit ARGUMENT...: of sbatch; prints the job's number.
submit() { sbatch --parsable --output="$work/job-%j.log" "$@" || fail "sbatch refused: $*"; }
state() { scontrol show job "$1" | sed -n 's/.* *JobState=\([A-Z_]*\) .*/\1/p'; }
exit_code() { scontrol show job "$1" | sed -n 's/.* ExitCode=\([0-9]*\):.*/\1/p'; }
ended() { [[ $(state "$1") != @(PENDING|RUNNING|COMPLETING|CONFIGURING) ]]; }
pending() { [[ $(state "$1") == PENDING ]]; }
# Starts a job that was requeued, for which Slurm would let two minutes pass; but in the second in which the
# job was killed, slurmd refuses it.
start_again() { scontrol update JobId="$1" StartTime=now+2; }
no_daemons() { ! pgrep -f 'bin/catchment_(server|worker)' >/dev/null; }
log() { cat "$work/job-$1.log"; }
# The master's address of a job that has one, else nothing.
master() { sed -n 's/.*the master at \([0-9.:]*\),.*/\1/p' "$work/job-$1.log" 2>/dev/null; }
# The directory of certificates of a job that has a master's address.
certificates() { sed -n "s/.*the master at .*; \(.*\)/\1\/certs.$1/p" "$work/job-$1.log"; }
# The reason with which a job has ended.
last_line() { log "$1" | tail -n 1; }
trains() {
  local address certs
  address=$(master "$1")
  [[ -n $address ]] || return 1
  certs=$(certificates "$1")
  # A worker's directory has no keys of others.
  [[ $(cd "$certs/worker" && echo *) == "ca.crt worker.crt worker.key" ]] || return 1
  "$bundle/bin/catchment" health "$address" --service=catchment.v1.MasterService \
    --certs="$certs/operator"
}
trains_or_ended() { trains "$1" || ended "$1"; }
# await_training JOB
await_training() {
  await "job $1 trains" trains_or_ended "$1"
  ! ended "$1" || fail "job $1 ended as $(state "$1") instead of training: $(cat "$work/polled"; log "$1")"
}
# says LOG TEXT: whether a log has the text.
says() { grep -qF "$2" "$1" 2>/dev/null; }
# expect_summary DIR TEXT...
expect_summary() {
  local dir=$1 text
  shift
  [[ -s $dir/summary.json ]] || fail "no $dir/summary.json"
  for text in "$@"; do
    grep -qF "$text" "$dir/summary.json" || fail "no $text in $(cat "$dir/summary.json")"
  done
}
# The nodes that worker tasks run on, by the environment that Slurm gave them.
worker_nodes() {
  local pid
  for pid in $(pgrep -f bin/catchment_worker); do
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^SLURMD_NODENAME=//p' || true
  done | sort -u | xargs
}
