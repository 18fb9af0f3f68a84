#!/bin/sh
# Prints the commit for --version: that of the Git repository, "-dirty" with changes that are in none; or, in
# sources that `git archive` has made, the one in common/bazel/commit. Prints nothing if there is neither.
# .bazelrc names this script as the workspace status: the key is one of those that Bazel gives to a program
# when it is linked, and that alone do not make it link again.
#
#   common/bazel/workspace_status.sh
cd "$(dirname "$0")/../.." || exit
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ] &&
  commit=$(git rev-parse --verify --short=12 HEAD 2>/dev/null); then
  [ -z "$(git status --porcelain)" ] || commit=$commit-dirty
else
  commit=$(grep '^[0-9a-f]\{12,\}$' common/bazel/commit 2>/dev/null | cut -c 1-12)
fi
[ -z "$commit" ] || echo "BUILD_SCM_REVISION $commit"
