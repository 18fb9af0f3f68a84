#!/usr/bin/env bash
# A worker or an evaluator of a job in a Pod of a Job.
#
#   deploy/kubernetes/worker.sh FLAG...     flags of catchment_worker
#
# Environment:
#   OUT                    the volume with the servers' results
#   PROGRAM                computes the gradients (--program). The worker with JOB_COMPLETION_INDEX 0 first writes
#                          the weights that it begins with to $OUT/initial.safetensors, which the servers await
#
# A worker also ends in order if the job was stopped or has failed, and servers that are started again
# continue the job. The summary has the outcome: this Pod has done its part only if the job is done.
# Exit codes: 0 the job is done; 1 it is not; 143 after SIGTERM; otherwise catchment_worker's.
set -uo pipefail

# Seconds from the last step to the summary, most of which the final evaluation takes.
readonly patience=120

if [[ ${1:-} == --help ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit 0
fi
# shellcheck source=deploy/kubernetes/await.sh
source "$(dirname "${BASH_SOURCE[0]}")/await.sh"

# describe: writes the weights, unless an earlier Pod has.
describe() {
  local described
  [[ $role == worker && ${JOB_COMPLETION_INDEX:-} == 0 && ! -e $OUT/initial.safetensors ]] || return 0
  described=$OUT/described.textproto
  "$bin/catchment" validate --program="$PROGRAM" --write="$described" >/tmp/described &&
    mv "$described.safetensors" "$OUT/initial.safetensors"
}

bin=$(dirname "${BASH_SOURCE[0]}")/../../bin
role=worker
[[ " $* " != *" --role=evaluator "* ]] || role=evaluator
program=()
if [[ -n ${PROGRAM:-} ]]; then
  describe || { echo "worker.sh: the program does not describe its model; the reason is above" >&2; exit 1; }
  program=(--program="$PROGRAM")
fi
touch /tmp/begun
signaled=no
"$bin/catchment_worker" "$@" "${program[@]}" &
worker=$!
trap 'signaled=yes; kill -TERM "$worker"' TERM INT
await "$worker"
code=$?
# A worker that was lost or evicted ends, although the servers may have ended the job without it.
if [[ ($code -ne 0 || $signaled == yes) && $OUT/summary.json -nt /tmp/begun ]] &&
  done_in "$OUT"; then exit 0; fi
[[ $code -eq 0 ]] || exit "$code"
# A worker leaves in order after SIGTERM. A Job replaces an evicted Pod only if that has failed.
[[ $signaled == no ]] || exit 143
for ((i = 0; i < patience; ++i)); do
  [[ $signaled == no ]] || exit 1
  if done_in "$OUT"; then exit 0; fi
  # A summary that an earlier life of the job left does not count.
  [[ ! $OUT/summary.json -nt /tmp/begun ]] || break
  sleep 1
done
echo "worker.sh: the worker has ended and the job is not done" >&2
exit 1
