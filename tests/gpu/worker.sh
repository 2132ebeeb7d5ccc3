#!/usr/bin/env bash
# The GPU worker from outside: a simulated scan goes through the worker built on emulated GPUs and through the CPU worker,
# and both results must agree; the job that names no device takes every GPU.
#
#   worker.sh WORKER_EMULATED WORKER_CPU FOLDER
set -euo pipefail
gpu=$1 cpu=$2 folder=$3
rm -rf "$folder" && mkdir -p "$folder"
export XPE_EMU_DEVICES=3 XPE_EMU_MIB=256

"$cpu" simulate --output "$folder/scan.h5" --frames-side 64 --grid 5x5 --photons 0 >"$folder/simulate.log"
job() { # name, devices
    printf '{"scan": {"path": "%s/scan.h5"}, "recon": {"iterations": 6}, %s "output": {"path": "%s/%s.h5"}}\n' \
        "$folder" "$2" "$folder" "$1" >"$folder/$1.json"
}
job gpu ''
job cpu '"devices": {"devices": ["cpu"]},'
job none '"devices": {"devices": ["cpu"]},'
"$gpu" devices | grep -q '^cuda:2: cuda (emulated)'
"$gpu" run "$folder/gpu.json" --json >"$folder/gpu.log"
"$cpu" run "$folder/cpu.json" --json >"$folder/cpu.log"
grep -q 'cuda:0.*cuda:1.*cuda:2' "$folder/gpu.log" || { echo "the job did not say that it took all three GPUs"; cat "$folder/gpu.log"; exit 1; }
nrmse=$("$cpu" compare "$folder/gpu.h5" "$folder/cpu.h5" --json | sed 's/.*"nrmse": *\([0-9.e+-]*\).*/\1/')
echo "object of the emulated GPUs against the CPU's: nrmse $nrmse"
# two correct float32 programs on a noise-free scan, six iterations with an estimated probe
awk -v x="$nrmse" 'BEGIN { exit !(x > 0 && x < 1e-3) }'

# this worker has no CPU backend, and says so
if "$gpu" run "$folder/none.json" >"$folder/none.log" 2>&1; then
    echo "the GPU worker took a job for the CPU"
    exit 1
fi
grep -q "cpu" "$folder/none.log"
