#!/usr/bin/env bash
# The tests of catchment.torch with the interpreter that has PyTorch: PYTHON, or python3.
set -euo pipefail
for test in copies_test torch_test torch_layers_test torch_models_test objects_test group_test \
  two_sites_test; do
  "${PYTHON:-python3}" "tests/python/$test.py"
done
