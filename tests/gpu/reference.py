"""Seconds an iteration of the reference program (PyPI's xptycho, PyTorch) on cuda:0, for the shapes of bench.c.

Two runs of different length on made-up counts; their difference leaves loading and warming up out."""

import sys
import time

import numpy as np
import torch
import xptycho

CASES = {"gold-known": (794, 512, 1, True), "gold-two": (794, 512, 2, False), "256-known": (10000, 256, 1, True),
         "128-known": (50000, 128, 1, True)}


def scan_of(count, n):
    pitch, wavelength = 1e-8, 1e-10
    rng = np.random.default_rng(1)
    x = np.arange(n) / n - 0.5
    envelope = np.exp(-60 * (x[:, None] ** 2 + x[None, :] ** 2)) * 1000
    frames = np.empty((count, n, n), np.float32)
    for j in range(count):
        frames[j] = np.floor(envelope * rng.random((n, 1), np.float32))
    side = int(np.ceil(np.sqrt(count)))
    positions = np.array([(j // side, j % side) for j in range(count)]) * (n // 16) * pitch
    return xptycho.Scan(frames, positions, wavelength=wavelength, det_distance=1.0, det_pixel_pitch=wavelength / (n * pitch))


def seconds(scan, modes, known, iterations):
    n = scan.frames.shape[-1]
    x = np.arange(n) / n - 0.5
    probe = 20 * np.exp(-20 * (x[:, None] ** 2 + x[None, :] ** 2)).astype(np.complex64)
    model = xptycho.PtychoModel.from_scan(scan, num_probe_modes=modes)
    model.configure_devices(devices=["cuda:0"])
    torch.cuda.synchronize()
    begin = time.perf_counter()
    model.recon(scan, probe=np.repeat(probe[None], modes, 0) if known else None, iterations=iterations, verbose=0)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def main():
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name(0)}")
    for name, (count, n, modes, known) in CASES.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        try:
            scan = scan_of(count, n)
            seconds(scan, modes, known, 2)
            short, long = seconds(scan, modes, known, 3), seconds(scan, modes, known, 13)
            print(f"{name:11} {1e3 * (long - short) / 10:9.3f} ms/iteration by the reference program", flush=True)
        except (RuntimeError, ValueError, MemoryError) as problem:
            print(f"{name:11} not run: {problem}", flush=True)


if __name__ == "__main__":
    main()
