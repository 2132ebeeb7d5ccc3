#!/usr/bin/env bash
# Everything that only a machine with a GPU can tell, in one command that needs nothing but this checkout:
#
#   tests/gpu/run.sh            builds, then 1. the native tests  2. compute-sanitizer  3. the bench
#                               4. the reference program beside it, where PyTorch and it are installed
#
# Where a command may run for minutes only, in slices: XPTYCHOD_GPU_STEPS=1, then 2, then "3 4"; what is built stays.
# About four minutes of building and native tests, ten of compute-sanitizer, six of bench on an H200 (estimates).
# XPTYCHOD_GPU_SECONDS ends it in time: no part is begun after so many seconds, and what was left out is said.
#
# What is absent is left out and said.  The build is XPTYCHOD_ENGINE_ONLY: no HDF5, no HTTP; scans are made up here.
#
#   XPTYCHOD_GPU_BUILD    build folder              (default build/gpu)
#   XPTYCHOD_GPU_OUT      where the report goes     (default $OUT, else the build folder)
#   XPTYCHOD_GPU_DEVICES  devices of the bench      (default: one run on cuda:0, one on all there are)
#   XPTYCHOD_GPU_STEPS    which of 1 2 3 4 to do    (default "1 2 3 4")
#
# Ends with 0 when everything that could run succeeded, 77 when there is no toolkit or no GPU.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=${XPTYCHOD_GPU_BUILD:-build/gpu}
out=${XPTYCHOD_GPU_OUT:-${OUT:-$build}}
steps=${XPTYCHOD_GPU_STEPS:-1 2 3 4}
mkdir -p "$build" "$out"
report=$out/gpu-report.txt
touch "$report" # slices add to it
failed=0

say() { echo "$*" | tee -a "$report"; }
in_time() {
    [ -z "${XPTYCHOD_GPU_SECONDS:-}" ] || [ "$SECONDS" -lt "$XPTYCHOD_GPU_SECONDS" ] && return 0
    say "left out, ${XPTYCHOD_GPU_SECONDS} s are over: $1"
    return 1
}
step() { case " $steps " in *" $1 "*) say "" && in_time "$2" && say "== $2, after $SECONDS s" ;; *) return 1 ;; esac; }
# Runs a command, its output into the report; notes a failure and goes on.
try() {
    "$@" 2>&1 | tee -a "$report"
    local rc=${PIPESTATUS[0]}
    [ "$rc" = 0 ] || { say "   exit status $rc: $*"; failed=1; }
}

# ------------------------------------------------------------------ the machine, and what it has
say "$(date -u +%Y-%m-%dT%H:%M:%SZ) $(uname -sr), $(nproc) cores, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
[ -n "$nvcc" ] || { say "skipped: no nvcc on PATH or in /usr/local/cuda/bin"; exit 77; }
cmake=$(command -v cmake || python3 -c 'import cmake; print(cmake.CMAKE_BIN_DIR + "/cmake")' 2>/dev/null || true)
[ -n "$cmake" ] || { say "skipped: no cmake on PATH and no Python wheel of it; 3.25 or newer is needed: apt-get install cmake, or pip install cmake"; exit 77; }
version=$("$cmake" --version | sed -n '1s/[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
[ "${version% *}" -gt 3 ] || [ "${version#* }" -ge 25 ] ||
    { say "skipped: cmake ${version/ /.} is too old, 3.25 is needed; pip install cmake has a newer one"; exit 77; }
ctest=$(dirname "$cmake")/ctest
command -v cc >/dev/null || { say "skipped: no C compiler"; exit 77; }
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
    say "skipped: nvidia-smi sees no GPU"
    [ "${XPTYCHOD_GPU_FORCE:-0}" = 1 ] || exit 77
else
    nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader | tee -a "$report"
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '. ')
fi

# cuFFT and NCCL lie beside the toolkit or in NVIDIA's Python wheels.
wheels=
for python in python3 /usr/bin/python3; do
    site=$("$python" -c 'import nvidia, os; print(os.path.dirname(list(nvidia.__path__)[0]))' 2>/dev/null) && wheels=$site && break
