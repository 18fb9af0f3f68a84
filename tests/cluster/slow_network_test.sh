#!/usr/bin/env bash
# Daemons on three hosts (network namespaces) joined by a network with a bandwidth, a delay and losses
# (network_switch.cc): nothing is lost or counted twice, and the hosts come together again after they were cut
# off from each other. Where namespaces or TUN devices cannot be made the test says so and is skipped.
set -euo pipefail
source tests/cluster/namespaces.sh

readonly patience=600  # seconds, for a job
switch=

# join FLAG...: connects the hosts.
join() {
  rm -f "$work/switch.out"
  tests/cluster/network_switch "$@" "${spaces[@]}" >"$work/switch.out" 2>"$work/switch.log" &
  switch=$!
  until [[ -s $work/switch.out ]]; do
    if ! kill -0 "$switch" 2>/dev/null; then
      ! grep -q "/dev/net/tun\|a TUN device in" "$work/switch.log" ||
        skip "this machine lets no TUN device be made"
      fail "the network ended"
    fi
    sleep 0.1
  done
}

part() {
  kill -TERM "$switch"
  wait "$switch" || fail "the network ended with $?"
}

# write_job PRESET FIELD...
write_job() {
  local preset=$1
  shift
  cat >"$work/job.textproto" <<END
name: "slow_network"
model {
  layers { flatten {} }
  layers { dense { units: 64 } }
  layers { relu {} }
  layers { dense { units: 10 } }
}
data { drawn_digits { train_samples: 2000 test_samples: 200 } }
algorithm { preset: "$preset" }
shared_memory: false
workers: 2
batch_size: 32
$*
END
}

# start_job OUT: two servers and two workers; every gradient crosses the network, and so do the weights.
start_job() {
  local servers=("--servers=node0:7000,node1:7000" --insecure)
  start node0 bazel-bin/server/catchment_server --job=job.textproto --index=0 "${servers[@]}" --out="$1"
  start node1 bazel-bin/server/catchment_server --job=job.textproto --index=1 "${servers[@]}" \
    --checkpoint_dir="$1/checkpoints"
  start node1 bazel-bin/worker/catchment_worker --master=node0:7000 --threads=1 --insecure
  start node2 bazel-bin/worker/catchment_worker --master=node0:7000 --threads=1 --insecure
}

# value OUT KEY: a number or a word of the summary.
value() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$work/$1/summary.json" | head -n 1; }

# expect OUT KEY VALUE
expect() { [[ $(value "$1" "$2") == "$3" ]] || fail "$1: $2 is $(value "$1" "$2"), and not $3"; }

lines() { if [[ -e $work/cut/metrics.jsonl ]]; then wc -l <"$work/cut/metrics.jsonl"; else echo 0; fi; }

[[ -e /dev/net/tun ]] || skip "there is no /dev/net/tun"
make_hosts 10.213.77.1 10.213.77.2 10.213.77.3

echo "== a synchronous job over a good network, and over a bad one"
write_job sync "deterministic: true epochs: 2"
join --mbit=1000
start_job good
await_all $patience
part
join --mbit=50 --delay_ms=5 --loss=0.02
start_job bad
await_all $patience
part
for out in good bad; do
  expect $out phase DONE
  expect $out samples 4000
done
cmp "$work/good/model.safetensors" "$work/bad/model.safetensors" ||
  fail "the bad network changed the weights"
# An update takes at least the time in which a gradient and the weights cross the network.
awk -v seconds="$(value bad wall_seconds)" -v updates="$(value bad updates)" \
  'BEGIN { exit !(updates > 0 && seconds >= updates * 0.010) }' ||
  fail "$(value bad updates) updates in $(value bad wall_seconds) s: the network has no delay"

echo "== all hosts are cut off from each other: for less than a worker's lease, then for more"
write_job downpour "epochs: 12 faults { heartbeat_timeout_seconds: 4 }"
join --mbit=50 --delay_ms=5
start_job cut
for seconds in 1.5 7; do
  before=$(lines)
  # Some more lines: it trains.
  until [[ $(lines) -ge $((before + 3)) ]]; do
    [[ $SECONDS -lt $patience ]] || fail "the job does not train"
    [[ ! -e $work/cut/summary.json ]] || fail "the job was done before it was cut off"
    sleep 0.1
  done
  kill -USR1 "$switch"
  sleep "$seconds"
  kill -USR2 "$switch"
done
await_all $patience
part
expect cut phase DONE
expect cut samples 24000
grep -q "lost" "$work/0-node0.log" || fail "no worker's lease ran out"
echo "PASSED"
