"""Small scans for tests, made here with NumPy and written with h5py in the project's own layout."""

import h5py
import numpy as np

WAVELENGTH, DISTANCE, PITCH = 1e-10, 1.0, 5e-5


def to_detector(field):
    """Orthonormal transform with zero frequency at n/2 on both sides."""
    axes = (-2, -1)
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(field, axes=axes), norm="ortho"), axes=axes)


class Scan:
    """frames [J][n][n], positions [J][2] in metres, and the truth they were made from."""

    def __init__(self, frames, positions, obj, probe, pixel, origin):
        self.frames, self.positions, self.object, self.probe = frames, positions, obj, probe
        self.pixel, self.origin = pixel, origin

    def write(self, path, **changes):
        """changes: frames, positions, mask, wavelength, detector_distance, detector_pitch; None leaves one out."""
        values = dict(frames=self.frames, positions=self.positions, wavelength=WAVELENGTH,
                      detector_distance=DISTANCE, detector_pitch=PITCH)
        values.update(changes)
        with h5py.File(path, "w") as f:
            group = f.create_group("scan")
            for name in ("frames", "positions", "mask"):
                if values.get(name) is not None:
                    group.create_dataset(name, data=values[name])
            for name in ("wavelength", "detector_distance", "detector_pitch"):
                if values[name] is not None:
                    group.attrs[name] = values[name]
            group.attrs["name"] = "test scan"
            truth = f.create_group("truth")
            truth.create_dataset("object", data=self.object.astype(np.complex64))
            truth.create_dataset("probe", data=self.probe.astype(np.complex64))
        return str(path)


def make(n=32, points=6, step=5, photons=1e4, seed=1):
    """points x points positions, `step` pixels apart and jittered; Poisson noise."""
    rng = np.random.default_rng(seed)
    pixel = WAVELENGTH * DISTANCE / (n * PITCH)
    first = step * np.stack(np.meshgrid(np.arange(points), np.arange(points), indexing="ij"), -1).reshape(-1, 2)
    first = first + rng.integers(0, 2, first.shape)
    side = int(first.max()) + n
    row, col = np.mgrid[:side, :side] / side
    bumps = sum(np.exp(-((row - r) ** 2 + (col - c) ** 2) / 0.004) for r, c in rng.random((12, 2)))
    obj = (1 - 0.2 * bumps / bumps.max()) * np.exp(0.8j * np.sin(9 * row + 5 * col) * bumps / bumps.max())
    r, c = np.mgrid[:n, :n] - (n - 1) / 2
    radius = (r ** 2 + c ** 2) / (0.22 * n) ** 2
    probe = np.exp(-radius) * np.exp(0.7j * radius)
    probe *= np.sqrt(photons) * n / np.linalg.norm(probe) / 4
    patches = np.stack([obj[a:a + n, b:b + n] for a, b in first])
    frames = rng.poisson(np.abs(to_detector(probe * patches)) ** 2).astype(np.float32)
    return Scan(frames, (first + n // 2) * pixel, obj, probe[None], pixel, (0.0, 0.0))
