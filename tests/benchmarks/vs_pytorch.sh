#!/bin/bash
# Training samples per second of Catchment and of PyTorch, on this machine, in turns. See vs_pytorch.py.
# PYTHON is the interpreter that has torch, where python3 does not.
#
#   tests/benchmarks/vs_pytorch.sh [--json=FILE] [--isa=avx2|native] [--models=hep_lstm,resnet20] [--threads=1,2]
#                                  [--seconds=5] [--rounds=5]
set -euo pipefail
exec "${PYTHON:-python3}" "$(dirname "$0")/vs_pytorch.py" "$@"
