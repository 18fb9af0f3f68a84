#!/usr/bin/env bash
# deploy/quickstart.sh in a stand-in for the project, whose build and command do nothing but say so.
set -euo pipefail
source tests/deploy/check.sh

readonly project=$TEST_TMPDIR/project
mkdir -p "$project"/{deploy,bin,bazel-bin/cli,python/catchment} "$TEST_TMPDIR"/{data/mnist,home,elsewhere}
cp deploy/quickstart.sh "$project/deploy/"
stubs=$project/deploy
# shellcheck disable=SC2016  # The stub expands it.
stub setup.sh <<<'echo "setup in $PWD"'
stub fetch_mnist.sh <<<'echo "no network" >&2; exit 1'
stubs=$project/bin
# shellcheck disable=SC2016  # The stub expands it.
stub bazel <<<'echo "bazel $*"; exit ${FAKE_BUILD:-0}'
stubs=$project/bazel-bin/cli
stub catchment <<'END'
echo "catchment $*"
for arg in "$@"; do [[ $arg == --out=* ]] && out=${arg#--out=}; done
mkdir -p "$out"
echo "{\"test_accuracy\": ${FAKE_ACCURACY:-0.99}}" >"$out/summary.json"
exit ${FAKE_TRAIN:-0}
END

put_mnist() {
  mkdir -p "$1"
  touch "$1"/{train,t10k}-labels-idx1-ubyte "$1"/{train,t10k}-images-idx3-ubyte.gz
}
# quickstart VARIABLE=VALUE... -- ARGUMENT...: from another directory, with nothing else in the environment.
quickstart() {
  local environment=()
  while [[ $# -gt 0 && $1 != -- ]]; do environment+=("$1"); shift; done
  shift || true
  run env -C "$TEST_TMPDIR/elsewhere" -i PATH="$project/bin:$PATH" HOME="$TEST_TMPDIR/home" \
    "${environment[@]}" bash "$project/deploy/quickstart.sh" "$@"
}

# Nothing at hand: drawn digits, and it says so.
quickstart
expect_status 0
expect_output "setup in $project"
expect_output "part 2 of 5: building (the first time takes"
expect_output "bazel build"
expect_no_output "noshow_progress"
expect_output "part 2 of 5 took"
expect_output "part 5 of 5: training on generated digits"
expect_output "part 5 of 5 took"
expect_output "data.drawn_digits={}"
expect_output "--servers=1 --workers=2"
expect_output "test accuracy 0.99"
expect_output "$project/out-quickstart/model.safetensors"

# In the environment, the command and the package are the project's.
activated() { run env -C "$TEST_TMPDIR/elsewhere" -i bash -c "source '$project/.venv/bin/activate' && $1"; }
touch "$project/python/catchment/torch.py"
activated "catchment train --out=here"
expect_output "catchment train --out=here"
activated "python -c 'import catchment.torch; print(catchment.torch.__file__)'"
expect_output "$project/python/catchment/torch.py"

# Drawn digits have no target.
quickstart FAKE_ACCURACY=0.9
expect_status 0

# Three of the four files are not enough.
put_mnist "$TEST_TMPDIR/data/mnist"
rm "$TEST_TMPDIR/data/mnist/train-labels-idx1-ubyte"
quickstart CATCHMENT_DATA="$TEST_TMPDIR/data"
expect_output "generated digits"

put_mnist "$TEST_TMPDIR/data/mnist"
quickstart CATCHMENT_DATA="$TEST_TMPDIR/data"
expect_status 0
expect_output "training on MNIST, in $TEST_TMPDIR/data/mnist"
expect_no_output "drawn_digits"

# An accuracy below the target is a fault.
quickstart CATCHMENT_DATA="$TEST_TMPDIR/data" FAKE_ACCURACY=0.98
expect_status 1
expect_output "below 0.985"

# The cache is looked at, and filled.
stubs=$project/deploy
stub fetch_mnist.sh <<END
mkdir -p "\$HOME/.cache/catchment/mnist"
touch "\$HOME"/.cache/catchment/mnist/{train,t10k}-{labels-idx1,images-idx3}-ubyte.gz
END
quickstart
expect_status 0
expect_output "MNIST, fetched to $TEST_TMPDIR/home/.cache/catchment/mnist"
quickstart
expect_output "MNIST, in $TEST_TMPDIR/home/.cache/catchment/mnist"

# Another place for the results is relative to the caller, and is not overwritten.
quickstart -- results
expect_status 0
expect_output "--out=$TEST_TMPDIR/elsewhere/results"
expect_no_output "--overwrite"

# Failures are reported.
quickstart FAKE_BUILD=1
expect_status 1
expect_output "the build failed"
quickstart FAKE_TRAIN=1
expect_status 1
expect_output "training failed"
expect_output "out-quickstart/logs"
quickstart -- --frobnicate
expect_status 2
