# shellcheck shell=bash
# What deploy/bundle.sh and deploy/gpu_bundle.sh have in common; they source it. It wants
#   script     its name, for what it says
#   targets    Bazel targets that are built without --bin
#   programs   executables in the Bazel output folder, the first one being catchment
#   plugin     the CUDA plugin there
# shellcheck disable=SC2154

# What glibc itself brings, and what only a GPU's driver can bring.
readonly left_out='^(linux-vdso|ld-linux|libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl|libcuda)[.-]'

say() { echo "${script}: $*"; }

die() {
  echo "${script}: $*" >&2
  exit 1
}

# The script's own first comment.
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }

# begin ARGUMENT...: the flags of both; then the project's folder is the current one, and there is something to bundle.
# Sets
#   out        the tarball; empty: the default
#   cublas     yes or no: whether cuBLAS is taken along
#   bin        the Bazel output folder
begin() {
  local argument
  out=
  bin=
  cublas=no
  for argument in "$@"; do
    case $argument in
      --out=?*) out=$(realpath -m "${argument#*=}") ;;
      --bin=?*) bin=$(realpath "${argument#*=}") ;;
      --cublas) cublas=yes ;;
      --help | -h) usage; exit 0 ;;
      *) echo "$script: no such flag: $argument; --help lists them" >&2; exit 2 ;;
    esac
  done
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  command -v patchelf >/dev/null || die "there is no patchelf; deploy/setup.sh installs it"
  [[ -n $bin ]] || build
}

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

# pack FILE: the tree. The same files make the same bytes.
pack() {
  mkdir -p "$(dirname "$1")"
  tar --create --directory="$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=go=rX,u+w \
    "$(basename "$tree")" | gzip -n >"$1.part"
  mv "$1.part" "$1"
  say "$1: $(du -h "$1" | cut -f1), $(find "$tree/lib" -type f | wc -l) libraries"
}

# Sets described and version, and makes tree, in work.
# make_tree PREFIX
make_tree() {
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  described=$("$bin/${programs[0]}" --version) || die "$bin/${programs[0]} does not run here"
  version=$(awk 'NR == 1 { print $2 }' <<<"$described")
  tree=$work/$1-$version
  mkdir -p "$tree"/{bin,lib,licenses}
  for program in "${programs[@]}"; do add_program "$bin/$program"; done
  if [[ $described == *"CUDA: plugin built"* ]]; then
    add_program "$bin/$plugin" /usr/local/cuda/lib64
  elif [[ $cublas == yes ]]; then
    die "--cublas: this build has no CUDA plugin"
  fi
  echo "$described" >"$tree/VERSION"
}
