#!/usr/bin/env bash
# Runs the tests of single accesses with builds for lesser processors than this one: with AVX2, and without either
# AVX or fused multiply-adds.
set -euo pipefail
cd "$(dirname "$0")/../.."
python="${PYTHON_BIN:-.venv/bin/python}"
if [ "$(uname -m)" != x86_64 ] || ! command -v "${CXX:-g++}" > /dev/null; then
  echo "no x86-64 or no C++ compiler: there is nothing to build"
  exit 0
fi
for processor in ${HAM_MARCH:-x86-64-v3 x86-64}; do
  HAM_MARCH="$processor" "$python" -m pytest tests/ops/test_{native,quick}.py "$@"
done
