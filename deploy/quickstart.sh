#!/usr/bin/env bash
# From a fresh Debian 12 machine to a trained network: sets up, builds, puts the command and the Python
# package into the virtual environment .venv of the project, finds or fetches MNIST, trains a convolutional
# network on one server and two workers.
#
#   deploy/quickstart.sh [DIR]
#
# DIR: where the results go; default out-quickstart in the project, which is overwritten.
# CATCHMENT_DATA: a folder with mnist/ in it. Without it, and without a network, training is on digits that
# the program draws.
# Exit codes: 0 trained, 1 something went wrong (it says what), 2 usage.
set -euo pipefail

readonly target=0.985  # test accuracy on MNIST
readonly epochs=3
readonly parts=5
readonly build_seconds=600  # of one core, for all of it
readonly files=(train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte)

say() { echo "quickstart: $*"; }

# begin TITLE: says which part begins, and how long the one before took.
begin() {
  end_part
  part=$((part + 1))
  part_began=$SECONDS
  say "part $part of $parts: $1"
}

end_part() {
  [[ $part -eq 0 ]] || say "part $part of $parts took $((SECONDS - part_began)) s"
}

# Prints how long a build from nothing takes on this machine, about.
build_estimate() {
  local minutes=$(((build_seconds / $(nproc) + 59) / 60))
  if [[ $minutes -eq 1 ]]; then
    echo "about a minute"
  else
    echo "up to $minutes minutes"
  fi
}

die() {
  echo "quickstart: $*" >&2
  exit 1
}

# has_mnist DIRECTORY
has_mnist() {
  local file
  for file in "${files[@]}"; do
    [[ -e $1/$file || -e $1/$file.gz ]] || return 1
  done
}

# Prints the directory with the MNIST files, if there is one. Looks where the workers look, too.
find_mnist() {
  local directory
  for directory in "${CATCHMENT_DATA:+$CATCHMENT_DATA/mnist}" \
                   "${XDG_CACHE_HOME:+$XDG_CACHE_HOME/catchment/mnist}" \
                   "${HOME:+$HOME/.cache/catchment/mnist}"; do
    if [[ -n $directory ]] && has_mnist "$directory"; then
      echo "$directory"
      return 0
    fi
  done
  return 1
}

# Sets data_flags and data_words.
choose_data() {
  local directory
  data_flags=()
  if directory=$(find_mnist); then
    data_words="MNIST, in $directory"
  elif deploy/fetch_mnist.sh && directory=$(find_mnist); then
    data_words="MNIST, fetched to $directory"
  else
    data_words="generated digits, because MNIST is not available"
    data_flags=(--set "data.drawn_digits={}")
  fi
}

# Makes .venv, whose commands and package are those of this project, as they are after later builds, too.
make_environment() {
  local name
  [[ -x .venv/bin/pip ]] || python3 -m venv .venv || die "there is no virtual environment; the reason is above"
  for name in cli/catchment server/catchment_server worker/catchment_worker; do
    ln -sf "$root/bazel-bin/$name" .venv/bin/
  done
  echo "$root/python" >"$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/catchment.pth"
}

# summary_value KEY
summary_value() {
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$out/summary.json" "$1"
}

[[ $# -le 1 && ${1:-} != -* ]] || { echo "usage: $0 [DIR]" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ $# -eq 1 ]]; then
  out=$(realpath -m "$1")
  overwrite=()
else
  out=$root/out-quickstart
  overwrite=(--overwrite)
fi
cd "$root"

part=0
begin "Debian's packages that are missing, if any (up to 2 minutes)"
deploy/setup.sh
begin "building (the first time takes $(build_estimate) on $(nproc) cores; Bazel shows [done / known actions])"
bazel build //cli:catchment || die "the build failed; the reason is above"
begin "the environment .venv, with the command and the Python package"
make_environment
begin "the data"
choose_data
begin "training on $data_words ($epochs epochs, one to three minutes on 2 cores)"
bazel-bin/cli/catchment train examples/mnist_cnn.textproto --servers=1 --workers=2 --set "epochs=$epochs" \
  "${data_flags[@]}" --out="$out" "${overwrite[@]}" ||
  die "training failed; the reason is above, and logs are in $out/logs"

end_part
accuracy=$(summary_value test_accuracy)
cat <<END

quickstart: test accuracy $accuracy, on $data_words
  weights       $out/model.safetensors   (opens with the safetensors library; names and layouts are PyTorch's)
  result        $out/summary.json
  measurements  $out/metrics.jsonl
  logs          $out/logs
  checkpoints   $out/checkpoints
Next steps, in $root after \`source .venv/bin/activate\`:
  two epochs more:    catchment train --resume --out=$out --set epochs=$((epochs + 2))
  another algorithm:  catchment train examples/mnist_cnn.textproto --workers=2 \\
                          --set algorithm.preset=downpour --out=out-downpour
  a PyTorch program:  pip install torch
                      catchment train --program="python examples/python/mnist_torch.py" --workers=2 --out=out
  what a job does:    catchment validate examples/mnist_cnn.textproto
  everything else:    catchment --help
END
if [[ ${#data_flags[@]} -eq 0 ]] && awk "BEGIN { exit !($accuracy < $target) }"; then
  die "the test accuracy is below $target, which this job should reach: that is a fault, please report it"
fi
