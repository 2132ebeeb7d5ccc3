"""Every kind of bad input gets its problem document, and the daemon goes on."""

import json
import os
import pathlib

import h5py
import numpy as np
import pytest

import scans
import xptychod
from conftest import NO_GPU


@pytest.fixture(autouse=True)
def _goes_on(shared_daemon):
    """After each test the same processes answer."""
    before = xptychod.processes_marked(shared_daemon.mark)
    yield
    assert shared_daemon.api.get("/v1/version").status == 200
    lasting = {"xptychod", "xptycho-worker"}
    after = xptychod.processes_marked(shared_daemon.mark)
    assert {p for p in before if p[1] in lasting} == {p for p in after if p[1] in lasting}


def refused(daemon, job, status=422, kind=None, pointer=None, words=()):
    response = daemon.api.post("/v1/jobs", job)
    assert response.status == status, response
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status and problem["title"] and problem["detail"], problem
    if kind:
        assert problem["type"] == f"urn:xptychod:problem:{kind}", problem
    if pointer:
        assert pointer in [e["pointer"] for e in problem["errors"]], problem
    for word in words:
        assert word in response.text, (word, problem)
    return problem


def on(path, **changes):
    job = {"scan": {"path": str(path)}, "recon": {"iterations": 3}}
    job.update(changes)
    return job


# ----------------------------------------------------------------------------------- the document


@pytest.mark.parametrize("body", [b"", b"{", b'{"scan": }', b"scan", b'{"scan": {"path": "/a"}} x', b"\xff\xfe",
                                  b'{"scan": {"path": "/a"}, "scan": {"path": "/b"}}', b"[" * 100 + b"]" * 100,
                                  b'{"priority": 1e400}', b'{"name": "\\u0000"}', b'{"priority": NaN}'])
def test_what_is_not_json_is_400(shared_daemon, body):
    problem = refused(shared_daemon, body, 400)
    assert problem["type"] in ("urn:xptychod:problem:malformed-json", "urn:xptychod:problem:bad-request")


@pytest.mark.parametrize("body", [[], 7, "text", None, True])
def test_json_that_is_no_object_is_refused(shared_daemon, body):
    response = shared_daemon.api.post("/v1/jobs", json.dumps(body))
    assert response.status in (400, 422) and response.json()["detail"], response


def test_unknown_keys_are_refused_with_the_nearest_name(shared_daemon, scan_file):
    job = on(scan_file, prioritty=3, recon={"interations": 5, "relaxatoin": 0.5}, devices={"cpu_thread": 1})
    problem = refused(shared_daemon, job, kind="invalid-job")
    said = {e["pointer"]: e["detail"] for e in problem["errors"]}
    for pointer, nearest in (("/prioritty", "priority"), ("/recon/interations", "iterations"),
                             ("/recon/relaxatoin", "relaxation"), ("/devices/cpu_thread", "cpu_threads")):
        assert f"'{nearest}'" in said[pointer], said


def test_what_does_not_work_yet_is_refused(shared_daemon, scan_file):
    for key, value in (("mapping", {}), ("preprocess", []), ("selection", {}), ("live", True)):
        refused(shared_daemon, {"scan": {"path": scan_file, key: value}}, kind="invalid-job", pointer=f"/scan/{key}")
    refused(shared_daemon, on(scan_file, **{"class": "urgent"}), kind="invalid-job", pointer="/class")


