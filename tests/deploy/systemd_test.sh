#!/usr/bin/env bash
# The unit files of deploy/systemd, as systemd-analyze sees them. Without it, the test says so and is skipped.
set -euo pipefail
source tests/deploy/check.sh

if ! command -v systemd-analyze >/dev/null; then
  echo "SKIPPED: there is no systemd-analyze"
  exit 0
fi
for unit in catchment-server.service catchment-worker@.service; do
  # verify wants the programs to be there.
  sed "s,/opt/catchment/bin/catchment_\(server\|worker\),$PWD/\1/catchment_\1," "deploy/systemd/$unit" \
    >"$TEST_TMPDIR/$unit"
  run systemd-analyze verify --man=no "$TEST_TMPDIR/$unit"
  expect_status 0
  [[ -z $output ]] || fail "verify says: $output"
  # 10 is open, 0 closed; a unit with nothing set has 9.6.
  run systemd-analyze security --offline=true --threshold=20 "$TEST_TMPDIR/$unit"
  expect_status 0
done

# Every flag that a unit gives is the program's.
for program in server worker; do
  run "$program/catchment_$program" --help
  help=$output
  while read -r flag; do
    [[ $help == *"  $flag="* ]] || fail "catchment_$program has no $flag"
  done < <(grep -h '^ExecStart=' "deploy/systemd/catchment-$program"*.service | grep -o -- '--[a-z_]*')
done
