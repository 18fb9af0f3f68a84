#!/usr/bin/env bash
# What works on this machine's GPU, and how fast: tests, training with servers and workers, and speeds beside
# PyTorch's. Writes results.md and results.json. In a bundle that deploy/gpu_bundle.sh has made.
#
#   ./run.sh [--out=DIR] [--parts=tests,training,speed] [--minutes=8] [--on_host]
#
# --out=DIR     where results and logs go; default results, beside this script
# --minutes=N   what has not begun by then is not run
# --on_host     the CUDA layers in plain loops on the processor: tries the tests and a little training without a GPU
#
# Without a GPU it says of each part that it did not run, and why. PyTorch is python3's, where it has one. Data:
# $CATCHMENT_DATA/mnist and cifar10; what is missing is drawn by the program.
# Exit codes: 0 nothing failed, 1 something did (results.md says what), 2 usage.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for argument in "$@"; do
  case $argument in
    --out=?* | --parts=?* | --minutes=?* | --on_host) ;;
    --help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "run.sh: no such flag: $argument; --help lists them" >&2; exit 2 ;;
  esac
done
command -v python3 >/dev/null || { echo "run.sh: there is no python3" >&2; exit 1; }

# cuBLAS 13: the bundle's, the toolkit's, or that of a PyTorch for CUDA 13.
cublas_folder() {
  local folder
  for folder in "$here/lib" /usr/local/cuda/lib64 /usr/local/cuda/lib; do
    [[ ! -e $folder/libcublasLt.so.13 ]] || { echo "$folder"; return; }
  done
  python3 - 2>/dev/null <<'PYTHON' || true
import glob, site
for folder in site.getsitepackages() + [site.getusersitepackages()]:
    for file in glob.glob(folder + "/nvidia/*/lib/libcublasLt.so.13"):
        print(file.rsplit("/", 1)[0])
        raise SystemExit
PYTHON
}

CATCHMENT_CUBLAS=$(cublas_folder)
export CATCHMENT_CUBLAS
exec python3 "$here/check_gpu.py" "$@"