def test_every_field_out_of_range_is_reported_at_once(shared_daemon):
    job = {
        "name": "x" * 257, "labels": {"a": 1}, "priority": 101, "preview_every_s": 0, "deadline_s": 0,
        "checkpoint": "sometimes", "checkpoint_every_s": -1,
        "scan": {"path": "relative.h5", "format": "tiff", "saturation": 0,
                 "geometry": {"energy_kev": 0, "detector_distance_m": -1, "detector_pitch_m": 2}},
        "model": {"probe_modes": 0, "object_shape": [1, 64], "object_origin_m": [0]},
        "recon": {"iterations": 0, "object_data_fit": 1.5, "probe_data_fit": -0.1, "probe_weight_exponent": 2.5,
                  "relaxation": 2, "mode_schedule": [0], "mode_energy_fraction": 0, "orthogonalize_modes": 1,
                  "fresnel_distance_m": 2, "batch_size": 0, "report_every": 0},
        "devices": {"num_devices": 0, "cpu_threads": 0},
        "output": {"path": "out.h5", "overwrite": "yes"},
    }
    pointers = {e["pointer"] for e in refused(shared_daemon, job, kind="invalid-job")["errors"]}
    wanted = {
        "/name", "/labels/a", "/priority", "/preview_every_s", "/deadline_s", "/scan/path", "/scan/format",
        "/checkpoint", "/checkpoint_every_s",
        "/scan/saturation", "/scan/geometry/energy_kev", "/scan/geometry/detector_distance_m",
        "/scan/geometry/detector_pitch_m", "/model/probe_modes", "/model/object_shape/0", "/recon/iterations",
        "/recon/object_data_fit", "/recon/probe_data_fit", "/recon/probe_weight_exponent", "/recon/relaxation",
        "/recon/mode_schedule/0", "/recon/mode_energy_fraction", "/recon/orthogonalize_modes",
        "/recon/fresnel_distance_m", "/recon/batch_size", "/recon/report_every", "/devices/num_devices",
        "/devices/cpu_threads", "/output/path", "/output/overwrite",
    }
    assert wanted <= pointers, wanted - pointers
    assert any(p.startswith("/model/object_origin_m") for p in pointers)


# ----------------------------------------------------------------------------------------- paths


