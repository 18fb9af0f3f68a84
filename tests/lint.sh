#!/usr/bin/env bash
# Checks the form of all files that Git does not ignore: C++ and CUDA with clang-format, shell scripts with shellcheck, BUILD
# files with tests/build_files.py, how files are opened, that the names of types differ, and the recipes of CONTRIBUTING.md with tests/recipes.py. It takes seconds, and .ci/run fails where it does.
#
#   tests/lint.sh
#
# Prints every difference and how to remove it. The tools are those of Debian 12, which deploy/setup.sh installs.
# Exit codes: 0 no difference, 1 some, 2 a tool is missing.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

# Another version of clang-format breaks lines elsewhere.
for tool in clang-format-14 shellcheck python3; do
  command -v "$tool" >/dev/null || { echo "lint: $tool is not installed; run deploy/setup.sh" >&2; exit 2; }
done

# files PATTERN...: prints the files that match, new ones included, deleted ones not.
files() {
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
    [[ ! -e $file ]] || echo "$file"
  done
}
mapfile -t sources < <(files '*.h' '*.cc' '*.cu')
mapfile -t scripts < <(files '*.sh' '*.sbatch' .ci/run)
mapfile -t builds < <(files BUILD '*/BUILD')
[[ ${#sources[@]} -gt 0 ]] || { echo "lint: git ls-files names no source file in $PWD" >&2; exit 2; }

failed=0
# hint TEXT: says how to remove what was found.
hint() {
  echo "lint: $*"
  failed=1
}

printf '%s\0' "${sources[@]}" |
  xargs -0 -n 16 -P "$(nproc)" clang-format-14 --dry-run -Werror --ferror-limit=1 ||
  hint "format the files that are named above: clang-format-14 -i FILE..."
shellcheck "${scripts[@]}" ||
  hint "change the lines above as shellcheck suggests; where it is wrong, disable its check for that line, with the reason"
tests/build_files.py "${builds[@]}" || hint "change the BUILD files as it is said above"
# OpenFile does not wait for a named pipe. Exempt are what a process has created under a name that nobody can guess, its own
# log, directories, and the kernel's files.
mapfile -t product < <(files 'cli/*.cc' 'common/*.cc' 'server/*.cc' 'worker/*.cc')
! grep -nE '(ifstream |fopen\(|gzopen\()|(^|[^.>_[:alnum:]])open\(.*O_' "${product[@]}" |
  grep -vE '/dev/null|/proc/|O_DIRECTORY|O_EXCL|open\(temporary|command_\.log|^common/(file_access|processors)\.cc|^cli/report/comparison\.cc' ||
  hint "open the files above with OpenFile or ReadFile (common/file_access.h)"
# Two types of one name in the namespace would be one to the linker, in a program that has both. kernels/cuda has its own.
mapfile -t headers < <(files '*.h' ':!tests' ':!kernels/cuda')
twice=$(grep -hE '^(class|struct) [^;]*\{' "${headers[@]}" |
  sed -E 's/^(class|struct) (ABSL_[A-Z_]+ )?([[:alnum:]]+).*/\3/' | sort | uniq -d)
[[ -z $twice ]] || hint "give the types that several headers define names of their own:" "$twice"
tests/recipes.py || hint "bring the recipe up to date, or find the table that the new place should read"
[[ $failed -ne 0 ]] || echo "lint: ${#sources[@]} sources, ${#scripts[@]} scripts and ${#builds[@]} BUILD files are in order"
exit "$failed"
