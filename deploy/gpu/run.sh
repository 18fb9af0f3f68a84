#!/usr/bin/env bash
# Tests what works on this machine's GPU, and measures how fast. Writes results.md and results.json. Runs in
# a bundle that deploy/gpu_bundle.sh has made.
#
#   ./run.sh [--out=DIR] [--parts=device,tests,sanitizer,speed,profile,training] [--minutes=8] [--plugin=FILE]
#
# --out=DIR      where results and logs go; default results, beside this script
# --parts=LIST   what to do; default all, in this order:
#   device       what nvidia-smi and the plugin's libraries say, and three steps of a small network
#   tests        all layers and losses on the device against the processor, in all precisions, with cuBLASLt's log
#   sanitizer    some of them under compute-sanitizer's memcheck and racecheck, where it is installed
#   speed        samples per second of each model, in turns with PyTorch
#   profile      a step of resnet50 under ncu, where it is installed
#   training     models with one server and one to four workers
# --minutes=N    the time of all parts, each with its share; a step that has not begun in time is not run
# --plugin=FILE  tries all parts, with little work, on a plugin that computes on the processor, without a GPU
#
# Without a GPU it says of each part that it did not run, and why. A step that fails is run once more with
# CATCHMENT_CUDA_SYNC=1, which names the kernel that fails, and the next step follows. PyTorch is python3's,
# if it has one. Data: $CATCHMENT_DATA/mnist and cifar10; missing data is drawn by the program.
# Exit codes: 0 nothing failed, 1 something did (results.md says what), 2 usage.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for argument in "$@"; do
  case $argument in
    --out=?* | --parts=?* | --minutes=?* | --plugin=?*) ;;
    --help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "run.sh: no such flag: $argument; --help lists them" >&2; exit 2 ;;
  esac
done
command -v python3 >/dev/null || { echo "run.sh: there is no python3" >&2; exit 1; }

# library_folder FILE: prints the folder of a library of CUDA: the bundle's, the toolkit's, or that of a
# PyTorch; nothing if there is none.
library_folder() {
  local folder
  for folder in "$here/lib" /usr/local/cuda/lib64 /usr/local/cuda/lib; do
    [[ ! -e $folder/$1 ]] || { echo "$folder"; return; }
  done
  python3 - "$1" 2>/dev/null <<'PYTHON' || true
import glob, site, sys
for folder in site.getsitepackages() + [site.getusersitepackages()]:
    for file in glob.glob(folder + "/nvidia/*/lib/" + sys.argv[1]):
        print(file.rsplit("/", 1)[0])
        raise SystemExit
PYTHON
}

CATCHMENT_CUBLAS=$(library_folder libcublasLt.so.13)
export CATCHMENT_CUBLAS
cudnn=$(library_folder libcudnn.so.9)
[[ -n ${CATCHMENT_CUDNN:-} || -z $cudnn ]] || export CATCHMENT_CUDNN=$cudnn/libcudnn.so.9
exec python3 "$here/check_gpu.py" "$@"
