#!/bin/bash
# An argument that vs_pytorch.sh does not know is refused in one line, before anything is built or measured.
set -euo pipefail
cd "$(dirname "$0")"

# refuses ARGUMENT WORD...: the line names every word.
refuses() {
  local status=0 output word
  output=$(./vs_pytorch.sh "$1" 2>&1) || status=$?
  if [[ $status -ne 2 || $(wc -l <<< "$output") -ne 1 ]]; then
    echo "FAILED: $1: expected one line and exit code 2, got exit code $status: $output"
    exit 1
  fi
  for word in "${@:2}"; do
    [[ $output == *"$word"* ]] || { echo "FAILED: $1: expected '$word' in: $output"; exit 1; }
  done
}

refuses --isa=sse4 --isa sse4 avx2 native
refuses --models=mnist_cnn,alexnet alexnet mnist_cnn mnist_mlp hep_lstm resnet20
