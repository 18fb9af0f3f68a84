#!/usr/bin/env bash
# Compares simulations with runs on this machine, by check_against_runs.py. Its steps sleep, so they do not
# depend on the processor; those of check_against_runs.py's other job do.
set -euo pipefail

export CATCHMENT=$PWD/cli/catchment
tests/simulation/check_against_runs.py "$TEST_TMPDIR/check" synthetic
