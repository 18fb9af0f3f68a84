#!/usr/bin/env bash
# Makes one relocatable tarball: the programs, the shared libraries that they need beyond glibc, the CUDA
# plugin where it is built, examples, and what starts the daemons on clusters.
#
#   deploy/bundle.sh [--out=FILE] [--bin=DIR] [--cublas]
#
# --out=FILE   the tarball; default out-bundle/catchment-VERSION.tar.gz in the project
# --bin=DIR    take the programs from this Bazel output folder as they are, and build nothing
# --cublas     take cuBLAS along (about 600 MB), for GPU machines that have a driver and no CUDA toolkit
#
# Unpacked anywhere on x86-64 Linux with glibc 2.36 or newer it runs as it is, whatever else is installed:
#
#   catchment-VERSION/bin        catchment, catchment_server, catchment_worker, libcatchment_cuda.so
#   catchment-VERSION/lib        the libraries; every file finds its own by a path relative to itself
#   catchment-VERSION/examples   job files
#   catchment-VERSION/deploy     Slurm, Kubernetes, systemd, container; README.md says which
#   catchment-VERSION/licenses   of the libraries
#
# Exit codes: 0 made, 1 something went wrong (it says what), 2 usage.
set -euo pipefail

readonly script=bundle
readonly targets=(//cli:catchment //server:catchment_server //worker:catchment_worker
                  //kernels/cuda:libcatchment_cuda.so)
readonly programs=(cli/catchment server/catchment_server worker/catchment_worker)
readonly plugin=kernels/cuda/libcatchment_cuda.so

# shellcheck source=deploy/bundle_parts.sh
source "$(dirname "${BASH_SOURCE[0]}")/bundle_parts.sh"
begin "$@"
make_tree catchment
add_licenses
check_complete
cp -RL examples deploy LICENSE "$tree/"
rm -f "$tree"/{examples,deploy}/BUILD
pack "${out:-$PWD/out-bundle/catchment-$version.tar.gz}"
