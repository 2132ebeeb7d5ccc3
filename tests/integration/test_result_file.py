"""The result file as other programs see it: h5py, viewers of NeXus, and this project's own reader."""

import hashlib
import json

import h5py
import numpy as np
import pytest

import reader
import xptychod


@pytest.fixture(scope="module")
def result(scan, tmp_path_factory):
    """(path of the result, job) of a short run of a scan with a mask."""
    folder = tmp_path_factory.mktemp("result")
    mask = np.zeros((32, 32), np.uint8)
    mask[3, 4] = 1
    job = {"name": "a name", "scan": {"path": scan.write(folder / "scan.h5", mask=mask)}, "recon": {"iterations": 4},
           "output": {"path": str(folder / "out.h5")}}
    (folder / "job.json").write_text(json.dumps(job))
    done = xptychod.run("xptycho-worker", "run", folder / "job.json")
    assert done.returncode == 0, done
    return folder / "out.h5", job


def follow_default(node):
    while "default" in node.attrs:
        node = node[node.attrs["default"]]
    return node


def test_viewers_open_on_the_phase(result):
    with h5py.File(result[0]) as f:
        data = follow_default(f)
        assert [n.attrs["NX_class"] for n in (f, data.parent, data)] == ["NXroot", "NXentry", "NXdata"]
        signal, axes = data[data.attrs["signal"]], [data[a] for a in data.attrs["axes"]]
        obj = f["sample/object"][...]
        np.testing.assert_allclose(signal[...], np.angle(obj), atol=1e-5)
        np.testing.assert_allclose(data[data.attrs["auxiliary_signals"][0]][...], np.abs(obj), rtol=1e-6)
        assert signal.attrs["units"] == "rad" and [len(a) for a in axes] == list(obj.shape)
        for axis, origin in zip(axes, f["sample"].attrs["origin"]):
            assert axis.attrs["units"] == "m" and axis[0] == origin
            np.testing.assert_allclose(np.diff(axis), f["sample"].attrs["pixel_pitch"], rtol=1e-6)


def test_the_result_is_whole_and_explains_itself(result, scan):
    path, job = result
    with h5py.File(path) as f:
        assert f.attrs["complete"] == 1 and f.attrs["format_version"] == 1
        assert f["sample/object"].dtype == np.complex64 and f["sample/probe"].shape == (1, 32, 32)
        assert f["sample"].attrs["name"] == "a name"
        run = f["run"]
        assert run.attrs["iterations"] == 4 and run["data_error"].shape == (4,) and run.attrs["partial"] == 0
        np.testing.assert_array_equal(run["frame_list"], np.arange(36))
        np.testing.assert_array_equal(run["probe_positions"], scan.positions)
        assert run["mask"].dtype == np.uint8 and run["mask"][3, 4] == 1 and run["mask"][...].sum() == 1
        assert run["coverage"].shape == f["sample/object"].shape
        kept = json.loads(run["job"].asstr()[()])
        assert kept["scan"]["path"] == job["scan"]["path"] and kept["recon"]["iterations"] == 4
        expected = hashlib.sha256(scan.frames.tobytes() + scan.positions.tobytes()).hexdigest()
        assert run.attrs["scan_sha256"] == expected and run.attrs["scan_path"] == job["scan"]["path"]
        rows = run["parameters"].asstr()[...]
        assert list(run["parameters"].attrs["columns"]) == ["name", "value", "units", "origin"]
        assert {"given", "default", "file", "derived"} >= set(rows[:, 3])
        assert dict(rows[:, :2])["probe"] == "estimated"


def test_a_result_starts_the_next_run(result):
    path, job = result
    answer = reader.ask("read", {"scan": job["scan"], "init": {"path": str(path)}})
    with h5py.File(path) as f:
        np.testing.assert_array_equal(answer.arrays["init_object"], f["sample/object"][...])
        np.testing.assert_array_equal(answer.arrays["init_probe"], f["sample/probe"][...])


def test_a_result_is_replaced_on_request_only(result):
    path, job = result
    answer = reader.ask("probe", job, output_path=str(path))
    assert answer.fault == "output" and "exists" in answer.errors["/output/path"]
    job = dict(job, output=dict(job["output"], overwrite=True))
    assert reader.ask("probe", job, output_path=str(path)).kind == "scan"
