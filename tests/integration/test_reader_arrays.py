"""xptycho-reader: masks, probes and objects."""

import h5py
import numpy as np
import pytest

import reader
from reader import probe, read, refused


# --------------------------------------------------------------------------------------------------------------- masks


def test_masks_for_all_frames_and_for_each(scan, tmp_path):
    one = np.zeros((32, 32), np.uint8)
    one[3, 4] = 1
    many = np.zeros((36, 32, 32), bool)
    many[5, 6, 7] = True
    for mask in (one, one * 200, one.astype("i8"), -one.astype("i4"), many):
        answer = read(scan.write(tmp_path / "a.h5", mask=mask))
        np.testing.assert_array_equal(answer.arrays["mask"], mask != 0)
        assert answer.arrays["mask"].dtype == np.uint8
        assert any("mask hides 1 of" in w for w in answer.body["warnings"])


def test_masks_that_do_not_fit(scan, tmp_path):
    refused(scan.write(tmp_path / "a.h5", mask=np.zeros((31, 32), np.uint8)), "[31][32]", "[32][32]")
    refused(scan.write(tmp_path / "a.h5", mask=np.zeros((35, 32, 32), np.uint8)), "[35][32][32]")
    refused(scan.write(tmp_path / "a.h5", mask=np.zeros((32, 32), np.float32)), "float32")
    refused(scan.write(tmp_path / "a.h5", mask=np.ones((32, 32), np.uint8)), "more than half", kinds=("read",))
    path = scan.write(tmp_path / "a.h5", mask=np.zeros((32, 32), np.uint8))
    with h5py.File(path, "r+") as f:
        f["scan/mask"].attrs["convention"] = "1 = good"
    refused(path, "1 = good")


# -------------------------------------------------------------------------------------------------- probes and objects


@pytest.fixture
def arrays_file(tmp_path, scan):
    rng = np.random.default_rng(3)
    path = tmp_path / "arrays.h5"
    two = (rng.normal(size=(2, 32, 32)) + 1j * rng.normal(size=(2, 32, 32)))
    with h5py.File(path, "w") as f:
        f["two"] = two.astype(np.complex64)
        f["double"] = two
        f["flat"] = two[0]
        f["real"] = two.real.astype(np.float32)
        f["integers"] = (two[:1].real * 100).astype("i2")
        f["small"] = two[:, :16, :16].astype(np.complex64)
        f["oblong"] = two[:, :, :16].astype(np.complex64)
        f["nan"] = np.where(np.arange(32) == 5, np.nan, two).astype(np.complex64)
        f["object"] = np.ones(scan.object.shape, np.complex64)
        f["text"] = "x"
        f.create_group("sample")["probe"] = two.astype(np.complex64)
        f["sample/object"] = (2 * np.ones(scan.object.shape)).astype(np.complex64)
        f["sample"].attrs["pixel_pitch"] = scan.pixel
    return path


def test_probes_of_every_number_type(scan_file, arrays_file):
    with h5py.File(arrays_file) as f:
        stored = {name: f[name][...] for name in ("two", "double", "flat", "real", "integers")}
    for name, values in stored.items():
        values = values.reshape(-1, 32, 32).astype(np.complex64)
        job = {"scan": {"path": scan_file}, "model": {"probe_modes": len(values)},
               "probe": {"path": str(arrays_file), "dataset": name}}
        answer = read(job)
        assert answer.body["probe_modes"] == len(values) and answer.body["init_probe_modes"] == 0
        np.testing.assert_array_equal(answer.arrays["probe"], values)
        assert list(answer.arrays) == ["frames", "positions", "probe"]


