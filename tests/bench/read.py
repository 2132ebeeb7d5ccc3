#!/usr/bin/python3
"""Speed of xptycho-reader by storage of the frames: processor time of a whole read, hashing and counting included.

    XPTYCHOD_BIN=BUILD/bin PYTHONPATH=tests/support tests/bench/read.py [frames [side]]

Frames are made here (Poisson, uint16 and uint32); LZ4 and bitshuffle chunks by tests/support/compressed.py.
"""

import pathlib
import resource
import sys
import tempfile

import h5py
import numpy as np

import compressed
import reader
import scans


def frames_of(count, side):
    """40 different frames, again and again; the middle is bright."""
    rng = np.random.default_rng(0)
    radius = np.hypot(*(np.mgrid[:side, :side] - side / 2))
    mean = 200 * np.exp(-(radius / 60) ** 2) + 2e4 / (1 + radius ** 2)
    some = rng.poisson(mean, (40, side, side)).astype(np.uint16)
    return some[np.arange(count) % 40]


def write(path, frames, kind):
    side = frames.shape[1]
    grid = int(np.ceil(len(frames) ** 0.5))
    with h5py.File(path, "w") as f:
        scan = f.create_group("scan")
        if kind == "plain":
            scan["frames"] = frames
        elif kind == "gzip":
            scan.create_dataset("frames", data=frames, chunks=(1, side, side), compression="gzip", shuffle=True)
        else:
            filter_id = compressed.LZ4 if kind == "lz4" else compressed.BITSHUFFLE
            encode = compressed.lz4 if kind == "lz4" else compressed.bitshuffle
            made = {}  # each of the few different frames is encoded once

            def once(frame):
                key = hash(frame.tobytes())
                if key not in made:
                    made[key] = encode(frame)
                return made[key]

            compressed.write(scan, "frames", frames, (1, side, side), filter_id, encode=once)
        scan["positions"] = np.indices((grid, grid)).reshape(2, -1).T[:len(frames)] * 2e-7
        scan.attrs.update(wavelength=scans.WAVELENGTH, detector_distance=scans.DISTANCE, detector_pitch=scans.PITCH)


def seconds(path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert reader.ask("read", path).kind == "scan"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    count, side = (int(a) for a in (sys.argv[1:] + ["1000", "512"][len(sys.argv) - 1:]))
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("u2", "u4"):
            frames = frames_of(count, side).astype(dtype)
            for kind in ("plain", "lz4", "bitshuffle", "gzip"):
                path = pathlib.Path(folder) / "scan.h5"
                write(path, frames, kind)
                best = min(seconds(path) for _ in range(3))
                print(f"{count} x {side}^2 {frames.dtype} {kind:10} {path.stat().st_size / 2 ** 20:5.0f} MiB on disk  "
                      f"{best:5.2f} s  {frames.nbytes / 2 ** 20 / best:5.0f} MiB/s", flush=True)


main()
