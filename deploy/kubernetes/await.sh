# shellcheck shell=bash
# For server.sh and worker.sh: source it.

# await PID: returns the exit code of a process, also if signals interrupt the wait.
await() {
  local code
  while true; do
    code=0
    wait "$1" || code=$?
    kill -0 "$1" 2>/dev/null || return "$code"
  done
}

# done_in DIR: succeeds if the job whose results are there is done.
done_in() { grep -qs '"phase": "DONE"' "$1/summary.json"; }
