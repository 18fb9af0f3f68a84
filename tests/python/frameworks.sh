#!/usr/bin/env bash
# Runs the tests of what is for frameworks with the frameworks themselves: makes a virtual environment of
# pinned packages for each row of the table below, and runs its tests with the daemons that were built.
#
#   bazel build //... && tests/python/frameworks.sh                 all rows
#   tests/python/frameworks.sh lightning keras                      these rows
#
# The environments are kept in ~/.cache/catchment/frameworks (CATCHMENT_FRAMEWORKS names another directory)
# for the next time. An environment takes up to 3 GB, and its packages come from PyPI.
# Exit codes: 0 all passed, 1 a test failed or an environment could not be made, 2 usage.
set -uo pipefail

# NAME  REQUIREMENTS, in tests/python/requirements  TESTS, in tests/python
readonly table="
torch      torch.txt         join_test copies_test torch_test torch_layers_test torch_models_test objects_test group_test two_sites_test
lightning  lightning.txt     lightning_test
hugging    hugging.txt       transformers_test
keras      keras.txt         keras_test
jax        jax.txt           jax_test
notebook   notebook.txt      notebook_test
track      track.txt         trackers_test
tune       tune.txt          study/tune_test study/api_test
"

readonly directory=${CATCHMENT_FRAMEWORKS:-$HOME/.cache/catchment/frameworks}
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

rows() { sed '/^$/d' <<<"$table"; }

for name in "$@"; do
  grep -q "^$name " <<<"$table" || {
    echo "frameworks.sh: no row $name; there are $(rows | awk '{printf "%s%s", sep, $1; sep = ", "}')" >&2
    exit 2
  }
done
if [[ ! -x bazel-bin/cli/catchment ]]; then
  echo "frameworks.sh: bazel-bin/cli/catchment is not there; build it: bazel build //..." >&2
  exit 1
fi
failed=()
while read -r name list tests; do
  [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
  echo "== $name"
  place=$directory/$name
  if ! tests/python/environment.sh "$place" "tests/python/requirements/$list"; then
    failed+=("$name")
    continue
  fi
  for test in $tests; do
    PYTHONPATH=tests/python:python "$place/bin/python" "tests/python/$test.py" || failed+=("$name: $test")
  done
done < <(rows)
if [[ ${#failed[@]} -gt 0 ]]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "all passed"
