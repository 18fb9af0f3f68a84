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

readonly targets=(//cli:catchment //server:catchment_server //worker:catchment_worker
                  //kernels/cuda:libcatchment_cuda.so)
readonly programs=(cli/catchment server/catchment_server worker/catchment_worker)
readonly plugin=kernels/cuda/libcatchment_cuda.so
# What glibc itself brings, and what only a GPU's driver can bring.
readonly left_out='^(linux-vdso|ld-linux|libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl|libcuda)[.-]'

say() { echo "bundle: $*"; }

die() {
  echo "bundle: $*" >&2
  exit 1
}

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

# The commit that --version names; "-dirty" where the tree holds changes that are in none.
describe_commit() {
  local commit
  commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || { echo unknown; return; }
  [[ -z $(git status --porcelain) ]] || commit+=-dirty
  echo "$commit"
}

# Sets bin.
build() {
  local options=(--stamp "--embed_label=$(describe_commit)")
  say "building"
  bazel build --noshow_progress "${options[@]}" "${targets[@]}" || die "the build failed; the reason is above"
  bin=$(bazel info "${options[@]}" bazel-bin 2>/dev/null)
}

# libraries FILE: "NAME PATH" for each library that FILE needs, directly or not, beyond what is left out.
libraries() {
  local name arrow path rest
  while read -r name arrow path rest; do
    [[ ${name##*/} =~ $left_out ]] && continue
    [[ $path != not ]] || die "$1 needs $name, which is not on this machine $rest"
    [[ $arrow == "=>" ]] && echo "$name $path"
  done < <(ldd "$1")
}

# add_program FILE: to bin/, with its libraries to lib/. cuBLAS only with --cublas: else the one of a CUDA
# toolkit is found at run time.
add_program() {
  local file=$1 name path copy
  copy=$tree/bin/$(basename "$file")
  install -m 755 "$file" "$copy"
  # RPATH and not RUNPATH: what a cluster's modules put into LD_LIBRARY_PATH does not get between.
  patchelf --force-rpath --set-rpath "\$ORIGIN/../lib${2:+:$2}" "$copy"
  while read -r name path; do
    [[ $name != libcublas* || $cublas == yes ]] || continue
    [[ ! -e $tree/lib/$name ]] || continue
    install -m 644 "$(realpath "$path")" "$tree/lib/$name"
    # shellcheck disable=SC2016
    patchelf --force-rpath --set-rpath '$ORIGIN' "$tree/lib/$name"
    realpath "$path" >>"$work/origins"
  done < <(libraries "$file")
}

# The copyright files of the Debian packages that the libraries come from.
add_licenses() {
  local package
  sed 's,^/usr/lib/,*/lib/,' "$work/origins" | xargs dpkg-query --search 2>/dev/null | sed 's/: .*//; s/:.*//' |
    sort -u >"$work/packages" || true
  while read -r package; do
    [[ ! -e /usr/share/doc/$package/copyright ]] ||
      install -m 644 "/usr/share/doc/$package/copyright" "$tree/licenses/$package"
  done <"$work/packages"
}

# Every library that a file of the bundle names is in it, or one that is left out on purpose.
check_complete() {
  local file name
  for file in "$tree"/bin/* "$tree"/lib/*; do
    for name in $(patchelf --print-needed "$file"); do
      [[ -e $tree/lib/$name || $name =~ $left_out || $name == libcublas* ]] ||
        die "$(basename "$file") needs $name, which is not in the bundle"
    done
  done
}

out=
bin=
cublas=no
for argument in "$@"; do
  case $argument in
    --out=?*) out=$(realpath -m "${argument#*=}") ;;
    --bin=?*) bin=$(realpath "${argument#*=}") ;;
    --cublas) cublas=yes ;;
    --help | -h) usage; exit 0 ;;
    *) echo "bundle: no such flag: $argument; --help lists them" >&2; exit 2 ;;
  esac
done
command -v patchelf >/dev/null || die "there is no patchelf; deploy/setup.sh installs it"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -n $bin ]] || build

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
described=$("$bin/${programs[0]}" --version) || die "$bin/${programs[0]} does not run here"
version=$(awk 'NR == 1 { print $2 }' <<<"$described")
tree=$work/catchment-$version
mkdir -p "$tree"/{bin,lib,licenses}
for program in "${programs[@]}"; do add_program "$bin/$program"; done
if [[ $described == *"CUDA: plugin built"* ]]; then
  add_program "$bin/$plugin" /usr/local/cuda/lib64
elif [[ $cublas == yes ]]; then
  die "--cublas: this build has no CUDA plugin"
fi
add_licenses
check_complete
cp -RL examples deploy LICENSE "$tree/"
rm -f "$tree"/{examples,deploy}/BUILD
echo "$described" >"$tree/VERSION"

out=${out:-$PWD/out-bundle/catchment-$version.tar.gz}
mkdir -p "$(dirname "$out")"
# The same files make the same bytes.
tar --create --directory="$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=go=rX,u+w \
  "catchment-$version" | gzip -n >"$out.part"
mv "$out.part" "$out"
say "$out: $(du -h "$out" | cut -f1), $(find "$tree/lib" -type f | wc -l) libraries"
