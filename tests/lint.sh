#!/usr/bin/env bash
# Checks the form of all files that Git does not ignore: C++ and CUDA with clang-format, Python with ruff
# (.ruff.toml), the types of the Python package with mypy (.mypy.ini), scripts with ShellCheck, BUILD files
# with tests/build_files.py, how files are opened, which clocks measure time, that the names of types differ,
# comments with tests/comments.py, the language, the width of lines, the layers of docs/architecture.md with
# tests/layers.py, the size of each room with tests/size.py, and the recipes of CONTRIBUTING.md with
# tests/recipes.py. It takes seconds, and .ci/run fails if it does.
#
#   tests/lint.sh
#
# Prints every difference and how to remove it. The tools are those of Debian 12, which deploy/setup.sh
# installs, and ruff and mypy from PyPI in ~/.cache/catchment/lint: a machine that does not reach PyPI leaves
# out their checks. Exit codes: 0 no difference, 1 some, 2 a tool is missing.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

# Other versions of clang-format break lines differently.
for tool in clang-format-14 shellcheck python3; do
  command -v "$tool" >/dev/null || { echo "lint: $tool is not installed; run deploy/setup.sh" >&2; exit 2; }
done

# files PATTERN...: prints the files that match, including new ones, except deleted ones.
files() {
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
    [[ ! -e $file ]] || echo "$file"
  done
}
mapfile -t sources < <(files '*.h' '*.cc' '*.cu')
mapfile -t scripts < <(files '*.sh' '*.sbatch' '*.pbs' .ci/run)
mapfile -t builds < <(files BUILD '*/BUILD')
[[ ${#sources[@]} -gt 0 ]] || { echo "lint: git ls-files names no source file in $PWD" >&2; exit 2; }

failed=0
# hint TEXT: names the remedy.
hint() {
  echo "lint: $*"
  failed=1
}

printf '%s\0' "${sources[@]}" |
  xargs -0 -n 16 -P "$(nproc)" clang-format-14 --dry-run -Werror --ferror-limit=1 ||
  hint "format the files that are named above: clang-format-14 -i FILE..."
lint=$HOME/.cache/catchment/lint
if PIP_RETRIES=0 tests/python/environment.sh "$lint" tests/python/requirements/lint.txt >/dev/null 2>&1; then
  "$lint/bin/ruff" format --quiet --diff . ||
    hint "format the Python files as shown above: $lint/bin/ruff format"
  "$lint/bin/ruff" check --quiet . || hint "change the lines above as ruff suggests; $lint/bin/ruff check --fix does some"
  "$lint/bin/mypy" --no-error-summary || hint "correct the types above"
else
  echo "lint: skipped the format, the rules and the types of the Python files, since ruff and mypy could not be" \
    "installed: tests/python/environment.sh $lint tests/python/requirements/lint.txt"
fi
shellcheck "${scripts[@]}" ||
  hint "change the lines above as shellcheck suggests; if it is wrong, disable its check for that line, with the reason"
tests/build_files.py "${builds[@]}" || hint "change the BUILD files as shown above"
# OpenFile does not wait for a named pipe. Exempt are files that a process has created under a name that
# nobody can guess, its own log, directories, pipes between processes, and the kernel's files.
mapfile -t product < <(files 'cli/*.cc' 'common/*.cc' 'server/*.cc' 'worker/*.cc')
! grep -nE '(ifstream |fopen\(|gzopen\()|(^|[^.>_[:alnum:]])open\(.*O_' "${product[@]}" |
  grep -vE '/dev/null|/proc/|O_DIRECTORY|O_EXCL|open\(temporary|command_\.log|^common/base/(file_access|processors|shared_arena)\.cc|^common/net/message_pipe\.cc' ||
  hint "open the files above with OpenFile or ReadFile (common/base/file_access.h)"
# common/codec includes nothing of common/base.
mapfile -t returning < <(files '*.h' '*.cc' ':!tests' ':!common/codec' ':!common/base/status_macros.h')
! grep -nE 'if \((.* )?(\w+) = .*; !\2\.ok\(\)\) return \2;|if \(!(\w+)\.ok\(\)\) return \3(\.status\(\))?;' "${returning[@]}" ||
  hint "write RETURN_IF_ERROR or ASSIGN_OR_RETURN (common/base/status_macros.h) in the lines above"
# The time of day may be set at any moment, so that durations are those of the monotonic clock. Exempt are
# times of day that a file, a message or a certificate has, and a wait under ThreadSanitizer.
mapfile -t timed < <(files '*.h' '*.cc' '*.cu' '*.py' '*.sh' '*.sbatch' '*.pbs' ':!tests')
time_of_day='system_clock|high_resolution_clock|[^_]\btime\((nullptr|NULL|0|&)|gettimeofday|CLOCK_REALTIME\b|absl::Now\('
# shellcheck disable=SC2016  # a pattern
time_of_day+='|\btime\.time(_ns)?\(|\b(from time import .*\btime\b)|datetime\.(utc)?now|[$(]SECONDS\b|\bEPOCH(SECONDS|REALTIME)\b|date \+%s'
! grep -nE "$time_of_day" "${timed[@]}" | grep -vE '^[^:]*:[0-9]+: *(//|#)' |
  grep -vE '^(cli/doctor/checkup|common/net/rpc|server/host/master_host|server/outputs/outputs|server/process/master_run)\.cc:|^common/base/mutex\.h:|^python/catchment/track\.py:|^deploy/(make_certs\.sh|quickstart\.sh|gpu/check_gpu\.py):' ||
  hint "measure durations with SteadyClock (common/base/clock.h), TimeIn (common/net/rpc.h), time.monotonic or /proc/uptime, not with the time of day"
# Outputs read the facts of a run from the tables of common/measures. Exempt are decisions and warnings that
# follow from some of them, and the sentence of `catchment stop`.
mapfile -t outputs < <(files 'cli/*.cc' 'common/metrics/*.cc' 'server/outputs/*.cc' 'simulation/*.cc')
numbers=$(sed -n '/^message JobStatus /,/^}/s/^  \(optional \)\?\(double\|uint32\|uint64\) \(\w*\) = .*/\3/p' proto/master.proto | paste -sd '|')
! grep -nE "\\b(status|before|now)(_|\(\))?(\.|->)(has_)?($numbers)\(\)" "${outputs[@]}" |
  grep -vE '^(cli/(live/(\w*advice|progress|stop)|local/train_monitor)|server/outputs/progress_log|simulation/simulated_master)\.cc:' ||
  hint "read the measures above from JobMeasures (common/measures/measures.h), not from the status"
# The linker would merge two types of one name in the namespace, in a program that has both. kernels/cuda has
# its own.
mapfile -t headers < <(files '*.h' ':!tests' ':!kernels/cuda')
twice=$(grep -hE '^(class|struct) [^;]*\{' "${headers[@]}" |
  sed -E 's/^(class|struct) (ABSL_[A-Z_]+ )?([[:alnum:]]+).*/\3/' | sort | uniq -d)
[[ -z $twice ]] || hint "give the types that several headers define different names:" "$twice"
# Others may share a machine's GPUs, so no script and no page changes a setting of one.
mapfile -t commands < <(files '*.md' '*.py' '*.sh' '*.sbatch' '*.pbs' '*.yaml' ':!tests/lint.sh')
! grep -nE 'nvidia-smi.*[^[:alnum:]-](-(pm|pl|lgc|rgc|lmc|rmc|ac|rac|mig|cc|r|c|e)|--(persistence-mode|power-limit|lock-|reset-|gpu-reset|applications-clocks|compute-mode|multi-instance-gpu|ecc-config|auto-boost)[[:alnum:]-]*)([^[:alnum:]-]|$)' "${commands[@]}" ||
  hint "leave the settings of GPUs in the lines above as they are"

# Language.
mapfile -t commented < <(files '*.h' '*.cc' '*.cu' '*.proto')
mapfile -t explained < <(files '*.h' '*.cc' '*.cu' '*.proto' '*.py' '*.sh' '*.sbatch' '*.pbs' '*.bzl' BUILD '*/BUILD' .ci/run)
mapfile -t worded < <(files '*.md'; printf '%s\n' "${explained[@]}")
tests/comments.py "${explained[@]}" || hint "change the comments above as shown"
! grep -nE '\b([Ii]s|[Aa]re|[Ww]as|[Ww]ere) no [A-Za-z]+' "${worded[@]}" |
  grep -vE '\b[Tt]here (is|are|was|were) no |\b(are|was|were) no (longer|more|faster|slower|staler) |\bno faster ' ||
  hint 'write "is not a", not "is no", except after "there"'
# clang-format keeps code within 110 columns. Texts in quotes, tables, and commands in pages may be wider.
! grep -nE '^.{111}' "${commented[@]}" | grep -E '^[^"]*//' ||
  hint "break the comments above after at most 110 columns"
# docs/job_reference.md is generated.
mapfile -t broken < <(files '*.md' '*.sh' ':!docs/job_reference.md')
! awk 'FNR == 1 { block = 0 }
       /^ *(```|~~~)/ && FILENAME ~ /\.md$/ { block = !block }
       length($0) > 110 && !block && !(FILENAME ~ /\.md$/ && /^( *\||    )/) && !/["\047`]|   / \
         { print FILENAME ":" FNR ":" $0; found = 1 }
       END { exit !found }' "${broken[@]}" ||
  hint "break the lines above after at most 110 columns"
tests/layers.py || hint "include downwards, or change the table of docs/architecture.md with the reason"
tests/size.py || hint "keep the rooms above within their budgets"
tests/recipes.py || hint "bring the recipe up to date, or find the table that the new place should read"
[[ $failed -ne 0 ]] || echo "lint: ${#sources[@]} sources, ${#scripts[@]} scripts and ${#builds[@]} BUILD files are in order"
exit "$failed"
