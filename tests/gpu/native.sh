#!/usr/bin/env bash
# The natively built bench: skipped, with the reason, where there is no toolkit; where there is no GPU it must say so in
# a sentence, and where there is one it must finish a tiny case.
set -euo pipefail
bench=${1:-}
if [ -z "$bench" ]; then
    echo "skipped: this build has no native CUDA backend (no nvcc or no cuFFT was found, or XPTYCHOD_CUDA is OFF)"
    exit 77
fi
if "$bench" cuda:0 --case tiny --iterations 3; then
    exit 0
fi
message=$("$bench" cuda:0 --case tiny --iterations 3 2>&1 || true)
if grep -q "absent: .*\(no NVIDIA driver\|no CUDA device\)" <<<"$message"; then
    echo "built and linked; no GPU here, which the program says: $(grep absent <<<"$message")"
    exit 0
fi
echo "$message"
exit 1
