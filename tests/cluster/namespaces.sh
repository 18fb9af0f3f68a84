# shellcheck shell=bash
# For tests that source it: hosts made of network namespaces, node0, node1, ..., with daemons in them. The
# working directory of the daemons is $work; they see the programs as bazel-bin/.

readonly work=$TEST_TMPDIR/work
spaces=()
pids=()
commands=()

skip() {
  echo "SKIPPED: $*"
  exit 0
}

fail() {
  echo "FAILED: $*"
  tail -n 20 "$work"/*.log
  exit 1
}

clean_up() {
  local pid space
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  for space in "${spaces[@]}"; do
    ip netns delete "$space" 2>/dev/null || true
    rm -rf "/etc/netns/$space"
  done
}

# make_hosts ADDRESS...: a namespace for each; what joins them is the caller's. Skips the test where commands
# cannot run in such hosts: in a chroot, for example, `ip netns add` works, and `ip netns exec`, which mounts,
# does not.
make_hosts() {
  local i hosts="127.0.0.1 localhost"$'\n'
  [[ $(id -u) -eq 0 ]] || skip "making network namespaces needs root"
  command -v ip >/dev/null || skip "there is no ip command; deploy/setup.sh installs it"
  trap clean_up EXIT
  mkdir -p "$work"
  ln -s "$PWD" "$work/bazel-bin"
  for ((i = 1; i <= $#; ++i)); do hosts+="${!i} node$((i - 1))"$'\n'; done
  for ((i = 0; i < $#; ++i)); do
    spaces+=("catchment-$$-node$i")
    ip netns add "${spaces[i]}" || skip "this machine does not let a network namespace be made"
    # `ip netns exec` shows these files in the place of those in /etc.
    { mkdir -p "/etc/netns/${spaces[i]}" && echo "$hosts" >"/etc/netns/${spaces[i]}/hosts"; } ||
      skip "/etc/netns cannot be written"
    ip netns exec "${spaces[i]}" grep -q node0 /etc/hosts ||
      skip "this machine does not let a command run in a network namespace with a file of its own mounted"
    ip -n "${spaces[i]}" link set lo up || skip "this machine does not let network interfaces be changed"
  done
}

# start NODE COMMAND...
start() {
  local node=$1
  shift
  echo "$node\$ $*"
  (cd "$work" && exec ip netns exec "${spaces[${node#node}]}" "$@") >"$work/${#pids[@]}-$node.log" 2>&1 &
  pids+=($!)
  commands+=("$node\$ $*")
}

# await_all SECONDS: the ends of all that was started, in good order.
await_all() {
  local i deadline=$((SECONDS + $1))
  for i in "${!pids[@]}"; do
    while kill -0 "${pids[i]}" 2>/dev/null; do
      [[ $SECONDS -lt $deadline ]] || fail "still running after $1 s: ${commands[i]}"
      sleep 0.2
    done
    wait "${pids[i]}" || fail "exit code $?: ${commands[i]}"
  done
  pids=()
  commands=()
}