done
generator=(); command -v ninja >/dev/null && generator=(-G Ninja)

# ------------------------------------------------------------------------------------- the build
say "== build in $build"
"$cmake" -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DXPTYCHOD_ENGINE_ONLY=ON -DXPTYCHOD_CUDA=ON \
    -DXPTYCHOD_CUDA_EMU=OFF -DXPTYCHOD_TESTS=ON -DCMAKE_CUDA_COMPILER="$nvcc" -DXPTYCHOD_CUDA_WHEELS="$wheels" \
    -DXPTYCHOD_CUDA_ARCHITECTURES="${capability:-90}" >"$out/configure.log" 2>&1 ||
    { tail -20 "$out/configure.log" | tee -a "$report"; exit 1; }
grep -E "^-- (CUDA|engine only|xptychod)" "$out/configure.log" | tee -a "$report"
"$cmake" --build "$build" -j "$(nproc)" >"$out/build.log" 2>&1 || { tail -30 "$out/build.log" | tee -a "$report"; exit 1; }
[ -x "$build/bin/bench_cuda" ] || { say "skipped: the CUDA backend was left out, see above"; exit 77; }

# ------------------------------------------------------------------------------------- the tests
if step 1 "native tests of the backend, the same files that run on the CPU and the emulation"; then
    # `memory` makes the C library's allocations fail, which is about the host
    try "$ctest" --test-dir "$build" -R '^backend-cuda-|^gpu-' -E memory --output-on-failure --timeout 300
fi

# --------------------------------------------------------------------------- compute-sanitizer
if step 2 "compute-sanitizer on tiny cases"; then
    checker=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
    if [ -z "$checker" ]; then
        say "left out: compute-sanitizer is not installed"
    else
        for tool in memcheck racecheck initcheck synccheck; do
            for side in tiny cufft-400; do
                in_time "$tool, $side" || continue
                say "-- $tool, $side"
                try timeout 280 "$checker" --tool "$tool" --error-exitcode 9 "$build/bin/bench_cuda" cuda:0 --case "$side" \
                    --iterations 3 --frames-scale 0.02
            done
        done
    fi
fi

# ------------------------------------------------------------------------------------- the bench
if step 3 "bench (docs/performance.md tells how to read it)"; then
    count=$(nvidia-smi -L 2>/dev/null | wc -l)
    if [ -n "${XPTYCHOD_GPU_DEVICES:-}" ]; then
        # shellcheck disable=SC2086
        try "$build/bin/bench_cuda" $XPTYCHOD_GPU_DEVICES
    else
        try "$build/bin/bench_cuda" cuda:0
        if [ "$count" -gt 1 ]; then
            # shellcheck disable=SC2046
            try "$build/bin/bench_cuda" $(seq -f 'cuda:%g' 0 $((count - 1)))
        fi
    fi
    if command -v ncu >/dev/null; then
        say "-- bytes of device memory that each kernel moved, counted by the profiler"
        timeout 280 ncu --clock-control none --metrics dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum \
            "$build/bin/bench_cuda" cuda:0 --case 256-known --iterations 3 --frames-scale 0.05 2>&1 |
            grep -E "k_|dram__|gpu__time|rror" | tail -80 | tee -a "$report"
    else
        say "left out: ncu is not installed, bytes are those of the design only"
    fi
fi

# ----------------------------------------------------------------------- the reference program
if step 4 "the reference program (PyPI's xptycho) on the same GPU"; then
    if python3 -c 'import torch, xptycho; assert torch.cuda.is_available()' 2>/dev/null; then
        try python3 "$(dirname "$0")/reference.py"
    else
        say "left out: python3 cannot import torch and xptycho with a GPU"
    fi
fi

say ""
[ "$failed" = 0 ] && say "all that could run succeeded; report: $report" || say "something failed; report: $report"
exit "$failed"
