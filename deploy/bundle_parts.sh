# shellcheck shell=bash
# What deploy/bundle.sh and deploy/gpu_bundle.sh have in common; they source it. It wants
#   script     its name, for what it says
#   targets    Bazel targets that are built without --bin
#   programs   executables in the Bazel output folder, the first one being catchment
#   plugin     the CUDA plugin there
# shellcheck disable=SC2154

# The libraries that the kernel or a GPU's driver brings.
readonly left_out='^(linux-vdso|libcuda)[.-]'

# The loader and all libraries of the C library, which the programs use from the bundle, because they work
# only with each other. Every program names all of them, so that a library that is opened later, such as a
# driver of the machine, finds them loaded and uses none of the machine's.
readonly loader=ld-linux-x86-64.so.2
readonly c_libraries=(libanl.so.1 libc.so.6 libdl.so.2 libm.so.6 libmvec.so.1 libpthread.so.0 libresolv.so.2
                      librt.so.1 libutil.so.1)
# Libraries that the C library opens by name if /etc/nsswitch.conf says so.
readonly name_services=(libnss_compat.so.2 libnss_hesiod.so.2)

say() { echo "${script}: $*"; }

die() {
  echo "${script}: $*" >&2
  exit 1
}

# The script's own first comment.
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }

# begin ARGUMENT...: the flags of both; then the project's folder is the current one, and there is something
# to bundle. Sets
#   out        the tarball; empty: the default
#   cublas     yes or no: whether cuBLAS is taken along
#   bin        the Bazel output folder
begin() {
  local argument
  out=
  bin=
  cublas=no
  for argument in "$@"; do
    # shellcheck disable=SC2034  # The script that sources this file reads $out.
    case $argument in
      --out=?*) out=$(realpath -m "${argument#*=}") ;;
      --bin=?*) bin=$(realpath "${argument#*=}") ;;
      --cublas) cublas=yes ;;
      --help | -h) usage; exit 0 ;;
      *) echo "$script: no such flag: $argument; --help lists them" >&2; exit 2 ;;
    esac
  done
  cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
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

