"""A measured scan through the whole path: the Siemens star of the Advanced Photon Source.

Imported from its NumPy archive, submitted over HTTP with the probe estimated from the given start, streamed, fetched, and compared
with what the reference oracle makes of it (tests/data/siemens_phase.npz says how that was made).
"""

import io

import h5py
import numpy as np
import pytest

import measured
import xptychod
from conftest import DATA

ITERATIONS = 60


@pytest.fixture(scope="module")
def archive():
    return measured.find("aps-velociprobe-siemens/siemens-star-small.npz.bz2")


def imported(archive, folder, *options):
    out = folder / "siemens.h5"
    done = xptychod.run("xptycho-reader", "import", archive, "--output", out, "--positions-unit", "pixel",
                        "--object-pixel-m", "1e-8", *options)
    assert done.returncode == 0, done
    return out


def reconstruct(daemon, scan, iterations):
    job = daemon.api.submit({"name": "Siemens star", "scan": {"path": str(scan)}, "init_probe": {"path": str(scan)},
                             "recon": {"iterations": iterations}})
    events = daemon.api.events(job["id"])
    assert events[-1]["state"] == "succeeded", events[-1]
    return daemon.api.show(job["id"]), [e for e in events if e["type"] == "iter"]


@pytest.fixture(scope="module")
def star(archive, shared_daemon, tmp_path_factory):
    """(job, iterations, object) after 60 iterations."""
    scan = imported(archive, tmp_path_factory.mktemp("siemens"))
    job, iterations = reconstruct(shared_daemon, scan, ITERATIONS)
    data = shared_daemon.api.get(f"/v1/jobs/{job['id']}/result/data").body
    with h5py.File(io.BytesIO(data)) as f:
        return job, iterations, f["sample/object"][...]


def without_ramp(image, phase):
    """`image` after one complex factor and the linear phase that bring it nearest to exp(i phase)."""
    rows, cols = np.indices(image.shape)
    for _ in range(5):
        rest = image * np.exp(-1j * phase)
        down = np.angle(np.vdot(rest[:-1], rest[1:]))
        across = np.angle(np.vdot(rest[:, :-1], rest[:, 1:]))
        image = image * np.exp(-1j * (down * rows + across * cols))
    rest = image * np.exp(-1j * phase)
    return image * np.exp(-1j * np.angle(rest.sum()))


def test_data_error_reaches_that_of_the_oracle(star):
    _, iterations, _ = star
    assert [e["iter"] for e in iterations] == list(range(1, ITERATIONS + 1))
    assert iterations[-1]["data_error"] <= 0.145
    with np.load(DATA / "siemens_phase.npz") as wanted:
        errors = np.array([e["data_error"] for e in iterations])
        np.testing.assert_allclose(errors, wanted["data_error"], rtol=0.01)


def test_phase_is_that_of_the_oracle(star):
    _, _, obj = star
    with np.load(DATA / "siemens_phase.npz") as wanted:
        phase, first, factor = wanted["phase"], wanted["first"], int(wanted["factor"])
        assert obj.shape == tuple(wanted["shape"])
    rows, cols = phase.shape
    box = obj[first[0]:first[0] + factor * rows, first[1]:first[1] + factor * cols]
    small = box.reshape(rows, factor, cols, factor).mean((1, 3))
    mine = np.angle(without_ramp(small, phase))
    assert np.corrcoef(mine.ravel(), phase.ravel())[0, 1] >= 0.95
    turned = [np.rot90(phase, k)[:80, :80] for k in (1, 2, 3)]
    assert all(np.corrcoef(mine[:80, :80].ravel(), t.ravel())[0, 1] < 0.7 for t in turned), "the star is not round"


def test_picture_of_the_star_is_served(star, shared_daemon):
    job, _, _ = star
    picture = shared_daemon.api.get(f"/v1/jobs/{job['id']}/preview.png?what=object_phase")
    assert picture.status == 200 and picture.body.startswith(b"\x89PNG") and len(picture.body) > 20000


def test_swapped_rows_and_columns_fit_badly(archive, shared_daemon, tmp_path):
    scan = imported(archive, tmp_path, "--swap")
    _, iterations = reconstruct(shared_daemon, scan, ITERATIONS)
    assert iterations[-1]["data_error"] > 0.2


def test_import_of_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 not really")
    done = xptychod.run("xptycho-reader", "import", tmp_path / "a.npz", "--output", tmp_path / "o.h5",
                        "--positions-unit", "pixel", "--object-pixel-m", "1e-8")
    assert done.returncode == 3 and "a.npz" in done.stderr
    assert not (tmp_path / "o.h5").exists()
