#!/usr/bin/env bash
# Builds the C tests once more with sanitizers and runs them: one entry of the outer ctest.
#
#   sanitized.sh SOURCE BUILD SANITIZERS FOLDER TARGET
#
# FOLDER is the part of tests/ that is run ("." = all C tests), TARGET what builds it.
set -euo pipefail
source=$1 build=$2 sanitizers=$3 folder=$4 target=$5

# Findings end the test; libraries that are not instrumented are named in docs/testing.md.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DXPTYCHOD_WERROR=ON \
    -DXPTYCHOD_TESTS=ON -DXPTYCHOD_SANITIZE="$sanitizers" >/dev/null
cmake --build "$build" -j "$(nproc)" --target "$target" | tail -n 20
ctest --test-dir "$build/tests/$folder" -j 2 --output-on-failure --no-tests=error
