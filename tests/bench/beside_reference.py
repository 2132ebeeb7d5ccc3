#!/usr/bin/env python3
"""Seconds an iteration here and in the reference program (PyPI's xptycho) on the same cores, in turn: A B A B ...

    beside_reference.py BIN PYTHON [--rounds 3] [--threads T] [CASE ...]

BIN     folder with xptycho (a release build)
PYTHON  an interpreter that can import xptycho and torch (tests/run.sh makes one: build/tests/venv/bin/python)
CASE    FRAMESxSIDE/known or FRAMESxSIDE/MODES; default: the six of docs/performance.md

Both programs get the same simulated scan.  An iteration's time is the difference of two runs of different length, so
that starting, reading and writing do not count; ratios are taken round by round, for machines change their pace.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

THEIRS = """
import sys, time, json, h5py, torch, xptycho
scan_path, threads, modes, known, short, long = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(threads)
with h5py.File(scan_path) as f:
    g = f["scan"]; a = dict(g.attrs)
    positions = g["probe_positions" if "probe_positions" in g else "positions"][...]
    scan = xptycho.Scan(g["frames"][...], positions, wavelength=a["wavelength"],
                        det_distance=a.get("det_distance", a.get("detector_distance")),
                        det_pixel_pitch=a.get("det_pixel_pitch", a.get("detector_pitch")))
    probe = f["truth/probe"][...] if known else None
model = xptycho.PtychoModel.from_scan(scan, num_probe_modes=modes)
model.configure_devices(devices=["cpu"])
if modes > 1:
    model.set_params(mode_schedule=[1])
times = []
for iterations in (short, long):
    begin = time.perf_counter()
    model.recon(scan, probe=probe, iterations=iterations, verbose=0)
    times.append(time.perf_counter() - begin)
print((times[1] - times[0]) / (long - short))
"""

CASES = ["400x128/known", "400x128/1", "400x128/2", "100x256/known", "100x256/1", "100x256/2"]


def here(binary, scan, folder, threads, modes, known, iterations):
    job = {"scan": {"path": scan}, "model": {"probe_modes": modes}, "recon": {"iterations": iterations},
           "devices": {"devices": ["cpu"], "cpu_threads": threads}, "output": {"path": f"{folder}/out.h5", "overwrite": True}}
    if known:
        job["probe"] = {"path": scan, "dataset": "/truth/probe"}
    elif modes > 1:
        job["recon"]["mode_schedule"] = [1]
    with open(f"{folder}/job.json", "w", encoding="utf-8") as f:
        json.dump(job, f)
    done = subprocess.run([f"{binary}/xptycho", "run", f"{folder}/job.json", "--json"], check=True, capture_output=True, text=True)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return statistics.median(e["seconds"] for e in events[2:] if e.get("type") == "iter" and not e["iter"] in (1, iterations))


def theirs(python, scan, threads, modes, known):
    done = subprocess.run([python, "-c", THEIRS, scan, str(threads), str(modes), str(int(known)), "2", "5"], check=True,
                          capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("case", nargs="*", default=CASES)
    args = parser.parse_args()
    print(f"{args.threads} threads, {args.rounds} rounds, {time.strftime('%Y-%m-%d')}")
    print(f"{'case':16} {'here s':>9} {'reference s':>12} {'ratio':>7} {'least':>7} {'most':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for case in args.case:
            shape, probe = case.split("/")
            frames, side = shape.split("x")
            known, modes = probe == "known", 1 if probe == "known" else int(probe)
            scan = f"{folder}/{shape}.h5"
            if not os.path.exists(scan):
                subprocess.run([f"{args.bin}/xptycho", "simulate", "--positions", frames, "--pattern", "grid", "--frames-side", side,
                                "--output", scan], check=True, capture_output=True)
            pairs = [(here(args.bin, scan, folder, args.threads, modes, known, 12), theirs(args.python, scan, args.threads, modes, known))
                     for _ in range(args.rounds)]
            ratios = [b / a for a, b in pairs]
            print(f"{case:16} {statistics.median(a for a, _ in pairs):9.4f} {statistics.median(b for _, b in pairs):12.3f} "
                  f"{statistics.median(ratios):7.1f} {min(ratios):7.1f} {max(ratios):7.1f}", flush=True)


if __name__ == "__main__":
    main()
