"""The reference numbers, through the worker's own `run` and the result file.

tests/data holds scans and results of the reference oracle: `NAME.h5` a scan, `NAME__RUN.h5` a result, whose attributes
`single_*` say how far a correct single-precision program is from the exact answer, and the JSON figures that the public
programs' own tests recorded.
"""

import json

import h5py
import numpy as np
import pytest

import xptychod
from conftest import DATA


def run_job(job, folder):
    """Object, probe and data errors of a job, with at most two CPU threads' worth of devices."""
    out, path = folder / "out.h5", folder / "job.json"
    path.write_text(json.dumps({**job, "devices": {"devices": ["cpu"]}, "output": {"path": str(out), "overwrite": True}}))
    done = xptychod.run("xptycho-worker", "run", path)
    assert done.returncode == 0, done
    with h5py.File(out) as f:
        probe = f["sample/probe"][...]
        return (f["sample/object"][...].astype(complex), probe.reshape(-1, *probe.shape[-2:]).astype(complex),
                f["run/data_error"][...])


def figures(a):
    return dict(frobenius=np.linalg.norm(a), sum_real=a.real.sum(), sum_imag=a.imag.sum(), max_abs=np.abs(a).max())


def scaled(a, truth):
    return a * (np.vdot(a, truth) / np.vdot(a, a))


def relative(mine, wanted):
    return max(abs(mine[k] / wanted[k] - 1) for k in wanted)


def against_norm(mine, wanted):
    """A sum may cancel to almost nothing: it is then measured by the norm of what was summed."""
    return max(abs(mine[k] - wanted[k]) / max(abs(wanted[k]), wanted["frobenius"]) for k in wanted)


# -------------------------------------------------------------------------------------- tiny, known


@pytest.fixture(scope="module")
def tiny_known():
    figures_of = json.loads((DATA / "tiny_known.json").read_text())["iterations"]
    with h5py.File(DATA / "tiny_known.h5") as f:
        return figures_of, f["truth/object"][...].astype(complex)


@pytest.mark.parametrize("iterations", range(1, 21))
def test_tiny_known_probe_at_every_iteration(tiny_known, iterations, tmp_path):
    wanted, truth = tiny_known
    scan = str(DATA / "tiny_known.h5")
    obj, _, errors = run_job({
        "scan": {"path": scan}, "probe": {"path": scan, "dataset": "/truth/probe"},
        "model": {"object_shape": [64, 64], "object_origin_m": [0.0, 0.0]},
        "recon": {"iterations": iterations, "object_data_fit": 0.5, "probe_weight_exponent": 1.5}}, tmp_path)
    assert obj.shape == truth.shape and errors.shape == (iterations,)
    image = scaled(obj, truth)
    mine = dict(figures(image), nrmse_object=np.linalg.norm(image - truth) / np.linalg.norm(truth),
                data_error=errors[-1])
    assert mine.keys() == wanted[str(iterations)].keys()
    assert relative(mine, wanted[str(iterations)]) <= 1e-5
    with h5py.File(DATA / "tiny_known__known.h5") as f:
        if iterations in (1, 5, 20):
            kept = f["object" if iterations == 20 else f"iteration_{iterations:03d}/object"][...]
            assert np.linalg.norm(obj - kept) <= 1e-5 * np.linalg.norm(kept)


# -------------------------------------------------------------------------------------- tiny, blind


@pytest.mark.parametrize("iterations", [1, 3, 4, 5, 6])
def test_tiny_estimated_probe_with_a_second_mode(iterations, tmp_path):
    document = json.loads((DATA / "tiny_blind.json").read_text())
    settings, wanted = document["settings"], document["iterations"][str(iterations)]
    schedule = [i for i in settings["schedule"] if i <= iterations]
    recon = {"iterations": iterations, "object_data_fit": settings["object_fit"],
             "probe_data_fit": settings["probe_fit"], "probe_weight_exponent": settings["kappa"],
             "relaxation": settings["rho"], "mode_schedule": schedule,
             "mode_energy_fraction": settings["energy_fraction"],
             "fresnel_distance_m": settings["fresnel_distance_m"]}
    obj, probe, errors = run_job({
        "scan": {"path": str(DATA / "tiny_blind.h5")},
        "model": {"probe_modes": 1 + len(schedule), "object_shape": [64, 64], "object_origin_m": [0.0, 0.0]},
        "recon": recon}, tmp_path)
    with h5py.File(DATA / "tiny_blind.h5") as f:
        truth = f["truth/object"][...].astype(complex)
    assert against_norm(figures(scaled(obj, truth)), wanted["object"]) <= 1e-4
    assert len(probe) == len(wanted["probe"])
    for mode, numbers in zip(probe, wanted["probe"]):
        assert against_norm(figures(mode), numbers) <= 1e-4
    assert abs(errors[-1] / wanted["data_error"] - 1) <= 1e-4


# ------------------------------------------------------------------------------------------ medium


SETTINGS = {"object_fit": "object_data_fit", "rho": "relaxation", "kappa": "probe_weight_exponent"}
SETTINGS_ESTIMATED = {"probe_fit": "probe_data_fit", "energy_fraction": "mode_energy_fraction",
                      "orthogonalize": "orthogonalize_modes", "schedule": "mode_schedule",
                      "fresnel_distance": "fresnel_distance_m"}
MEDIUM = [f"{scan}__{run}" for scan in ("medium", "medium_two", "medium_masked")
          for run in ("known", "blind", "known_given_start", "blind_given_start")
          if (scan, run) != ("medium_two", "known_given_start")]


