#!/usr/bin/env bash
# Makes a virtual environment of pinned packages, unless it is there with the same ones.
#
#   tests/python/environment.sh DIRECTORY LIST
#
# LIST: the packages, with their hashes; their dependencies are not added: what a list of PyTorch's leaves out
# is for GPUs.
# Exit codes: 0 it is there, 1 it could not be made, 2 usage.
set -euo pipefail
[[ $# -eq 2 ]] || { echo "usage: tests/python/environment.sh DIRECTORY LIST" >&2; exit 2; }
place=$1 list=$2

if ! cmp --silent "$list" "$place/installed.txt"; then
  rm -rf "$place"
  python3 -m venv "$place"
  "$place/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement="$list"
  cp "$list" "$place/installed.txt"
fi
