#!/usr/bin/env bash
# Runs the native engine's tests with a build that checks every address and undefined behaviour, or with
# HAM_SANITIZE=thread every two threads that touch one place at once.
# Python itself is not instrumented, so the sanitizer's runtime must come first: LD_PRELOAD.
set -euo pipefail
cd "$(dirname "$0")/../.."
compiler="${CXX:-g++}"
python="${PYTHON_BIN:-.venv/bin/python}"
if ! command -v "$compiler" > /dev/null; then
  echo "no C++ compiler ($compiler): there is no engine to sanitize"
  exit 0
fi
export HAM_SANITIZE="${HAM_SANITIZE:-1}"
if [ "$HAM_SANITIZE" = thread ]; then
  tests=(tests/ops/test_native_threads.py)
  runtimes=(libtsan.so)
  export TSAN_OPTIONS="suppressions=tests/ops/tsan.supp"
else
  tests=(tests/ops/test_native{,_bounds,_training,_recurrent,_structures,_fuzz,_threads}.py tests/ops/test_{ordinary_module,quick}.py)
  runtimes=(libasan.so libubsan.so)
  # Python's own allocations live until exit; only errors of the engine matter here.
  export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
fi
LD_PRELOAD=""
for runtime in "${runtimes[@]}"; do
  LD_PRELOAD="$LD_PRELOAD $("$compiler" -print-file-name="$runtime")"
done
export LD_PRELOAD
# What a sanitizer says goes straight to standard error, past what pytest captures.
exec "$python" -m pytest --capture=sys "${tests[@]}" "$@"