def test_paths_that_are_no_scan(shared_daemon, scan_file, tmp_path):
    folder, fifo, text, cut = (tmp_path / name for name in ("folder", "fifo", "text.h5", "cut.h5"))
    folder.mkdir()
    os.mkfifo(fifo)
    text.write_text("this is not HDF5\n" * 100)
    whole = pathlib.Path(scan_file).read_bytes()
    cut.write_bytes(whole[:len(whole) // 2])
    os.utime(cut, (1e9, 1e9))  # else it could be on its way still
    (tmp_path / "empty.h5").write_bytes(b"")
    secret = tmp_path / "gone.h5"
    for path in (secret, folder, fifo, text, cut, tmp_path / "empty.h5", "/dev/zero", "/proc/self/mem"):
        problem = refused(shared_daemon, on(path))
        assert str(path) in str(problem), problem


def test_path_outside_the_roots(make_daemon, scan_file, tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    copy = inside / "scan.h5"
    copy.write_bytes(pathlib.Path(scan_file).read_bytes())
    (outside / "scan.h5").write_bytes(copy.read_bytes())
    (inside / "link.h5").symlink_to(outside / "scan.h5")
    (inside / "up").symlink_to(outside)
    daemon = make_daemon("--data-root", str(inside), "--write-root", str(inside))
    assert daemon.api.finish(daemon.api.submit(on(copy, output={"path": str(inside / "r.h5")}))["id"])["state"] == "succeeded"
    for path in (outside / "scan.h5", inside / "link.h5", inside / "up" / "scan.h5", f"{inside}/../out/scan.h5",
                 "/etc/passwd"):
        refused(daemon, on(path))
    for path in (outside / "r.h5", inside / "up" / "r.h5"):
        response = daemon.api.post("/v1/jobs", on(copy, output={"path": str(path)}))
        assert response.status == 422, response
    assert not (outside / "r.h5").exists()


# --------------------------------------------------------------------------------- what is in a scan


def test_frames_and_positions_of_different_counts(shared_daemon, scan, tmp_path):
    path = scan.write(tmp_path / "a.h5", positions=scan.positions[:-1])
    refused(shared_daemon, on(path), kind="dataset", words=("36", "35"))


def test_odd_and_non_square_frames(shared_daemon, scan, tmp_path):
    refused(shared_daemon, on(scan.write(tmp_path / "a.h5", frames=scan.frames[:, :31, :31])), kind="dataset", words=("31",))
    refused(shared_daemon, on(scan.write(tmp_path / "b.h5", frames=scan.frames[:, :, :30])), kind="dataset", words=("30", "32"))
    refused(shared_daemon, on(scan.write(tmp_path / "c.h5", frames=scan.frames[0])), kind="dataset")
    refused(shared_daemon, on(scan.write(tmp_path / "d.h5", frames=scan.frames[:0], positions=scan.positions[:0])), kind="dataset")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_positions_that_are_not_finite(shared_daemon, scan, tmp_path, value):
    positions = scan.positions.copy()
    positions[17, 1] = value
    problem = refused(shared_daemon, on(scan.write(tmp_path / "a.h5", positions=positions)))
    if not np.isfinite(value):
        assert "17" in str(problem), problem


def test_positions_in_another_shape(shared_daemon, scan, tmp_path):
    refused(shared_daemon, on(scan.write(tmp_path / "a.h5", positions=scan.positions[:, :1])), kind="dataset")


def test_no_wavelength_anywhere(shared_daemon, scan, tmp_path):
    path = scan.write(tmp_path / "a.h5", wavelength=None)
    refused(shared_daemon, on(path), words=("wavelength",))
    job = on(path)
    job["scan"]["geometry"] = {"wavelength_m": scans.WAVELENGTH}
    assert shared_daemon.api.finish(shared_daemon.api.submit(job)["id"])["state"] == "succeeded"


def test_geometry_both_ways_is_refused(shared_daemon, scan_file):
    job = on(scan_file)
    job["scan"]["geometry"] = {"wavelength_m": 1e-10, "energy_kev": 12.4}
    refused(shared_daemon, job, kind="invalid-job", words=("energy_kev",))


def test_a_file_without_a_scan(shared_daemon, tmp_path):
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as f:
        f["numbers"] = np.arange(10)
    refused(shared_daemon, on(path))


def test_hostile_hdf5(shared_daemon, scan, tmp_path):
    """Links out of the file, datasets of absurd size, frames of text: refused in time, nothing dies."""
    for name in ("external", "huge", "text", "loop"):
        path = tmp_path / f"{name}.h5"
        scan.write(path)
        with h5py.File(path, "r+") as f:
            del f["scan/frames"]
            if name == "external":
                f["scan/frames"] = h5py.ExternalLink("/etc/hostname", "/x")
            elif name == "huge":
                f.create_dataset("scan/frames", shape=(1 << 40, 32, 32), chunks=(1, 32, 32), dtype="f4")
            elif name == "text":
                f["scan/frames"] = np.array([b"abc"] * 36)
            else:
                f["scan/frames"] = h5py.SoftLink("/scan/frames")
        refused(shared_daemon, on(path))


# ------------------------------------------------------------------------------- what does not fit


def test_patch_outside_a_stated_grid(shared_daemon, scan_file):
    job = on(scan_file, model={"object_shape": [40, 40], "object_origin_m": [0.0, 0.0]})
    refused(shared_daemon, job, words=("rows 0 to 39",))


def test_more_devices_than_positions(shared_daemon, scan_file):
    refused(shared_daemon, on(scan_file, devices={"devices": ["cpu"] * 37}), words=("37", "36"))


def test_devices_that_do_not_exist(shared_daemon, scan_file):
    problem = refused(shared_daemon, on(scan_file, devices={"devices": ["cuda:0"]}), words=("cuda:0",))
    assert NO_GPU.search(str(problem))
    refused(shared_daemon, on(scan_file, devices={"num_devices": 2}), words=("2",))
    refused(shared_daemon, on(scan_file, devices={"devices": ["gpu"]}), kind="invalid-job", pointer="/devices/devices/0")


def test_probe_of_the_wrong_size(shared_daemon, scan, scan_file, tmp_path):
    path = tmp_path / "probe.h5"
    with h5py.File(path, "w") as f:
        f["small"] = np.ones((1, 16, 16), np.complex64)
        f["two"] = np.ones((2, 32, 32), np.complex64)
        f["real"] = np.ones((1, 32, 32), np.float32)
        f["object"] = np.ones((8, 8), np.complex64)
    for dataset in ("/small", "/two", "/nowhere"):
        refused(shared_daemon, on(scan_file, probe={"path": str(path), "dataset": dataset}))
    refused(shared_daemon, on(scan_file, init_probe={"path": str(path), "dataset": "/small"}))
    refused(shared_daemon, on(scan_file, init_object={"path": str(path), "dataset": "/object"}))
    refused(shared_daemon, on(scan_file, probe={"path": str(tmp_path / "gone.h5"), "dataset": "/small"}))


def test_probe_that_is_not_finite(shared_daemon, scan_file, tmp_path):
    """Values are read when the job starts, not at submission."""
    path = tmp_path / "probe.h5"
    with h5py.File(path, "w") as f:
        f["nan"] = np.full((1, 32, 32), np.nan, np.complex64)
    for role in ("probe", "init_probe"):
        job = shared_daemon.api.submit(on(scan_file, **{role: {"path": str(path), "dataset": "/nan"}}))
        done = shared_daemon.api.finish(job["id"])
        assert done["state"] == "failed" and done["reason"] in ("dataset", "refused") and done["detail"], done


def test_modes_without_a_schedule_that_reaches_them(shared_daemon, scan_file):
    refused(shared_daemon, on(scan_file, model={"probe_modes": 3}), words=("mode_schedule",))
    refused(shared_daemon, on(scan_file, model={"probe_modes": 3}, recon={"iterations": 5, "mode_schedule": [2]}))
    refused(shared_daemon, on(scan_file, model={"probe_modes": 2}, recon={"iterations": 5, "mode_schedule": [6]}))


def test_schedule_with_a_known_probe_or_with_duplicates(shared_daemon, scan_file):
    probe = {"path": scan_file, "dataset": "/truth/probe"}
    refused(shared_daemon, on(scan_file, probe=probe, recon={"mode_schedule": [2]}), words=("mode_schedule",))
    refused(shared_daemon, on(scan_file, model={"probe_modes": 3}, recon={"mode_schedule": [2, 2]}),
            kind="invalid-job", words=("mode_schedule",))
    refused(shared_daemon, on(scan_file, probe=probe, init_probe=probe), kind="invalid-job")


# ----------------------------------------------------------------------------------------- output


def test_output_that_exists_or_cannot_be_written(shared_daemon, scan_file, tmp_path):
    existing = tmp_path / "exists.h5"
    existing.write_text("mine")
    file_as_folder = tmp_path / "file"
    file_as_folder.write_text("x")
    for path in (existing, tmp_path / "no" / "folder" / "r.h5", file_as_folder / "r.h5", tmp_path, "/proc/r.h5"):
        response = shared_daemon.api.post("/v1/jobs", on(scan_file, output={"path": str(path)}))
        assert response.status == 422, (path, response)
        assert response.json()["type"] in ("urn:xptychod:problem:output", "urn:xptychod:problem:invalid-job"), response
    assert existing.read_text() == "mine"


def test_async_probe_reports_faults_of_the_scan_as_the_job_s_reason(shared_daemon, tmp_path):
    response = shared_daemon.api.post("/v1/jobs?probe=async", on(tmp_path / "gone.h5"))
    assert response.status == 201, response
    done = shared_daemon.api.finish(response.json()["id"])
    assert done["state"] == "failed" and done["reason"] == "dataset" and "gone.h5" in done["detail"], done


def test_metadata_of_more_than_64_kib(shared_daemon, scan_file):
    refused(shared_daemon, on(scan_file, metadata="x" * 70000), kind="invalid-job", pointer="/metadata")