def job_of(path, attributes):
    """The job that repeats a stored run; the grid is stated where start arrays must fit it."""
    known, given = attributes["probe"] == "known", attributes["start"] == "given"
    recon = {"iterations": int(attributes["iterations"])}
    for name, key in {**SETTINGS, **({} if known else SETTINGS_ESTIMATED)}.items():
        value = np.asarray(attributes[name]).tolist()
        if value or key not in ("fresnel_distance_m", "mode_schedule"):
            recon[key] = value
    job = {"scan": {"path": str(DATA / attributes["scan"])}, "model": {"probe_modes": int(attributes["num_modes"])},
           "recon": recon}
    if given:
        job["model"]["object_shape"] = attributes["shape"].tolist()
        job["model"]["object_origin_m"] = attributes["origin"].tolist()
        job["init_object"] = {"path": str(path), "dataset": "/start_object"}
    if known or given:
        job["probe" if known else "init_probe"] = {"path": str(path), "dataset": "/start_probe"}
    return job


def rectangle(scan, attributes):
    """Rows and columns spanned by the patch centres."""
    with h5py.File(DATA / scan) as f:
        centres = (f["scan/positions"][...] - attributes["origin"]) / attributes["pixel_pitch"]
    return tuple(slice(int(np.floor(lo)), int(np.ceil(hi)) + 1) for lo, hi in zip(centres.min(0), centres.max(0)))


@pytest.mark.parametrize("name", MEDIUM)
def test_medium_runs_are_as_near_as_single_precision_allows(name, tmp_path):
    path = DATA / f"{name}.h5"
    with h5py.File(path) as f:
        attributes, wanted, wanted_errors = dict(f.attrs), f["object"][...].astype(complex), f["data_error"][...]
    obj, probe, errors = run_job(job_of(path, attributes), tmp_path)
    assert obj.shape == wanted.shape and errors.shape == wanted_errors.shape
    assert len(probe) == attributes["num_modes"]
    box = rectangle(attributes["scan"], attributes)
    l2 = np.linalg.norm(obj[box] - wanted[box]) / np.linalg.norm(wanted[box])
    error = np.abs(errors / wanted_errors - 1).max()
    assert l2 <= 4 * attributes["single_object_l2"], (l2, attributes["single_object_l2"])
    assert error <= 4 * attributes["single_data_error"], (error, attributes["single_data_error"])


@pytest.mark.parametrize("name", [n for n in MEDIUM if n.endswith("given_start") and "masked" not in n])
def test_a_given_start_is_followed_closely(name, tmp_path):
    bars = {"medium__known_given_start": 4e-6, "medium__blind_given_start": 6e-5, "medium_two__blind_given_start": 2e-5}
    path = DATA / f"{name}.h5"
    with h5py.File(path) as f:
        attributes, wanted = dict(f.attrs), f["object"][...].astype(complex)
    obj, _, _ = run_job(job_of(path, attributes), tmp_path)
    box = rectangle(attributes["scan"], attributes)
    assert np.linalg.norm(obj[box] - wanted[box]) / np.linalg.norm(wanted[box]) <= bars[name]


# ---------------------------------------------------------------------------------- masks, positions


def test_what_stands_under_a_mask_changes_no_bit(tmp_path):
    """Garbage in a masked pixel is replaced by other garbage."""
    with h5py.File(DATA / "medium_masked.h5") as f:
        scan = {name: f["scan"][name][...] for name in ("frames", "positions", "mask")}
        attributes = dict(f["scan"].attrs)
    results = []
    for value in (0.0, 3e5, np.nan):
        folder = tmp_path / str(value)
        folder.mkdir()
        with h5py.File(folder / "scan.h5", "w") as f:
            group = f.create_group("scan")
            for name, array in scan.items():
                group[name] = np.where(scan["mask"] != 0, np.float32(value), array) if name == "frames" else array
            group.attrs.update(attributes)
        results.append([a.tobytes() for a in run_job({"scan": {"path": str(folder / "scan.h5")},
                                                      "recon": {"iterations": 3}}, folder)])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("name,reach", [("tiny_shifted", 1), ("tiny_shifted", 2), ("medium_shifted", 1),
                                        ("medium_shifted", 2)])
def test_planted_shifts_are_found(name, reach, tmp_path):
    """The stored search used the true object and probe, so a stage that searches starts from them."""
    scan = DATA / f"{name}.h5"
    with h5py.File(DATA / f"{name}__refined.h5") as f:
        wanted = f[f"max_shift_{reach}/positions"][...]
        shape, origin = f.attrs["shape"], f.attrs["origin"]
        right = f["right_positions"][...]
    with h5py.File(scan) as f:
        pixel = f["truth"].attrs["pixel_pitch"]
    out, path = tmp_path / "out.h5", tmp_path / "job.json"
    path.write_text(json.dumps({
        "scan": {"path": str(scan)}, "probe": {"path": str(scan), "dataset": "/truth/probe"},
        "init_object": {"path": str(scan), "dataset": "/truth/object"},
        "model": {"object_shape": shape.tolist(), "object_origin_m": origin.tolist()},
        "recon": [{"algorithm": "refine_positions", "max_shift": reach}], "output": {"path": str(out)}}))
    done = xptychod.run("xptycho-worker", "run", path)
    assert done.returncode == 0, done
    with h5py.File(out) as f:
        used = f["run/probe_positions"][...]
    assert np.abs(used - wanted).max() <= 1e-3 * pixel
    if reach == 2:
        assert np.abs(used - right).max() <= 1e-3 * pixel, "every planted shift is found"
