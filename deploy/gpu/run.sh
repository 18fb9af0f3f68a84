#!/usr/bin/env bash
# Tests what works on this machine's GPU, and measures how fast. Runs in a bundle that deploy/gpu_bundle.sh has
# made.
#
#   ./run.sh [--parts=LIST] [--minutes=9] [--dry-run] [--out=DIR] [--archive=FILE] [--plugin=FILE]
#
# --parts=LIST   what to do; default 1,2
#   1            these three:
#   device       three steps of a small network; what nvidia-smi says, and which libraries and PyTorch there are
#   tests        all layers and losses on the device against the processor, in all precisions, with cuBLASLt's log
#   sanitizer    some of them under compute-sanitizer's memcheck and racecheck, where it is installed
#   2            these two:
#   speed        samples per second of three models in TF32 and BFLOAT16, in turns with PyTorch
#   attached     a program with PyTorch and two workers, with sync and with diloco
#   profile      only if named: a step of resnet50 under ncu, where it is installed
#   training     only if named: models with one server and one to four workers
# --minutes=N    the time of all parts, which a table (check_gpu.py) divides: of 9 minutes 1 has 300 s, and 2 has 240 s.
#                A row that has no time left is not run
# --dry-run      print this plan, and do nothing
# --out=DIR      where results and logs go; default results, or results-2 and so on, beside this script
# --archive=FILE all of DIR in one file, written after each part and at the end; default DIR.tar.gz
# --plugin=FILE  tries the parts, with little work, on a plugin that computes on the processor, without a GPU
#
# Nothing changes a setting of the GPU: clocks, limits of power, MIG and persistence mode stay as they are.
# results.md and results.json are written after each row, and a signal ends the check in order.
# Without a GPU it says of each part that it did not run, and why. A step that fails is run once more with
# CATCHMENT_CUDA_SYNC=1, which names the kernel that fails, and the next step follows. PyTorch is python3's,
# if it has one. Data of `training`: $CATCHMENT_DATA/mnist and cifar10; missing data is drawn by the program.
# Exit codes: 0 nothing failed, 1 something did (results.md says what), 2 usage, 128 + N ended by signal N.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for argument in "$@"; do
  case $argument in
    --out=?* | --archive=?* | --parts=?* | --minutes=?* | --plugin=?* | --dry-run) ;;
    --help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "run.sh: no such flag: $argument; --help lists them" >&2; exit 2 ;;
  esac
done
command -v python3 >/dev/null || { echo "run.sh: there is no python3" >&2; exit 1; }
exec python3 "$here/check_gpu.py" "$@"
