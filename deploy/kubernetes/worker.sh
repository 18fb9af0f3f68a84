#!/usr/bin/env bash
# A worker or an evaluator of a job in a Pod of a Job.
#
#   deploy/kubernetes/worker.sh FLAG...     flags of catchment_worker
#
# Environment: OUT, the volume with the servers' results.
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

touch /tmp/begun
signaled=no
"$(dirname "${BASH_SOURCE[0]}")/../../bin/catchment_worker" "$@" &
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
