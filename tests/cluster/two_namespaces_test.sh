#!/usr/bin/env bash
# The commands of deploy/README.md for two hosts, taken from that page and run in two network namespaces that
# are joined by a pair of virtual interfaces, as node0 and node1.
#
# The job is a small one that needs no data, in the place of the page's. CATCHMENT_NETNS_JOB: another job
# file, and CATCHMENT_NETNS_SECONDS: how long it may take, for a full run by hand.
# If namespaces cannot be created (for example, without root), the test reports this and is skipped.
set -euo pipefail

source tests/cluster/namespaces.sh

readonly patience=${CATCHMENT_NETNS_SECONDS:-600}  # for the whole job

# A pair of virtual interfaces.
join() {
  local i interfaces=("c$$a" "c$$b")
  ip link add "c$$a" netns "${spaces[0]}" type veth peer name "c$$b" netns "${spaces[1]}" || return 1
  for i in 0 1; do
    ip -n "${spaces[i]}" address add "10.213.77.$((i + 1))/24" dev "${interfaces[i]}"
    ip -n "${spaces[i]}" link set "${interfaces[i]}" up
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
shared_memory: false
workers: 2
epochs: 2
END
}

# The page's commands: lines "    node0$ bazel-bin/..." of its code.
make_hosts 10.213.77.1 10.213.77.2
join || skip "this machine does not let virtual interfaces be made"
write_job
mapfile -t lines < <(sed -n 's/^ *\(node[01]\)\$ \(bazel-bin\/.*\)$/\1 \2/p' deploy/README.md)
[[ ${#lines[@]} -ge 4 ]] || fail "only ${#lines[@]} commands \"node0\$ bazel-bin/...\" in deploy/README.md"
# The hosts share their working directory, so that nothing is copied.
read -ra words <<<"$(sed -n 's/^ *node0\$ .*\(deploy\/make_certs.sh .*\)$/\1/p' deploy/README.md)"
[[ ${#words[@]} -ge 3 ]] || fail "no command makes certificates in deploy/README.md"
(make_certs=$PWD/${words[0]} && cd "$work" && "$make_certs" "${words[@]:1}") || fail "no certificates"
for line in "${lines[@]}"; do
  # Words of the page's, without quotes in them.
  read -ra words <<<"$line"
  start "${words[@]}"
done
await_all "$patience"

summary=$(tr -d '\n' <"$work/out/summary.json")
[[ $summary == *'"phase": "DONE"'* ]] || fail "the job is not done: $summary"
[[ $summary == *'"servers": 2'* ]] || fail "not on two servers: $summary"
[[ -s $work/out/model.safetensors ]] || fail "no model was written"
echo "PASSED: $summary"
