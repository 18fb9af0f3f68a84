#!/usr/bin/env bash
# Tests what --version says: the commit of the sources, which common/bazel/workspace_status.sh finds, and the
# CUDA plugin.
set -uo pipefail
source tests/deploy/check.sh

readonly script=common/bazel/workspace_status.sh
readonly tree=$TEST_TMPDIR/tree
export GIT_CONFIG_NOSYSTEM=1 HOME=$TEST_TMPDIR GIT_CEILING_DIRECTORIES=$TEST_TMPDIR
mkdir -p "$tree/common/bazel"
cp "$script" "$tree/$script"

# A tarball of no repository.
run "$tree/$script"
expect_status 0
expect_true "nothing is printed where no commit is known, and not: $output" test -z "$output"

# As `git archive` writes it.
echo 0123456789abcdef0123456789abcdef01234567 >"$tree/common/bazel/commit"
run "$tree/$script"
expect_output "BUILD_SCM_REVISION 0123456789ab"
# As it is in a repository.
# shellcheck disable=SC2016
echo '$Format:%H$' >"$tree/common/bazel/commit"
run "$tree/$script"
expect_no_output BUILD_SCM_REVISION

(cd "$tree" && git init -q && git add . && git -c user.name=a -c user.email=a@b commit -qm first) ||
  fail "git"
commit=$(git -C "$tree" rev-parse --short=12 HEAD)
run "$tree/$script"
expect_true "the commit, and not: $output" test "$output" = "BUILD_SCM_REVISION $commit"
echo changed >>"$tree/common/bazel/commit"
run "$tree/$script"
expect_output "BUILD_SCM_REVISION $commit-dirty"

# The programs, where the sources that they were built from are known.
unset GIT_CEILING_DIRECTORIES
if [[ -n $("$(realpath "$script")") ]]; then
  for program in cli/catchment server/catchment_server worker/catchment_worker; do
    run "$program" --version
    expect_status 0
    expect_output "commit: "
    expect_no_output "not recorded"
  done
fi

# The plugin is the one that a worker would open, and not that of the build.
for program in cli/catchment worker/catchment_worker; do
  run env CATCHMENT_CUDA_PLUGIN=/nowhere/plugin.so "$program" --version
  expect_output "CUDA: no plugin at /nowhere/plugin.so"
  run env CATCHMENT_CUDA_PLUGIN="$PWD/tests/kernels/cuda/cuda_plugin_on_host.so" "$program" --version
  expect_output "CUDA: plugin $PWD/tests/kernels/cuda/cuda_plugin_on_host.so, built with "
done
