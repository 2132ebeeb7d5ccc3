"""Drives the reference program (PyPI's xptycho); run by an interpreter that can import it.

    reference_program.py scan OUT.h5                     a scan file written by it
    reference_program.py load RESULT.h5 OUT.npz          what its Sample.load makes of a result
    reference_program.py recon SCAN.h5 JOB.json OUT.npz  reconstruct, with its own names of settings
"""

import json
import sys

import h5py
import numpy as np
import xptycho


def dump(sample, path):
    np.savez(path, object=sample.object, probe=sample.probe, pixel_pitch=sample.pixel_pitch, origin=sample.origin,
             data_error=sample.run.data_error, coverage=sample.run.coverage, iterations=sample.run.iterations,
             positions=sample.run.probe_positions, parameters=[row["name"] for row in sample.run.parameters])


def read_scan(path):
    """Every published spelling, so that older files can be used, too."""
    with h5py.File(path) as f:
        group = f["scan"]
        positions = group["probe_positions" if "probe_positions" in group else "positions"][...]
        attributes = dict(group.attrs)
        frames = group["frames"][...]
    return xptycho.Scan(frames, positions, wavelength=attributes["wavelength"],
                        det_distance=attributes.get("det_distance", attributes.get("detector_distance")),
                        det_pixel_pitch=attributes.get("det_pixel_pitch", attributes.get("detector_pitch")))


def write_scan(path):
    rng = np.random.default_rng(3)
    n, pitch, wavelength, distance = 32, 5e-5, 1e-10, 1.0
    pixel = wavelength * distance / (n * pitch)
    positions = xptycho.scan_positions((6, 6), 5 * pixel, max_offset=pixel, seed=1)
    model = xptycho.PtychoModel(wavelength=wavelength, det_distance=distance, det_pixel_pitch=pitch, frame_size=n,
                                probe_positions=positions)
    (rows, cols), origin = model._grid()
    r, c = np.mgrid[:n, :n] - (n - 1) / 2
    probe = 20 * np.exp((-1 + 0.7j) * (r ** 2 + c ** 2) / 49)
    image = np.exp(0.5j * rng.random((rows // 4 + 1, cols // 4 + 1)).repeat(4, 0).repeat(4, 1)[:rows, :cols])
    scan = model.simulate(xptycho.Sample(image, probe, pixel, origin), peak_photons=5000)
    scan.name = "written by xptycho"
    scan.save(path)


def recon(scan_path, job_path, out):
    job = json.loads(open(job_path, encoding="utf-8").read())
    scan = read_scan(scan_path)
    model = xptycho.PtychoModel.from_scan(scan, num_probe_modes=job["modes"])
    model.configure_devices(devices=["cpu"] * job.get("devices", 1))
    model.set_params(**job["params"])
    probe = None
    if job.get("probe"):
        with h5py.File(job["probe"][0]) as f:
            probe = f[job["probe"][1]][...]
    dump(model.recon(scan, probe=probe, iterations=job["iterations"], verbose=0), out)


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    if mode == "scan":
        write_scan(*arguments)
    elif mode == "load":
        dump(xptycho.Sample.load(arguments[0]), arguments[1])
    else:
        recon(*arguments)
