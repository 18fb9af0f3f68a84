#!/usr/bin/env bash
# Makes one relocatable tarball that tests what works on a GPU machine and how fast: all of
# deploy/bundle.sh's, the tests that run on a device, the benchmark of one worker, and deploy/gpu/run.sh,
# which runs them and writes one file of results.
#
#   deploy/gpu_bundle.sh [--out=FILE] [--bin=DIR] [--cublas]
#
# --out=FILE   the tarball; default out-bundle/catchment-gpu-VERSION.tar.gz in the project
# --bin=DIR    take the programs from this Bazel output folder as they are, and build nothing
# --cublas     take cuBLAS along (about 600 MB), for machines that have neither CUDA 13 nor PyTorch for it
#
# There, on x86-64 Linux with an NVIDIA driver for CUDA 13 and Python 3:
#
#   tar -xzf catchment-gpu-VERSION.tar.gz && catchment-gpu-VERSION/run.sh
#
# Exit codes: 0 made, 1 something went wrong (it says what), 2 usage.
set -euo pipefail

readonly script=gpu_bundle
readonly targets=(//cli:catchment //server:catchment_server //worker:catchment_worker
                  //kernels/cuda:libcatchment_cuda.so //tests/kernels/cuda:cuda_layers_test
                  //tests/benchmarks/network:train_speed)
readonly programs=(cli/catchment server/catchment_server worker/catchment_worker
                   tests/kernels/cuda/cuda_layers_test tests/benchmarks/network/train_speed)
readonly plugin=kernels/cuda/libcatchment_cuda.so

# shellcheck source=deploy/bundle_parts.sh
source "$(dirname "${BASH_SOURCE[0]}")/bundle_parts.sh"
begin "$@"
make_tree catchment-gpu
add_licenses
check_complete
cp -RL examples python LICENSE deploy/gpu/* "$tree/"
rm -f "$tree"/{examples,python}/BUILD
find "$tree" -name __pycache__ -prune -exec rm -rf {} +
pack "${out:-$PWD/out-bundle/catchment-gpu-$version.tar.gz}"
