"""Jobs that fail: they diverge, the disk is full, the deadline is over, memory does not suffice."""

import os
import pathlib
import shutil
import subprocess

import h5py
import numpy as np
import pytest

import scans


def job_of(path, **changes):
    return {"scan": {"path": str(path)}, "recon": {"iterations": 5}, **changes}


@pytest.fixture(scope="module")
def diverging_job(tmp_path_factory):
    """A faint probe makes the object so large that its squares overflow float32, in the third iteration."""
    folder = tmp_path_factory.mktemp("diverging")
    scan = scans.make()
    brighter = 1e29 / scan.frames.max()
    path = scan.write(folder / "scan.h5", frames=(scan.frames * brighter).astype(np.float32))
    with h5py.File(path, "a") as f:
        f["faint"] = (scan.probe * np.sqrt(brighter) * 3.3e-20).astype(np.complex64)
    return {"scan": {"path": path}, "probe": {"path": path, "dataset": "/faint"}, "recon": {"iterations": 50}}


def test_a_job_that_diverges_keeps_its_last_finite_result(shared_daemon, diverging_job):
    api = shared_daemon.api
    job = api.submit(diverging_job)
    events = api.events(job["id"])
    done = api.show(job["id"])
    assert done["state"] == "failed" and done["reason"] == "diverged" and done["detail"], done
    finite = [e for e in events if e["type"] == "iter" and e["data_error"] is not None]
    assert 1 <= len(finite) < 50, "it goes wrong on the way"
    assert done["result"]["partial"] is True
    with h5py.File(done["result"]["path"]) as f:
        assert np.isfinite(f["sample/object"][...].view(np.float32)).all()
        assert np.isfinite(f["sample/probe"][...].view(np.float32)).all()
        assert np.isfinite(f["run/data_error"][...]).all()
        assert len(f["run/data_error"]) == len(finite)


def test_deadline_ends_a_job_with_what_it_has(shared_daemon, slow_scan_file):
    job = shared_daemon.api.submit(job_of(slow_scan_file, recon={"iterations": 100000}, deadline_s=1))
    done = shared_daemon.api.finish(job["id"])
    assert done["state"] == "failed" and done["reason"] == "deadline", done
    assert done["result"]["partial"] is True and done["result"]["iterations"] >= 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 192 KiB."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root may mount the small file system that this needs")
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192k", "none", folder], capture_output=True, text=True,
                          check=False)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_full_disk_fails_the_job_and_leaves_nothing_half_written(shared_daemon, slow_scan_file, small_disk):
    out = small_disk / "result.h5"
    (small_disk / "ballast").write_bytes(b"x" * 150000)
    response = shared_daemon.api.post("/v1/jobs", job_of(slow_scan_file, output={"path": str(out)}))
    if response.status == 201:
        done = shared_daemon.api.finish(response.json()["id"])
        assert done["state"] == "failed" and done["reason"] == "output", done
        assert "space" in done["detail"] or "disk" in done["detail"], done
    else:
        assert response.status in (422, 507) and "output" in response.text, response
    assert [p.name for p in small_disk.iterdir()] == ["ballast"]
    good = shared_daemon.api.finish(shared_daemon.api.submit(job_of(slow_scan_file))["id"])
    assert good["state"] == "succeeded", "the next job is not affected"


def test_low_state_disk_refuses_submissions_and_reads_go_on(make_daemon, scan_file):
    daemon = make_daemon("--low-disk-mib", str(1 << 29))
    response = daemon.api.post("/v1/jobs", job_of(scan_file))
    assert response.status == 507 and response.json()["type"] == "urn:xptychod:problem:low-disk", response
    assert daemon.api.get("/v1/jobs").status == 200


def test_full_queue_is_429(make_daemon, slow_scan_file, scan_file):
    daemon = make_daemon("--queue-max", "2")
    holder = daemon.api.submit(job_of(slow_scan_file, recon={"iterations": 100000}))
    daemon.api.wait_for_iteration(holder["id"], 1)
    waiting = [daemon.api.submit(job_of(scan_file))["id"] for _ in range(2)]
    full = daemon.api.post("/v1/jobs", job_of(scan_file))
    assert full.status == 429 and full.json()["type"] == "urn:xptychod:problem:queue-full", full
    assert int(full.headers["Retry-After"]) > 0
    assert "2 jobs wait; that is the limit; try again when one has started" in full.json()["detail"], full
    daemon.api.post(f"/v1/jobs/{holder['id']}/cancel")
    for job_id in waiting:
        assert daemon.api.finish(job_id)["state"] == "succeeded"


def test_scan_changed_after_submission_fails_or_is_read_as_it_is(make_daemon, slow_scan_file, scan_file, tmp_path):
    """The file is looked at again when the job starts; nothing that was promised for the old one is used."""
    daemon = make_daemon()
    path = tmp_path / "scan.h5"
    path.write_bytes(pathlib.Path(scan_file).read_bytes())
    holder = daemon.api.submit(job_of(slow_scan_file, recon={"iterations": 100000}))
    daemon.api.wait_for_iteration(holder["id"], 1)
    job = daemon.api.submit(job_of(path))
    path.unlink()
    daemon.api.post(f"/v1/jobs/{holder['id']}/cancel")
    done = daemon.api.finish(job["id"])
    assert done["state"] == "failed" and done["reason"] == "dataset" and str(path) in done["detail"], done