def test_arrays_are_found_where_results_keep_them(scan_file, arrays_file):
    job = {"scan": {"path": scan_file}, "model": {"probe_modes": 2}, "recon": {"mode_schedule": [3]},
           "init_probe": {"path": str(arrays_file)}, "init_object": {"path": str(arrays_file)}}
    answer = read(job)
    with h5py.File(arrays_file) as f:
        np.testing.assert_array_equal(answer.arrays["init_probe"], f["sample/probe"][...])
        np.testing.assert_array_equal(answer.arrays["init_object"], f["sample/object"][...])
    both = read({"scan": {"path": scan_file}, "model": {"probe_modes": 2}, "recon": {"mode_schedule": [3]},
                 "init": {"path": str(arrays_file)}})
    assert list(both.arrays) == ["frames", "positions", "init_probe", "init_object"]
    assert both.body["init_probe_modes"] == 2


def test_a_known_probe_takes_only_the_object_of_init(scan_file, arrays_file):
    job = {"scan": {"path": scan_file}, "init": {"path": str(arrays_file)},
           "probe": {"path": str(arrays_file), "dataset": "flat"}}
    assert list(read(job).arrays) == ["frames", "positions", "probe", "init_object"]


def test_probes_that_do_not_fit(scan_file, arrays_file):
    for dataset, words in (("small", ("16 x 16", "32 x 32")), ("oblong", ("[2][32][16]",)), ("two", ("2 modes", "probe_modes is 1")),
                           ("nan", ("finite", "element")), ("gone", ("no dataset '/gone'",)), ("text", ("text",)),
                           ("sample", ("not a dataset",))):
        job = {"scan": {"path": scan_file}, "probe": {"path": str(arrays_file), "dataset": dataset}}
        if dataset == "nan":
            job["model"] = {"probe_modes": 2}
        refused(job, *words, pointer="/probe/path", kinds=("read",))
    job = {"scan": {"path": scan_file}, "init_probe": {"path": str(arrays_file), "dataset": "two"}}
    refused(job, "2 modes", pointer="/init_probe/path")
    refused({"scan": {"path": scan_file}, "probe": {"path": scan_file}}, "/sample/probe", "dataset", pointer="/probe/path")


def test_objects_that_do_not_fit(scan_file, arrays_file, scan):
    job = {"scan": {"path": scan_file}, "init_object": {"path": str(arrays_file)}, "model": {"object_shape": [90, 91],
           "object_origin_m": [0.0, 0.0]}}
    refused(job, "90 x 91", "{} x {}".format(*scan.object.shape), pointer="/init_object/path")


def test_every_file_is_judged_at_once(scan, tmp_path, arrays_file):
    path = scan.write(tmp_path / "a.h5", positions=scan.positions[:-1])
    job = {"scan": {"path": path}, "probe": {"path": str(tmp_path / "gone.h5")},
           "init_object": {"path": str(arrays_file), "dataset": "/nowhere"},
           "output": {"path": str(tmp_path / "none" / "out.h5")}}
    answer = probe(job, output_path=str(tmp_path / "none" / "out.h5"))
    assert answer.fault == "dataset"
    assert set(answer.errors) == {"/scan/path", "/probe/path", "/init_object/path", "/output/path"}


def test_arrays_alone_come_with_their_place(arrays_file, scan_file, scan, tmp_path):
    wanted = [{"path": str(arrays_file), "dataset": None, "use": "object"},
              {"path": str(arrays_file), "dataset": "flat", "use": "probe"},
              {"path": scan_file, "dataset": None, "use": "object"}]
    answer = reader.exchange("read", {"arrays_only": wanted, "roots": None})
    first, second, third = answer.body["arrays"]
    with h5py.File(arrays_file) as f:
        np.testing.assert_array_equal(answer.arrays["array0"][0], f["sample/object"][...])
        np.testing.assert_array_equal(answer.arrays["array1"][0], f["flat"][...].astype(np.complex64))
    assert first["dataset"] == "/sample/object" and first["pixel_m"] == scan.pixel and answer.sealed
    assert second["shape"] == [1, 32, 32] and third["dataset"] == "/truth/object"
    wanted[1]["path"] = str(tmp_path / "gone.h5")
    answer = reader.exchange("read", {"arrays_only": wanted, "roots": [str(tmp_path)]})
    assert set(answer.errors) == {"/arrays_only/1/path", "/arrays_only/2/path"}, answer.problem
