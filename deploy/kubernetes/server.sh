#!/usr/bin/env bash
# One server of a job in a numbered Pod of a StatefulSet or an Indexed Job.
#
#   deploy/kubernetes/server.sh [FLAG...]     more flags of catchment_server
#
# Environment:
#   HOSTNAME                     ends in the server's index
#   SERVERS                      how many there are
#   HOST_PREFIX, SERVICE, PORT   server i is at ${HOST_PREFIX}i.$SERVICE:$PORT
#   JOB                          the job file
#   OUT                          results and checkpoints: a volume that all servers see
#   AWAIT                        a file, if there is one that must be there before the server starts
#   STAY                         a file. With it the container stays, doing nothing, once the job has ended: a
#                                StatefulSet would start it anew. The file is there from then on
#
# If there is a checkpoint, the server continues from it, so that the job continues when all servers are
# started again after one was lost. A job that is done does not begin anew; one that was ended before its
# budget was spent does, because of the exit code.
# Exit codes: 0 the job is done; 1 it was ended before; otherwise catchment_server's.
set -uo pipefail

say() { echo "server.sh: $*" >&2; }

stay() {
  say "the job has ended; waiting to be removed"
  touch "$STAY"
  trap 'exit 0' TERM INT
  sleep infinity &
  wait
}

if [[ ${1:-} == --help ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit 0
fi
# shellcheck source=deploy/kubernetes/await.sh
source "$(dirname "${BASH_SOURCE[0]}")/await.sh"
index=${HOSTNAME##*-}
[[ $index =~ ^[0-9]+$ && $index -lt $SERVERS ]] || { say "$HOSTNAME is none of $SERVERS servers"; exit 1; }
if [[ -n ${STAY:-} ]] && done_in "$OUT"; then
  stay
  exit 0
fi

list=
for ((i = 0; i < SERVERS; ++i)); do list+=${list:+,}$HOST_PREFIX$i.$SERVICE:$PORT; done
# A Pod's own name may come a little later than the Pod.
for ((i = 0; i < 60; ++i)); do
  getent hosts "$HOST_PREFIX$index.$SERVICE" >/dev/null && break
  sleep 1
done
trap 'exit 143' TERM INT
[[ -z ${AWAIT:-} || -e $AWAIT ]] || say "waiting for $AWAIT, which the first worker writes"
until [[ -z ${AWAIT:-} || -e $AWAIT ]]; do sleep 1; done
resume=()
if compgen -G "$OUT/checkpoints/*/manifest.textproto" >/dev/null; then resume=(--resume); fi

"$(dirname "${BASH_SOURCE[0]}")/../../bin/catchment_server" --job="$JOB" --index="$index" --servers="$list" \
  --out="$OUT" "${resume[@]}" "$@" &
server=$!
signaled=no
trap 'signaled=yes; kill -TERM "$server"' TERM INT
await "$server"
code=$?
[[ $code -eq 0 ]] || exit "$code"
done_in "$OUT" || { say "the server has ended and the job is not done"; exit 1; }
[[ $signaled == yes || -z ${STAY:-} ]] || stay
