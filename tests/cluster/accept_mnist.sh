#!/usr/bin/env bash
# The project's promises on MNIST in full length, by the command itself. Takes half an hour and more on two
# cores, so it is not part of `bazel test`.
#
#   bazel build -c opt //... && CATCHMENT_DATA=/data tests/cluster/accept_mnist.sh [--epochs=N] [PRESET...]
#
# Each preset (default: sync downpour easgd) trains examples/mnist_cnn.textproto with 2 servers
#   whole    and 2 workers, to test_accuracy 0.990 (easgd, easgd_sync, eamsgd: 0.988)
#   killed   and 3 workers, one of which gets a SIGKILL in mid-run, to 0.985
# in N epochs (default 5). CATCHMENT: the command, default bazel-bin/cli/catchment. OUT: where results go,
# default a new directory.
# Prints a table. Exit codes: 0 all promises kept, 1 one is not, or a run failed, 2 usage.
set -euo pipefail

readonly job=examples/mnist_cnn.textproto
readonly train_samples=60000
catchment=${CATCHMENT:-bazel-bin/cli/catchment}
epochs=5
presets=()

usage() {
  sed -n '2,/^set/{s/^# \{0,1\}//;/^set/d;p}' "$0" >&2
  exit 2
}

for argument in "$@"; do
  case $argument in
    --epochs=*) epochs=${argument#*=} ;;
    -*) usage ;;
    *) presets+=("$argument") ;;
  esac
done
[[ ${#presets[@]} -gt 0 ]] || presets=(sync downpour easgd)
[[ $epochs =~ ^[1-9][0-9]*$ ]] || usage
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ -x $catchment ]] || { echo "accept_mnist: no $catchment: bazel build -c opt //..." >&2; exit 1; }
out=${OUT:-$(mktemp -d)}
echo "accept_mnist: results in $out"

# bound PRESET KIND: the accuracy that is promised
bound() {
  if [[ $2 == killed ]]; then
    echo 0.985
  elif [[ $1 == ea* ]]; then
    echo 0.988
  else
    echo 0.990
  fi
}

# value DIR KEY: of the summary
value() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1/summary.json" "$2"; }

# trained DIR: samples so far
trained() {
  tail -n 1 "$1/metrics.jsonl" 2>/dev/null | sed -n 's/.*"samples":\([0-9]*\).*/\1/p'
}

# kill_one TRAIN_PID DIR: a worker's process, when a third of the budget is trained. Prints its name.
kill_one() {
  local samples pid
  while samples=$(trained "$2"); [[ ${samples:-0} -lt $((train_samples * epochs / 3)) ]]; do
    kill -0 "$1" 2>/dev/null || return 1
    sleep 1
  done
  for pid in $(pgrep -P "$1"); do
    if tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q 'catchment_worker' &&
      ! tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -- '--role=evaluator'; then
      kill -KILL "$pid"
      return 0
    fi
  done
  return 1
}

# run PRESET KIND WORKERS: leaves DIR/summary.json
run() {
  local dir=$out/$1-$2 pid
  "$catchment" train "$job" --servers=2 --workers="$3" --threads=1 --set algorithm.preset="$1" \
    --set workers="$3" --set epochs="$epochs" --set faults.heartbeat_timeout_seconds=5 --out="$dir" \
    >"$dir.log" 2>&1 &
  pid=$!
  if [[ $2 == killed ]] && ! kill_one "$pid" "$dir"; then
    echo "accept_mnist: no worker of $1 could be killed in mid-run" >&2
    wait "$pid" || true
    return 1
  fi
  wait "$pid"
}

kept=yes
rows=()
for preset in "${presets[@]}"; do
  for kind in whole killed; do
    workers=$([[ $kind == whole ]] && echo 2 || echo 3)
    dir=$out/$preset-$kind
    wanted=$(bound "$preset" "$kind")
    if ! run "$preset" "$kind" "$workers"; then
      rows+=("$(printf '%-10s %-7s %8s %9s %8s %10s  %s' "$preset" "$kind" "$wanted" - - - "FAILED: see $dir.log")")
      kept=no
      continue
    fi
    accuracy=$(value "$dir" test_accuracy)
    complete=$([[ $(value "$dir" samples) -eq $((train_samples * epochs)) ]] && echo yes || echo no)
    verdict=kept
    python3 -c "import sys; sys.exit(not ($accuracy >= $wanted))" && [[ $complete == yes ]] || verdict=BROKEN
    [[ $verdict == kept ]] || kept=no
    rows+=("$(printf '%-10s %-7s %8s %9.4f %8.0f %10.2f  %s' "$preset" "$kind" "$wanted" "$accuracy" \
      "$(value "$dir" wall_seconds)" "$(value "$dir" staleness_mean)" "$verdict")")
    echo "accept_mnist: ${rows[-1]}"
  done
done

echo
printf '%-10s %-7s %8s %9s %8s %10s  %s\n' preset run promised accuracy seconds staleness verdict
printf '%s\n' "${rows[@]}"
[[ $kept == yes ]]
