#!/usr/bin/env bash
# Makes one relocatable tarball: the programs, all shared libraries that they need, the C library and its
# loader included, the CUDA plugin where it is built, examples, documentation, and what starts the daemons on
# clusters.
#
#   deploy/bundle.sh [--out=FILE] [--bin=DIR] [--cublas]
#
# --out=FILE   the tarball; default out-bundle/catchment-VERSION.tar.gz in the project
# --bin=DIR    take the programs from this Bazel output folder as they are, and build nothing
# --cublas     take cuBLAS along (about 600 MB), for GPU machines that have a driver and no CUDA toolkit
#
# Unpacked anywhere on x86-64 Linux it runs as it is, whatever is installed there (deploy/README.md):
#
#   catchment-VERSION/bin        catchment, catchment_server, catchment_worker, libcatchment_cuda.so
#   catchment-VERSION/lib        the libraries and the loader; every file finds its own by a path relative to itself
#   catchment-VERSION/examples   job files, and programs that train their own models
#   catchment-VERSION/python     the Python package for these (docs/python.md)
#   catchment-VERSION/README.md  what Catchment is, and where to begin
#   catchment-VERSION/docs       the pages of the documentation
#   catchment-VERSION/share      completion for bash and zsh, and the manual page
#   catchment-VERSION/deploy     Slurm, Kubernetes, systemd, containers; README.md says which
#   catchment-VERSION/LIBRARIES  the Debian packages of the libraries in lib, with their versions
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

# Adds the files that shells and man look for beside a program's bin: completion, one for each program, and
# the manual page.
add_share() {
  local share=$tree/share program
  mkdir -p "$share"/{bash-completion/completions,zsh/site-functions,man/man1}
  for program in "${programs[@]}"; do
    "$tree/bin/catchment" completion bash >"$share/bash-completion/completions/${program##*/}"
  done
  "$tree/bin/catchment" completion zsh >"$share/zsh/site-functions/_catchment"
  "$tree/bin/catchment" man >"$share/man/man1/catchment.1"
}

begin "$@"
make_tree catchment
add_licenses
check_complete
add_share
cp -RL examples deploy python README.md CHANGELOG.md CITATION.cff CONTRIBUTING.md LICENSE SECURITY.md "$tree/"
find docs/ '(' -name '*.md' -o -name '*.svg' -o -name '*.png' ')' -print0 | xargs -0 cp -L --parents --target-directory="$tree"
rm -rf "$tree"/{examples,deploy,python}/BUILD
find "$tree"/{deploy,examples,python} -name __pycache__ -prune -exec rm -rf {} +
python3 deploy/bundle_links.py "$tree"
pack "${out:-$PWD/out-bundle/catchment-$version.tar.gz}"