# libraries FILE: "NAME PATH" for each library that FILE needs, directly or not, beyond the C library and what
# is left out.
libraries() {
  local name arrow path rest
  while read -r name arrow path rest; do
    [[ ${name##*/} =~ $left_out || " ${c_libraries[*]} " == *" $name "* ]] && continue
    [[ $path != not ]] || die "$1 needs $name, which is not on this machine $rest"
    [[ $arrow == "=>" ]] && echo "$name $path"
  done < <(ldd "$1")
}

# field FILE OFFSET SIZE: the unsigned number there.
field() { od --address-radix=n --format="u$3" --skip-bytes="$2" --read-bytes="$3" "$1" | tr -d ' '; }

# forget_loader PROGRAM: turns the program header that names the absolute path of a loader (PT_INTERP, 3) into
# one that is ignored (PT_NULL, 0). The program then starts at its own entry point, which maps the loader of
# the bundle (common/start/bundled_loader.h).
forget_loader() {
  local headers count i at
  headers=$(field "$1" 32 8)
  count=$(field "$1" 56 2)
  for ((i = 0; i < count; ++i)); do
    at=$((headers + 56 * i))
    [[ $(field "$1" "$at" 4) -eq 3 ]] || continue
    printf '\0\0\0\0' | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
    return
  done
  die "$(basename "$1") names no loader"
}

# add_c_library PROGRAM: the C library that PROGRAM is linked with, and its loader, to lib/ as they are.
add_c_library() {
  local folder name
  folder=$(dirname "$(realpath "$(ldd "$1" | sed -n 's/^\tlibc.so.6 => \([^ ]*\) .*/\1/p')")")
  for name in "$loader" "${c_libraries[@]}" "${name_services[@]}"; do
    install -m 755 "$folder/$name" "$tree/lib/$name" || die "the C library in $folder has no $name"
    realpath "$folder/$name" >>"$work/origins"
  done
}

# add_program FILE: to bin/, so that it starts with the loader and C library of the bundle.
add_program() {
  local name copy=$tree/bin/${1##*/} needed=()
  add_file "$1" "\$ORIGIN/../lib"
  for name in "${c_libraries[@]}"; do needed+=(--add-needed "$name"); done
  # This is not done together with the run path, because patchelf 0.14 then writes a wrong one.
  patchelf "${needed[@]}" "$copy"
  forget_loader "$copy"
  "$copy" --help >"$work/help" 2>&1 || [[ $? -lt 126 ]] ||
    die "${1##*/} does not start from the bundle; does its cc_binary depend on //common/start? $(head -n 3 "$work/help")"
}

# add_plugin FILE: a CUDA plugin, which also finds cuBLAS where a CUDA toolkit has it.
add_plugin() { add_file "$1" "\$ORIGIN/../lib:/usr/local/cuda/lib64"; }

# add_file FILE PATHS: to bin/, where it finds libraries in PATHS, with its libraries to lib/. cuBLAS only
# with --cublas: else the one of a CUDA toolkit is found at run time.
add_file() {
  local file=$1 paths=$2 name path copy
  copy=$tree/bin/$(basename "$file")
  install -m 755 "$file" "$copy"
  # RPATH precedes LD_LIBRARY_PATH, which a cluster's modules set; RUNPATH does not.
  patchelf --force-rpath --set-rpath "$paths" "$copy"
  while read -r name path; do
    [[ $name != libcublas* || $cublas == yes ]] || continue
    [[ ! -e $tree/lib/$name ]] || continue
    install -m 644 "$(realpath "$path")" "$tree/lib/$name"
    # shellcheck disable=SC2016
    patchelf --force-rpath --set-rpath '$ORIGIN' "$tree/lib/$name"
    realpath "$path" >>"$work/origins"
  done < <(libraries "$file")
}

# The copyright files of the Debian packages that the libraries come from, and in LIBRARIES their versions,
# for comparison with Debian's security tracker.
add_licenses() {
  local package
  # Some packages name their files without /usr. A pattern (*/lib/...) would take dpkg-query 100 times as
  # long.
  sed 'p; s,^/usr,,' "$work/origins" | xargs dpkg-query --search 2>/dev/null | sed 's/: .*//; s/:.*//' |
    sort -u >"$work/packages" || true
  while read -r package; do
    [[ ! -e /usr/share/doc/$package/copyright ]] ||
      install -m 644 "/usr/share/doc/$package/copyright" "$tree/licenses/$package"
  done <"$work/packages"
  # shellcheck disable=SC2016
  xargs dpkg-query --show --showformat='${Package} ${Version} (source ${source:Package})\n' <"$work/packages" \
    >"$tree/LIBRARIES" 2>/dev/null || true
}

# Every library that a program or plugin needs, directly or not, is found in the bundle, or is one that is
# left out on purpose. A plugin finds the C library of the program.
check_complete() {
  local file name arrow path rest
  for file in "$tree"/bin/*; do
    while read -r name arrow path rest; do
      [[ $name =~ $left_out || $name == libcublas* || ${name##*/} == "$loader" ]] && continue
      [[ $file == *.so && " ${c_libraries[*]} " == *" $name "* ]] && continue
      [[ "$path $rest" == "$tree/"* ]] ||
        die "$(basename "$file") needs $name, which is not in the bundle: $path $rest"
    done < <("$tree/lib/$loader" --list "$file")
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

# A build without the CUDA Toolkit has a plugin, too, which says so.
has_plugin() {
  [[ -e $bin/$plugin &&
    $(CATCHMENT_CUDA_PLUGIN=$bin/$plugin "$bin/${programs[0]}" --version) != *"without the CUDA Toolkit"* ]]
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
  add_c_library "$bin/${programs[0]}"
  for program in "${programs[@]}"; do add_program "$bin/$program"; done
  if has_plugin; then
    add_plugin "$bin/$plugin"
  elif [[ $cublas == yes ]]; then
    die "--cublas: this build has no CUDA plugin"
  fi
  # The lines about the plugin are true only on this machine.
  sed '/^CUDA: /d' <<<"$described" >"$tree/VERSION"
  if has_plugin; then echo "CUDA: plugin included"; else echo "CUDA: no plugin"; fi >>"$tree/VERSION"
}
