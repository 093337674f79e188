#!/usr/bin/env bash
# Runs the native engine's tests with a build that checks every address and undefined behaviour.
# Python itself is not instrumented, so the sanitizer's runtime must come first: LD_PRELOAD.
set -euo pipefail
cd "$(dirname "$0")/../.."
compiler="${CXX:-g++}"
python="${PYTHON_BIN:-.venv/bin/python}"
if ! command -v "$compiler" > /dev/null; then
  echo "no C++ compiler ($compiler): there is no engine to sanitize"
  exit 0
fi
export HAM_SANITIZE=1
export LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libubsan.so)"
# Python's own allocations live until exit; only errors of the engine matter here.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
exec "$python" -m pytest tests/ops/test_native.py tests/ops/test_native_training.py tests/ops/test_native_recurrent.py \
  tests/ops/test_native_fuzz.py "$@"
