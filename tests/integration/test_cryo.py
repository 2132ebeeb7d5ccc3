"""A measured electron scan in CXI: its wavelength is recorded, and hc/E would be wrong by a factor of two."""

import numpy as np
import pytest

import measured


@pytest.fixture(scope="module")
def cryo():
    return measured.find("cryo-electron-ptycho/cryo_virus_24x24.cxi")


def test_the_recorded_wavelength_is_used(shared_daemon, cryo):
    response = shared_daemon.api.post("/v1/jobs?dry_run=true", {"scan": {"path": str(cryo)}})
    assert response.status == 200, response
    scan = response.json()["scan"]
    assert scan["wavelength_m"] == pytest.approx(1.96875e-12, rel=1e-4)
    assert scan["frames"] == 576 and scan["frame_side"] == 128
    assert scan["object_pixel_m"] == pytest.approx(0.930e-9, rel=2e-3)


def test_the_scan_runs_and_its_data_error_falls(shared_daemon, cryo):
    job = shared_daemon.api.submit({"scan": {"path": str(cryo)}, "recon": {"iterations": 15}})
    events = shared_daemon.api.events(job["id"])
    assert events[-1]["state"] == "succeeded", events[-1]
    errors = np.array([e["data_error"] for e in events if e["type"] == "iter"])
    assert len(errors) == 15 and np.isfinite(errors).all()
    assert errors[-1] < 0.9 * errors[0] and errors[-1] < 0.3
