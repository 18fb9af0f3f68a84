#!/usr/bin/env bash
# torch_test.py with the interpreter that has PyTorch: PYTHON, or python3.
set -euo pipefail
exec "${PYTHON:-python3}" tests/python/torch_test.py "$@"
