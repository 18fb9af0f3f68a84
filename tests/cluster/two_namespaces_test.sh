#!/usr/bin/env bash
# The README's commands for two hosts, taken from the README and run in two network namespaces that are joined
# by a pair of virtual interfaces, as node0 and node1.
#
# The job is a small one that needs no data, in the place of the README's. CATCHMENT_NETNS_JOB: another job
# file, and CATCHMENT_NETNS_SECONDS: how long it may take, for a full run by hand.
# Where namespaces cannot be made (not root, say) the test says so and is skipped.
set -euo pipefail

readonly work=$TEST_TMPDIR/work
readonly patience=${CATCHMENT_NETNS_SECONDS:-120}  # for the whole job
readonly spaces=("catchment-$$-node0" "catchment-$$-node1")
readonly addresses=(10.213.77.1 10.213.77.2)
pids=()

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

make_spaces() {
  local i hosts="127.0.0.1 localhost"$'\n'"${addresses[0]} node0"$'\n'"${addresses[1]} node1"
  ip link add "c$$a" netns "${spaces[0]}" type veth peer name "c$$b" netns "${spaces[1]}" || return 1
  local interfaces=("c$$a" "c$$b")
  for i in 0 1; do
    # `ip netns exec` shows these files in the place of those in /etc.
    mkdir -p "/etc/netns/${spaces[i]}"
    echo "$hosts" >"/etc/netns/${spaces[i]}/hosts"
    ip -n "${spaces[i]}" address add "${addresses[i]}/24" dev "${interfaces[i]}"
    ip -n "${spaces[i]}" link set "${interfaces[i]}" up
    ip -n "${spaces[i]}" link set lo up
  done
}

write_job() {
  mkdir -p "$work/examples"
  if [[ -n ${CATCHMENT_NETNS_JOB:-} ]]; then
    cp "$CATCHMENT_NETNS_JOB" "$work/examples/mnist_cnn.textproto"
    return
  fi
  cat >"$work/examples/mnist_cnn.textproto" <<'END'
name: "two_namespaces"
model {
  layers { flatten {} }
  layers { dense { units: 64 } }
  layers { relu {} }
  layers { dense { units: 10 } }
}
data { drawn_digits { train_samples: 2000 test_samples: 500 } }
algorithm { preset: "sync" }
workers: 2
epochs: 2
END
}

# The README's commands: lines "    node0$ bazel-bin/..." of its code.
read_commands() {
  mapfile -t commands < <(sed -n 's/^ *\(node[01]\)\$ \(bazel-bin\/.*\)$/\1 \2/p' README.md)
  [[ ${#commands[@]} -ge 4 ]] || fail "only ${#commands[@]} commands \"node0\$ bazel-bin/...\" in README.md"
}

# start NUMBER NODE COMMAND...
start() {
  local number=$1 node=$2
  shift 2
  echo "$node\$ $*"
  (cd "$work" && exec ip netns exec "${spaces[${node#node}]}" "$@") >"$work/$number-$node.log" 2>&1 &
  pids+=($!)
}

# All of them, in order, before the patience is at its end.
await_all() {
  local i deadline=$((SECONDS + patience))
  for i in "${!pids[@]}"; do
    while kill -0 "${pids[i]}" 2>/dev/null; do
      [[ $SECONDS -lt $deadline ]] || fail "still running after $patience s: ${commands[i]}"
      sleep 0.2
    done
    wait "${pids[i]}" || fail "exit code $?: ${commands[i]}"
  done
}

[[ $(id -u) -eq 0 ]] || skip "making network namespaces needs root"
command -v ip >/dev/null || skip "there is no ip command; deploy/setup.sh installs it"
trap clean_up EXIT
for space in "${spaces[@]}"; do
  ip netns add "$space" || skip "this machine does not let a network namespace be made"
done
mkdir -p "$work"
ln -s "$PWD" "$work/bazel-bin"
make_spaces || skip "this machine does not let virtual interfaces be made"
write_job
read_commands
for i in "${!commands[@]}"; do
  # Words of the README's, without quotes in them.
  read -ra words <<<"${commands[i]}"
  start "$i" "${words[@]}"
done
await_all

summary=$(tr -d '\n' <"$work/out/summary.json")
[[ $summary == *'"phase": "DONE"'* ]] || fail "the job is not done: $summary"
[[ $summary == *'"servers": 2'* ]] || fail "not on two servers: $summary"
[[ -s $work/out/model.safetensors ]] || fail "no model was written"
echo "PASSED: $summary"
