#!/usr/bin/env bash
# The container's health: that of every catchment_server in it, asked at the address that its own command line
# gives. A container with no server in it is healthy as long as it runs: workers listen nowhere, and the
# master sees to them.
#
#   deploy/container/healthcheck.sh
#
# Exit codes: 0 healthy, 1 not.
set -uo pipefail

[[ $# -eq 0 ]] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; [[ $1 == --help ]]; exit; }
bin=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../bin")

# check ARGUMENT...: of a server. Flags may be given with one dash or two, and with = alone.
check() {
  local argument index=0 servers=127.0.0.1:0 tls=() addresses
  for argument in "$@"; do
    argument=--${argument##+(-)}
    case $argument in
      --index=*) index=${argument#*=} ;;
      --servers=*) servers=${argument#*=} ;;
      --tls_*=* | --insecure*) tls+=("$argument") ;;
    esac
  done
  IFS=, read -ra addresses <<<"$servers"
  "$bin/catchment" health "${addresses[index]}" "${tls[@]}"
}

shopt -s extglob
status=0
for process in /proc/[0-9]*; do
  { mapfile -d '' -t words <"$process/cmdline"; } 2>/dev/null || continue
  [[ ${words[0]:-} == ?(*/)catchment_server ]] || continue
  check "${words[@]:1}" || status=1
done
exit "$status"
