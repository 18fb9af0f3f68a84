#!/usr/bin/env bash
# Makes a Python wheel: the programs with all of their libraries, as in a bundle (deploy/bundle.sh), the
# Python package, its documentation, and the commands `catchment`, `catchment_server` and `catchment_worker`.
# `pip install catchment-*.whl` is then a whole installation. If twine is on the PATH, it checks the wheel as
# it would before an upload.
#
#   deploy/wheel.sh [--out=DIR] [--bin=DIR]
#
# --out=DIR    where the wheel goes; default out-bundle in the project
# --bin=DIR    take the programs from this Bazel output folder as they are, and build nothing
#
# For Python 3.8 or newer on Linux, x86-64 with AVX2. The programs bring their own C library and run with any
# other; the wheel is for Pythons on glibc 2.17 (2012) or newer, as pip has names for these only.
#
# Exit codes: 0 made, 1 something went wrong (it says what), 2 usage.
set -euo pipefail

out=
bundle=("$(dirname "${BASH_SOURCE[0]}")/bundle.sh")
for argument in "$@"; do
  case $argument in
    --out=?*) out=$(realpath -m "${argument#*=}") ;;
    --bin=?*) bundle+=("$argument") ;;
    --help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "wheel: no such flag: $argument; --help lists them" >&2; exit 2 ;;
  esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${bundle[@]}" \
  --out="$work/bundle.tar.gz" || { echo "wheel: there is no bundle; the reason is above" >&2; exit 1; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${out:-out-bundle}
python3 deploy/make_wheel.py "$work/bundle.tar.gz" "$out"
if command -v twine >/dev/null; then
  twine check \
    --strict "$out"/catchment-*.whl || { echo "wheel: twine refuses it; the reason is above" >&2; exit 1; }
fi
