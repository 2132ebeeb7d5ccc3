"""xptycho-reader: what it hands over of good files, and what it says about bad ones, each in a process of its own."""

import bz2
import ctypes
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys

import h5py
import numpy as np
import pytest

import measured
import reader
import scans
import xptychod
from conftest import DATA


def probe(job, **options):
    return reader.ask("probe", job, **options)


def read(job, **options):
    return reader.ask("read", job, **options)


def refused(job, *words, pointer="/scan/path", fault="dataset", kinds=("probe",), **options):
    """Refused with that fault and pointer, all words in the sentence; the sentence."""
    for kind in kinds:
        answer = reader.ask(kind, job, **options)
        assert answer.kind == "refused" and answer.status == 0, answer.body
        assert answer.fault == fault, answer.problem
        assert pointer in answer.errors, answer.problem
        text = answer.errors[pointer]
        for word in words:
            assert str(word) in text, (word, text)
        assert "\n" not in text and not text.endswith("."), text
    return text


def rewrite(path, **datasets):
    """Replaces datasets of a scan file; None removes one."""
    with h5py.File(path, "r+") as f:
        for name, value in datasets.items():
            if name in f["scan"]:
                del f["scan"][name]
            if value is not None:
                f["scan"][name] = value
    return path


# ------------------------------------------------------------------------------ what good files give


@pytest.mark.parametrize("name", ["tiny_known", "medium", "medium_masked"])
def test_reference_scans_are_handed_over_bit_for_bit(name):
    path = DATA / f"{name}.h5"
    answer = read(path)
    assert answer.kind == "scan" and answer.status == 0 and answer.sealed
    body, arrays = answer.body, answer.arrays
    with h5py.File(path) as f:
        frames, positions, scan = f["scan/frames"][...], f["scan/positions"][...], dict(f["scan"].attrs)
        mask = f["scan/mask"][...] if "mask" in f["scan"] else None
    np.testing.assert_array_equal(arrays["frames"], frames)
    np.testing.assert_array_equal(arrays["positions"], positions)
    assert (mask is None) == ("mask" not in arrays)
    if mask is not None:
        np.testing.assert_array_equal(arrays["mask"], mask)
    assert body["frames"] == len(frames) and body["frame_side"] == frames.shape[1] and body["type"] == str(frames.dtype)
    assert body["bytes"] == frames.nbytes and body["name"] == name and body["format"] == "xptycho"
    assert body["wavelength_m"] == scan["wavelength"] and body["detector_pitch_m"] == scan["detector_pitch"]
    stat = path.stat()
    file = body["file"]
    assert (file["inode"], file["size"], file["mtime_ns"]) == (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    assert file["sha256"] == hashlib.sha256(frames.tobytes() + positions.tobytes()).hexdigest()


def test_a_probe_reads_headers_and_positions_only(scan_file):
    answer = probe(scan_file)
    assert list(answer.arrays) == ["positions"] and "sha256" not in answer.body["file"]
    with h5py.File(scan_file) as f:
        np.testing.assert_array_equal(answer.arrays["positions"], f["scan/positions"][...])


@pytest.mark.parametrize("positions", ["positions", "probe_positions"])
@pytest.mark.parametrize("distance, pitch", [("detector_distance", "detector_pitch"), ("det_distance", "det_pixel_pitch"),
                                             ("detector_distance", "detector_pixel")])
@pytest.mark.parametrize("as_datasets", [False, True])
def test_every_published_spelling_is_read(scan, tmp_path, positions, distance, pitch, as_datasets):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        g = f.create_group("scan")
        g["frames"] = scan.frames
        g[positions] = scan.positions
        place = g if as_datasets else g.attrs
        place["wavelength"] = scans.WAVELENGTH
        place[distance] = scans.DISTANCE
        place[pitch] = scans.PITCH
    body = probe(path).body
    assert (body["wavelength_m"], body["detector_distance_m"], body["detector_pitch_m"]) == (
        scans.WAVELENGTH, scans.DISTANCE, scans.PITCH)
    assert body["object_pixel_m"] == pytest.approx(scan.pixel, rel=1e-12)


def test_energy_stands_for_the_wavelength(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5", wavelength=None)
    with h5py.File(path, "r+") as f:
        f["scan"].attrs["energy"] = 12.398419843320026
    assert probe(path).body["wavelength_m"] == pytest.approx(1e-10, rel=1e-12)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", ">u2", ">i4", ">f4", ">f8"])
def test_frames_keep_their_stored_type(scan, tmp_path, dtype):
    frames = (scan.frames % 100).astype(dtype)
    answer = read(scan.write(tmp_path / "a.h5", frames=frames))
    native = np.dtype(dtype).newbyteorder("=")
    assert answer.body["type"] == str(native)
    np.testing.assert_array_equal(answer.arrays["frames"], frames.astype(native))


def test_half_floats_become_float32(scan, tmp_path):
    frames = (scan.frames % 100).astype(np.float16)
    answer = read(scan.write(tmp_path / "a.h5", frames=frames))
    assert answer.body["type"] == "float32"
    np.testing.assert_array_equal(answer.arrays["frames"], frames.astype(np.float32))


@pytest.mark.parametrize("layout", [dict(), dict(chunks=(1, 32, 32), compression="gzip", shuffle=True),
                                    dict(chunks=(5, 7, 9), compression="gzip"), dict(chunks=(36, 4, 4), fletcher32=True),
                                    dict(chunks=(36, 32, 32), compression="gzip"), dict(maxshape=(None, 32, 32))])
def test_any_layout_gives_the_same_frames(scan, tmp_path, layout):
    path = scan.write(tmp_path / "a.h5", frames=None)
    with h5py.File(path, "r+") as f:
        f.create_dataset("scan/frames", data=scan.frames, **layout)
    np.testing.assert_array_equal(read(path).arrays["frames"], scan.frames)


def test_many_frames_are_read_in_slabs(tmp_path):
    count, n = 40_000, 16  # 40 MiB of float32, more than a slab
    frames = (np.arange(count * n * n, dtype=np.uint32) % 977).astype(np.float32).reshape(count, n, n)
    positions = np.zeros((count, 2))
    positions[:, 0] = np.arange(count) % 200 * 2e-7
    positions[:, 1] = np.arange(count) // 200 * 2e-7
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        g = f.create_group("scan")
        g.create_dataset("frames", data=frames, chunks=(7, n, n))
        g["positions"] = positions
        g.attrs.update(wavelength=1e-10, det_distance=1.0, det_pixel_pitch=5e-5)
    answer = read(path)
    np.testing.assert_array_equal(answer.arrays["frames"], frames)


def test_the_environment_cannot_lead_hdf5_elsewhere(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5")
    env = dict(os.environ, HDF5_DRIVER="no-such-driver", HDF5_EXT_PREFIX="/nowhere", HDF5_VDS_PREFIX="/nowhere",
               HDF5_PLUGIN_PATH=str(tmp_path), HDF5_USE_FILE_LOCKING="nonsense")
    assert probe(path, env=env).kind == "scan"


def test_job_values_override_the_file(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5", frames=(scan.frames * 10).astype(np.uint16))
    job = {"scan": {"path": path, "saturation": 100,
                    "geometry": {"energy_kev": 6.2, "detector_distance_m": 2.0, "detector_pitch_m": 1e-4}}}
    body = read(job).body
    assert body["energy_kev"] == pytest.approx(6.2) and body["wavelength_m"] == pytest.approx(2e-10, rel=1e-3)
    assert (body["detector_distance_m"], body["detector_pitch_m"], body["saturation"]) == (2.0, 1e-4, 100)
    count = int((scan.frames * 10 >= 100).sum())
    assert any(f"{count} of" in w and "saturation" in w for w in body["warnings"]), body["warnings"]


def test_grid_follows_the_job(scan_file, scan):
    plain = probe(scan_file).body["grid"]
    assert plain["shape"] == list(scan.object.shape) and plain["origin_m"] == pytest.approx([0, 0])
    job = {"scan": {"path": scan_file}, "model": {"object_shape": [100, 110], "object_origin_m": [-scan.pixel, 0.0]}}
    grid = probe(job).body["grid"]
    assert grid["shape"] == [100, 110] and grid["origin_m"] == [-scan.pixel, 0.0]


# -------------------------------------------------------------------------------------- bad files


def test_paths_that_lead_to_no_scan(scan_file, tmp_path):
    folder, fifo, text, empty, cut = (tmp_path / name for name in ("folder", "fifo", "text.h5", "empty.h5", "cut.h5"))
    folder.mkdir()
    os.mkfifo(fifo)
    text.write_text("not HDF5\n" * 1000)
    empty.write_bytes(b"")
    whole = pathlib.Path(scan_file).read_bytes()
    cut.write_bytes(whole[:len(whole) // 2])
    refused(tmp_path / "gone.h5", "gone.h5", "does not exist")
    refused(folder, "folder")
    refused(fifo, "FIFO")
    refused(text, "not an HDF5 file")
    refused(empty, "empty")
    refused(cut, "truncated", len(whole), len(whole) // 2)
    refused("/dev/zero", "not a regular file")
    refused(tmp_path / ("x" * 300), "cannot be opened")


def test_roots_hold_for_links_and_dots(scan_file, tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "in2"
    inside.mkdir()
    outside.mkdir()
    whole = pathlib.Path(scan_file).read_bytes()
    (inside / "scan.h5").write_bytes(whole)
    (outside / "scan.h5").write_bytes(whole)
    (inside / "link.h5").symlink_to(outside / "scan.h5")
    (inside / "good.h5").symlink_to("scan.h5")
    roots = [tmp_path / "none", inside]
    assert read(inside / "scan.h5", roots=roots).kind == "scan"
    assert read(inside / "good.h5", roots=roots).body["file"]["path"] == str(inside / "scan.h5")
    for path in (outside / "scan.h5", inside / "link.h5", f"{inside}/../in2/scan.h5", "/etc/passwd"):
        refused(path, "outside", roots=roots)
    refused(inside / "scan.h5", "outside", roots=[])
    refused(outside / "gone.h5", "outside", roots=roots)  # nor is it told what is there
    refused(inside / "gone.h5", "does not exist", roots=roots)
    job = {"scan": {"path": str(inside / "scan.h5")}, "init_probe": {"path": str(outside / "scan.h5"), "dataset": "/truth/probe"}}
    refused(job, "outside", pointer="/init_probe/path", roots=roots)


def test_a_file_that_is_being_written_is_told_apart(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5")
    with h5py.File(path, "r+") as f:
        f.flush()
        refused(path, "open for writing")
    assert probe(path).kind == "scan"


def test_counts_that_differ(scan, tmp_path):
    refused(scan.write(tmp_path / "a.h5", positions=scan.positions[:-1]), "36 frames but 35 positions")


def test_shapes_that_are_refused_name_their_numbers(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5")
    for frames, words in ((scan.frames[:, :31, :31], ("31 x 31", "even")), (scan.frames[:, :, :30], ("32 x 30", "square")),
                          (scan.frames[0], ("[32][32]",)), (scan.frames[None], ("[1][36][32][32]",)),
                          (scan.frames[:0], ("empty",)), (scan.frames.astype(complex), ("complex",)),
                          (np.array([b"text"] * 36), ("text",)), (np.zeros(36, "i4,f4"), ("class",))):
        refused(rewrite(path, frames=frames), *words)
    rewrite(path, frames=scan.frames)
    for positions, words in ((scan.positions[:, :1], ("[36][1]", "[36][2]")), (scan.positions.ravel(), ("[72]",)),
                             (scan.positions.T, ("[2][36]",)), (scan.positions.astype(complex), ("complex",))):
        refused(rewrite(path, positions=positions), *words)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_positions_that_are_not_finite_name_their_frame(scan, tmp_path, value):
    positions = scan.positions.copy()
    positions[17, 1] = value
    refused(scan.write(tmp_path / "a.h5", positions=positions), "frame 17")


def test_units_and_order_of_positions(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5", positions=scan.positions * 1e6)
    with h5py.File(path, "r+") as f:
        f["scan/positions"].attrs["units"] = "um"
    np.testing.assert_allclose(probe(path).arrays["positions"], scan.positions, rtol=1e-12)
    for name, value in (("units", "parsec"), ("order", "column, row")):
        with h5py.File(path, "r+") as f:
            f["scan/positions"].attrs[name] = value
        refused(path, value)
        with h5py.File(path, "r+") as f:
            f["scan/positions"].attrs["units"] = "um"


@pytest.mark.parametrize("missing, member", [("wavelength", "wavelength_m"), ("detector_distance", "detector_distance_m"),
                                             ("detector_pitch", "detector_pitch_m")])
def test_missing_geometry_names_where_it_was_looked_for_and_what_supplies_it(scan, tmp_path, missing, member):
    path = scan.write(tmp_path / "a.h5", **{missing: None})
    refused(path, missing, f"scan.geometry.{member}", "/scan", pointer="/scan/geometry")
    value = {"wavelength": scans.WAVELENGTH, "detector_distance": scans.DISTANCE, "detector_pitch": scans.PITCH}[missing]
    body = probe({"scan": {"path": path, "geometry": {member: value}}}).body
    assert body["object_pixel_m"] == pytest.approx(scan.pixel)


def test_all_missing_geometry_is_told_at_once(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5", wavelength=None, detector_distance=None, detector_pitch=None)
    refused(path, "wavelength_m or energy_kev", "detector_distance_m", "detector_pitch_m", pointer="/scan/geometry")


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, "long", np.ones(2)])
def test_geometry_that_is_no_length(scan, tmp_path, value):
    path = scan.write(tmp_path / "a.h5", detector_distance=value)
    answer = probe(path)
    assert answer.kind == "refused" and "distance" in str(answer.errors), answer.body


def test_positions_in_the_wrong_unit_are_refused_not_allocated(scan, tmp_path):
    refused(scan.write(tmp_path / "a.h5", positions=scan.positions * 1e9), "units")


def test_filters_that_are_not_here_are_named(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5", frames=None)
    with h5py.File(path, "r+") as f:
        f.create_dataset("scan/frames", data=scan.frames, chunks=(1, 32, 32), compression="lzf")
    refused(path, "32000", "lzf", "/scan/frames", kinds=("probe", "read"))


@pytest.mark.parametrize("name, number", [("eiger4m-bitshuffle/eiger4m_bitshuffle_lz4.h5", 32008),
                                          ("eiger4m-bitshuffle/blosc.h5", 32001)])
def test_measured_files_with_absent_filters(scan_file, name, number):
    path = measured.find(name)
    refused(path, number)
    dataset = "/entry/data/data" if number == 32008 else "/dset"
    refused({"scan": {"path": scan_file}, "init_probe": {"path": str(path), "dataset": dataset}}, number, dataset,
            pointer="/init_probe/path")


def test_frames_that_were_never_written(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5", frames=None)
    with h5py.File(path, "r+") as f:
        f.create_dataset("scan/frames", shape=(36, 32, 32), chunks=(1, 32, 32), dtype="f4")
    refused(path, "nothing was ever written")
    refused(rewrite(path, frames=np.zeros((36, 32, 32), np.float32)), "zero everywhere", kinds=("read",))


def test_frames_beyond_memory_are_refused_with_both_sizes(scan, tmp_path):
    count = 1 << 19
    path = scan.write(tmp_path / "a.h5", frames=None, positions=np.zeros((count, 2)))
    with h5py.File(path, "r+") as f:  # a sparse file: it takes no room on the disk
        f.create_dataset("scan/frames", shape=(count, 512, 512), dtype="f8")[0, 0, 0] = 1
    refused(path, "1024.00 GiB", "available", fault="unavailable", kinds=("read",))


def test_frames_of_which_next_to_nothing_was_written(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5", frames=None, positions=np.zeros((1 << 22, 2)))
    with h5py.File(path, "r+") as f:
        f.create_dataset("scan/frames", shape=(1 << 22, 512, 512), chunks=(1, 512, 512), dtype="f8")[0] = 1
    refused(path, "8.389e+06 MiB", "2 MiB", kinds=("probe", "read"))


def test_what_pixels_hold_is_counted(scan, tmp_path):
    frames = scan.frames.astype(np.int32)
    frames[3] = 0
    frames[0, 0, :5] = -1
    frames[1, 2, :7] = np.iinfo(np.int32).max
    warnings = "\n".join(read(scan.write(tmp_path / "a.h5", frames=frames)).body["warnings"])
    for words in ("5 of 36864 pixels", "negative", "7 of 36864 pixels", "largest value", "1 of 36 frames are zero"):
        assert words in warnings, warnings
    frames = scan.frames.copy()
    frames[2, 3, 4] = np.nan
    assert "1 of 36864 pixels" in str(read(scan.write(tmp_path / "b.h5", frames=frames)).body["warnings"])
    frames[:20] = np.inf
    refused(scan.write(tmp_path / "c.h5", frames=frames), "more than half", kinds=("read",))


# ----------------------------------------------------------------- data that lies in other files


def linked(scan, folder, target, link):
    """A scan whose frames are in folder/target, reached by an external link."""
    path = scan.write(folder / "master.h5", frames=None)
    with h5py.File(folder / target, "w") as f:
        f["data"] = scan.frames
    with h5py.File(path, "r+") as f:
        f["scan/frames"] = h5py.ExternalLink(link, "/data")
    return path


def test_external_links_are_followed_beneath_the_roots_only(scan, tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "sub").mkdir(parents=True)
    outside.mkdir()
    for target, link in (("data.h5", "data.h5"), ("sub/data.h5", "sub/data.h5"), ("abs.h5", str(inside / "abs.h5"))):
        path = linked(scan, inside, target, link)
        np.testing.assert_array_equal(read(path, roots=[inside]).arrays["frames"], scan.frames)
    path = linked(scan, inside, "../out/data.h5", "../out/data.h5")
    refused(path, "outside", "../out/data.h5", roots=[inside])
    assert read(path).kind == "scan"  # with the caller's own permissions
    (inside / "sly.h5").symlink_to(outside / "data.h5")
    path = linked(scan, inside, "other.h5", "sly.h5")
    refused(path, "outside", roots=[inside])


def test_external_links_that_lead_nowhere(scan, tmp_path):
    path = linked(scan, tmp_path, "data.h5", "gone.h5")
    refused(path, "gone.h5", "does not exist")
    os.mkfifo(tmp_path / "fifo.h5")
    path = linked(scan, tmp_path, "data.h5", "fifo.h5")
    refused(path, "not a regular file")
    with h5py.File(path, "r+") as f:
        del f["scan/frames"]
        f["scan/frames"] = h5py.SoftLink("/scan/frames")
    refused(path, "leads nowhere")


def test_external_storage_is_never_read(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5", frames=None)
    (tmp_path / "raw").write_bytes(scan.frames.tobytes())
    for target in (str(tmp_path / "raw"), "/etc/passwd"):
        with h5py.File(path, "r+") as f:
            if "frames" in f["scan"]:
                del f["scan/frames"]
            f.create_dataset("scan/frames", shape=scan.frames.shape, dtype="f4", external=[(target, 0, h5py.h5f.UNLIMITED)])
        refused(path, "external storage", kinds=("probe", "read"))


def virtual(scan, folder, sources, covered=36):
    """A scan whose frames are a virtual dataset over equal parts in `sources`."""
    path = scan.write(folder / "master.h5", frames=None)
    part = 36 // len(sources)
    layout = h5py.VirtualLayout(shape=scan.frames.shape, dtype="f4")
    for i, source in enumerate(sources):
        stop = min((i + 1) * part, covered)
        layout[i * part:stop] = h5py.VirtualSource(source, "data", shape=(part, 32, 32))[:stop - i * part]
        with h5py.File(folder / source, "w") as f:
            f["data"] = scan.frames[i * part:(i + 1) * part]
    with h5py.File(path, "r+") as f:
        f.create_virtual_dataset("scan/frames", layout)
    return path


def test_virtual_datasets_with_all_their_sources(scan, tmp_path):
    path = virtual(scan, tmp_path, ["a.h5", "b.h5", "c.h5"])
    np.testing.assert_array_equal(read(path, roots=[tmp_path]).arrays["frames"], scan.frames)


def test_virtual_datasets_with_a_missing_source_are_not_zeros(scan, tmp_path):
    path = virtual(scan, tmp_path, ["a.h5", "b.h5", "c.h5"])
    (tmp_path / "b.h5").unlink()
    refused(path, "virtual", "b.h5", "does not exist", kinds=("probe", "read"))
    with h5py.File(tmp_path / "b.h5", "w") as f:
        f["other"] = scan.frames[:12]
    refused(path, "virtual", "'data'", "b.h5")


def test_virtual_datasets_with_gaps_are_refused(scan, tmp_path):
    refused(virtual(scan, tmp_path, ["a.h5", "b.h5"], covered=30), "virtual", 30 * 1024, 36 * 1024)


def test_virtual_sources_outside_the_roots_are_refused(scan, tmp_path):
    inside = tmp_path / "in"
    inside.mkdir()
    path = virtual(scan, inside, ["../a.h5"])
    refused(path, "outside", roots=[inside])
    assert read(path).kind == "scan"


def test_virtual_sources_with_absent_filters_are_refused(scan, tmp_path):
    path = virtual(scan, tmp_path, ["a.h5"])
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("data", data=scan.frames, compression="lzf")
    refused(path, "32000")


# --------------------------------------------------------------------------------------------- masks


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


# ------------------------------------------------------------------------------ probes and objects


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


# --------------------------------------------------------------------------------------- the output


def test_output_paths_that_cannot_be_used(scan_file, tmp_path):
    existing = tmp_path / "exists.h5"
    existing.write_text("mine")
    job = {"scan": {"path": scan_file}}
    good = probe(job, output_path=str(tmp_path / "new.h5"), write_roots=[tmp_path])
    assert good.kind == "scan" and not (tmp_path / "new.h5").exists()
    for path, words in ((existing, ("exists", "overwrite")), (tmp_path, ("folder",)),
                        (tmp_path / "none" / "out.h5", ("does not exist",))):
        refused(job, *words, pointer="/output/path", fault="output", output_path=str(path))
    refused(job, "outside", pointer="/output/path", fault="output", output_path=str(tmp_path / "new.h5"),
            write_roots=[tmp_path / "exists.h5", "/nowhere"])
    job["output"] = {"path": str(existing), "overwrite": True}
    refused(job, "not a result", pointer="/output/path", fault="output", output_path=str(existing), roots=[tmp_path, "/"],
            write_roots=[tmp_path])
    assert existing.read_text() == "mine"


# ------------------------------------------------------------------------------------ the connection


def test_jobs_that_are_not_valid_are_refused(scan_file):
    answer = probe({"scan": {"path": scan_file}, "prioritty": 1})
    assert answer.fault == "invalid-job" and "/prioritty" in answer.errors


@pytest.mark.parametrize("message", [b"", b"x", b"\0" * 16, reader.HEADER.pack(reader.MAGIC, 9, 1, 2, 0, 0) + b"{}",
                                     reader.HEADER.pack(reader.MAGIC, 1, 7, 2, 0, 0) + b"{}",
                                     reader.HEADER.pack(reader.MAGIC, 1, 1, 2, 0, 0) + b"{}",
                                     reader.HEADER.pack(reader.MAGIC, 1, 1, 200, 0, 0) + b"{}",
                                     reader.HEADER.pack(reader.MAGIC, 1, 1, 4, 0, 0) + b"true"])
def test_messages_that_break_the_rules_end_the_process_in_order(message):
    packet, fds, status = reader.send(message)
    assert packet == b"" and fds == [] and status in (0, 1)


# ----------------------------------------------------------------------------------------------- CXI


def write_cxi(path, scan, positions=None, **changes):
    """A CXI file as beamlines write it; changes: mask, basis, energy, wavelength, probe, units, links, sides."""
    with h5py.File(path, "w") as f:
        f["cxi_version"] = 160
        entry = f.create_group("entry_1")
        detector, source = entry.create_group("instrument_1/detector_1"), entry.create_group("instrument_1/source_1")
        detector["data"] = scan.frames
        translation = np.zeros((len(scan.positions), 3))
        translation[:, 1], translation[:, 0] = scan.positions.T
        entry.create_group("sample_1/geometry_1")["translation"] = translation if positions is None else positions
        detector["distance"] = scans.DISTANCE
        if changes.get("pitch", True):
            detector["x_pixel_size"] = detector["y_pixel_size"] = scans.PITCH
        source["energy"] = changes.get("energy", 12.398419843320026 * 1.602176634e-16)
        if "units" in changes:
            source["energy"].attrs["units"] = changes["units"]
        if "wavelength" in changes:
            source["wavelength"] = changes["wavelength"]
        if "probe" in changes:
            source["probe"] = changes["probe"]
        if "mask" in changes:
            detector["mask"] = changes["mask"]
        if "basis" in changes:
            detector["basis_vectors"] = changes["basis"]
        data = entry.create_group("data_1")
        if changes.get("links", True):
            data["data"] = h5py.SoftLink("/entry_1/instrument_1/detector_1/data")
            data["translation"] = h5py.SoftLink("/entry_1/sample_1/geometry_1/translation")
    return path


@pytest.mark.parametrize("links", [True, False])
def test_cxi_translation_becomes_row_and_column(scan, tmp_path, links):
    answer = read(write_cxi(tmp_path / "a.cxi", scan, links=links))
    assert answer.body["format"] == "cxi" and answer.body["energy_kev"] == pytest.approx(12.398419843320026)
    np.testing.assert_allclose(answer.arrays["positions"], scan.positions, rtol=1e-14)
    np.testing.assert_array_equal(answer.arrays["frames"], scan.frames)


def test_cxi_basis_vectors_turn_the_positions(scan, tmp_path):
    p = scans.PITCH
    row, column = scan.positions.T  # stored as y, x
    for basis, expected in (([[0, -p], [-p, 0], [0, 0]], (row, column)), ([[0, p], [p, 0], [0, 0]], (-row, -column)),
                            ([[0, p], [-p, 0], [0, 0]], (row, -column)), ([[-p, 0], [0, p], [0, 0]], (column, -row)),
                            (np.array([[0, -p], [-p, 0], [0, 0]]).T, (row, column))):
        answer = probe(write_cxi(tmp_path / "a.cxi", scan, basis=np.array(basis), pitch=False))
        np.testing.assert_allclose(answer.arrays["positions"], np.stack(expected, 1), rtol=1e-14)
        assert answer.body["detector_pitch_m"] == pytest.approx(p)


def test_cxi_translation_with_other_shapes(scan, tmp_path):
    xyz = np.stack([scan.positions[:, 1], scan.positions[:, 0], np.zeros(36)], 1)
    for stored in (xyz, xyz.T, xyz[:, :2], xyz[:, :2].T):
        answer = probe(write_cxi(tmp_path / "a.cxi", scan, positions=stored))
        np.testing.assert_allclose(answer.arrays["positions"], scan.positions, rtol=1e-14)
    refused(write_cxi(tmp_path / "a.cxi", scan, positions=xyz[:-1]), "36 frames but 35 positions")


def test_cxi_electrons_are_never_taken_for_photons(scan, tmp_path):
    energy = 300 * 1.602176634e-16
    body = probe(write_cxi(tmp_path / "a.cxi", scan, energy=energy, probe="electron",
                           positions=np.zeros((36, 3)))).body
    assert body["wavelength_m"] == pytest.approx(1.96875e-12, rel=1e-4) and body["energy_kev"] is None
    body = probe(write_cxi(tmp_path / "b.cxi", scan, energy=energy, probe="electron", wavelength=2e-12,
                           positions=np.zeros((36, 3)))).body
    assert body["wavelength_m"] == 2e-12
    assert any("recorded wavelength" in w for w in body["warnings"]), body


def test_cxi_energies_and_their_units(scan, tmp_path):
    body = probe(write_cxi(tmp_path / "a.cxi", scan, energy=12398.419843320026, units="eV")).body
    assert body["wavelength_m"] == pytest.approx(1e-10)
    refused(write_cxi(tmp_path / "a.cxi", scan, energy=12.4), "energy_kev")  # keV without saying so
    refused(write_cxi(tmp_path / "a.cxi", scan, energy=3.0, units="furlong"), "furlong")


def test_cxi_mask_flags(scan, tmp_path):
    flags = np.full((32, 32), 4096, np.uint32)
    flags[5, 6], flags[7, 8] = 38, 4096 | 8
    mask = read(write_cxi(tmp_path / "a.cxi", scan, mask=flags)).arrays["mask"]
    assert sorted(zip(*np.nonzero(mask))) == [(5, 6), (7, 8)]
    refused(write_cxi(tmp_path / "b.cxi", scan, mask=np.ones((32, 32), "i4")), "more than half", kinds=("read",))


def test_cxi_without_what_it_needs(scan, tmp_path):
    path = write_cxi(tmp_path / "a.cxi", scan)
    with h5py.File(path, "r+") as f:
        del f["entry_1/data_1/translation"]
        del f["entry_1/sample_1"]
    refused(path, "no scan positions", "sample_1/geometry_1/translation")
    path = write_cxi(tmp_path / "b.cxi", scan)
    with h5py.File(path, "r+") as f:
        del f["entry_1/instrument_1/source_1/energy"]
    refused(path, "source_1/wavelength", "source_1/energy", pointer="/scan/geometry")


def test_cxi_steps_beyond_half_a_frame_are_refused(scan, tmp_path):
    far = np.zeros((36, 3))
    far[:, 0] = np.arange(36) * scan.pixel * 20
    refused(write_cxi(tmp_path / "a.cxi", scan, positions=far), "near-field")
    body = probe(scan.write(tmp_path / "b.h5", positions=far[:, :2].copy())).body
    assert any("hardly overlap" in w for w in body["warnings"])


# ----------------------------------------------------------------------------------- measured files


def inspect(path, *options):
    done = xptychod.run("xptycho-reader", "inspect", path, "--json", *options)
    assert done.stdout, done
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("case", [1, 2, 3])
def test_cases_of_another_program_s_suite(case):
    path = measured.find(f"cdtools-reader-cases/ptycho_cxi_{case}.cxi")
    expected = json.loads(path.with_suffix(".expected.json").read_text())
    code, seen = inspect(path)
    assert code == 3 and "3e-05 m by 2e-05 m" in str(seen["problems"])  # pixels that are not square
    basis = np.array(expected["detector"]["basis"]["first"]).reshape(3, 2)
    _, seen = inspect(path, "--pitch-m", -basis[0, 1])
    assert seen["wavelength_m"] == pytest.approx(expected["wavelength"], rel=1e-6)
    assert seen["detector_distance_m"] == pytest.approx(expected["detector"]["distance"], rel=1e-6)
    assert [seen["frames"], seen["frame_side"], seen["frame_side"]] == expected["data"]["shape"]
    assert seen["type"] == expected["data"]["dtype"]
    assert seen["counts"]["sum"] == pytest.approx(expected["data"]["sum"], rel=1e-6)
    bad = 0 if expected["mask"] is None else 32 * 32 - expected["mask"]["sum"]
    assert seen["masked_by_file"] == bad
    # that program negates the translation (beam, not sample), and the detector's axes are -y and -x
    beam = np.array(expected["translations"]["first"]).reshape(2, 3)
    np.testing.assert_allclose(seen["positions"]["first"][:2], -beam[:, [1, 0]])


def test_rocking_curve_is_no_scan():
    refused(measured.find("aps-34idc-bcdi/bcdi_rocking_scan54.cxi"), "no scan positions", "translation")


def test_near_field_scan_is_refused():
    refused(measured.find("petra3-p25-nearfield/PETRAIII_P25_Near_Field_Ptycho.cxi"), "near-field")


def test_electron_scan_is_read():
    path = measured.find("cryo-electron-ptycho/cryo_virus_24x24.cxi")
    answer = read(path)
    with h5py.File(path) as f:
        np.testing.assert_array_equal(answer.arrays["frames"], f["entry_1/data_1/data"][...])
        np.testing.assert_allclose(answer.arrays["positions"], f["entry_1/data_1/translation"][...][:, [1, 0]])
    assert answer.body["type"] == "uint8" and answer.body["energy_kev"] is None


# ------------------------------------------------------------------------------------------- inspect


def test_inspect_tells_people_and_programs_the_same(scan_file, scan):
    code, seen = inspect(scan_file)
    assert code == 0 and seen["accepted"] and seen["problems"] == []
    assert seen["object_pixel_m"] == pytest.approx(scan.pixel) and seen["grid"]["shape"] == list(scan.object.shape)
    assert seen["counts"]["sum"] == pytest.approx(float(scan.frames.sum(dtype=float)))
    assert seen["step_m"] == pytest.approx(5 * scan.pixel, rel=0.25) and 0 < seen["overlap"] < 1
    text = xptychod.run("xptycho-reader", "inspect", scan_file)
    assert text.returncode == 0
    for word in ("36 of 32 x 32", "float32", "object pixel", "62.5 nm", "overlap", "ready"):
        assert word in text.stdout, text.stdout


def test_inspect_goes_on_after_a_problem(scan, tmp_path):
    path = scan.write(tmp_path / "a.h5", positions=scan.positions[:-1])
    code, seen = inspect(path)
    assert code == 3 and not seen["accepted"] and seen["frames"] == 36
    assert seen["problems"][0]["pointer"] == "/scan/path"
    done = xptychod.run("xptycho-reader", "inspect", path)
    assert done.returncode == 3 and "problems" in done.stdout and "35 positions" in done.stdout


def test_inspect_takes_geometry_and_relative_paths(scan, tmp_path):
    scan.write(tmp_path / "a.h5", wavelength=None)
    done = xptychod.run("xptycho-reader", "inspect", "a.h5", "--json", "--wavelength-m", "1e-10", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["path"] == str(tmp_path / "a.h5")


@pytest.mark.parametrize("arguments", [[], ["inspect"], ["inspect", "a", "b"], ["inspect", "a", "--pitch-m", "x"],
                                       ["inspect", "a", "--pitch-m", "-1"], ["inspect", "--no-such-option", "a"], ["fly"],
                                       ["import"], ["import", "a.npz"], ["import", "a.npz", "--output", "b", "--key", "x=y"],
                                       ["import", "a.npz", "--output", "b", "--shifted", "maybe"], ["--socket", "x"],
                                       ["import", "a.npz", "--output", "b", "--energy-kev", "1", "--wavelength-m", "1"]])
def test_usage_errors_are_code_2(arguments):
    done = xptychod.run("xptycho-reader", *arguments)
    assert done.returncode == 2 and done.stdout == "" and done.stderr


@pytest.mark.parametrize("mode", ["inspect", "import"])
def test_help_lists_the_options(mode):
    done = xptychod.run("xptycho-reader", mode, "--help")
    assert done.returncode == 0 and "usage" in done.stdout and "--json" in done.stdout and done.stderr == ""


# -------------------------------------------------------------------------------------------- import


GEOMETRY = ("--wavelength-m", "1e-10", "--distance-m", "1", "--pitch-m", "5e-5")


def take_in(archive, out, *options):
    return xptychod.run("xptycho-reader", "import", archive, "--output", out, *options)


def not_taken(done, *words, code=3):
    assert done.returncode == code and done.stdout == "", done
    for word in words:
        assert str(word) in done.stderr, done.stderr


@pytest.mark.parametrize("compressed", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("outer", [None, bz2.compress])
def test_archives_become_scans(scan, tmp_path, compressed, outer):
    pixels = scan.positions / scan.pixel
    buffer = io.BytesIO()
    compressed(buffer, data=np.fft.ifftshift(scan.frames, axes=(1, 2))[None], scan=pixels[None].astype(np.float32),
               probe=scan.probe[None, None].astype(np.complex64))
    archive = tmp_path / "a.npz.bz2"
    archive.write_bytes(outer(buffer.getvalue()) if outer else buffer.getvalue())
    out = tmp_path / "a.h5"
    done = take_in(archive, out, "--positions-unit", "pixel", *GEOMETRY, "--name", "imported", "--json")
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["zero_frequency_moved"] is True
    job = {"scan": {"path": str(out)}, "init_probe": {"path": str(out)}}
    answer = read(job)
    np.testing.assert_array_equal(answer.arrays["frames"], scan.frames)
    np.testing.assert_allclose(answer.arrays["positions"], scan.positions, rtol=1e-6)
    np.testing.assert_array_equal(answer.arrays["init_probe"], scan.probe.astype(np.complex64))
    assert answer.body["name"] == "imported"


def test_import_turns_positions_as_told_and_leaves_centred_frames(scan, tmp_path):
    np.savez(tmp_path / "a.npz", frames=scan.frames.astype(">u2"), positions=np.asfortranarray(scan.positions[:, ::-1] * [-1e9, 1e9]))
    out = tmp_path / "a.h5"
    done = take_in(tmp_path / "a.npz", out, "--positions-unit", "nm", "--swap", "--flip-columns", *GEOMETRY)
    assert done.returncode == 0 and "in the middle already" in done.stdout, done
    answer = read(out)
    np.testing.assert_allclose(answer.arrays["positions"], scan.positions, rtol=1e-12)
    np.testing.assert_array_equal(answer.arrays["frames"], scan.frames.astype(np.uint16))


def test_object_pixel_stands_for_a_geometry_that_was_not_recorded(scan, tmp_path):
    np.savez(tmp_path / "a.npz", frames=scan.frames, positions=scan.positions / scan.pixel)
    out = tmp_path / "a.h5"
    done = take_in(tmp_path / "a.npz", out, "--positions-unit", "pixel", "--object-pixel-m", "2e-8")
    assert done.returncode == 0 and "not all of them were recorded" in done.stdout, done
    answer = probe(out)
    assert answer.body["object_pixel_m"] == pytest.approx(2e-8, rel=1e-12)
    np.testing.assert_allclose(answer.arrays["positions"], scan.positions / scan.pixel * 2e-8, rtol=1e-12)
    not_taken(take_in(tmp_path / "a.npz", tmp_path / "b.h5", "--positions-unit", "pixel", "--object-pixel-m", "2e-8", *GEOMETRY),
              "2e-08")


def test_import_assumes_nothing(scan, tmp_path):
    archive, out = tmp_path / "a.npz", tmp_path / "a.h5"
    unit = ("--positions-unit", "m")
    np.savez(archive, frames=scan.frames, positions=scan.positions)
    not_taken(take_in(archive, out, *unit), "--energy-kev", "--distance-m", "--pitch-m")
    not_taken(take_in(archive, out, *GEOMETRY), "--positions-unit", "between")
    not_taken(take_in(archive, out, *GEOMETRY, "--positions-unit", "parsec"), "not known")
    not_taken(take_in(archive, out, *GEOMETRY, *unit, "--key", "probe=nothing"), "nothing", "frames [36][32][32]")
    np.savez(archive, frames=scan.frames, data=scan.frames, positions=scan.positions)
    not_taken(take_in(archive, out, *GEOMETRY, *unit), "frames", "data", "--key")
    assert take_in(archive, out, *GEOMETRY, *unit, "--key", "frames=data").returncode == 0
    not_taken(take_in(archive, out, *GEOMETRY, *unit, "--key", "frames=data"), "exists")
    assert take_in(archive, out, *GEOMETRY, *unit, "--key", "frames=data", "--overwrite").returncode == 0
    np.savez(archive, a=scan.frames, b=scan.positions)
    not_taken(take_in(archive, out, *GEOMETRY, *unit), "--key frames=NAME", "a [36][32][32]")
    np.savez(archive, frames=np.ones((36, 32, 32)), positions=scan.positions)
    not_taken(take_in(archive, tmp_path / "c.h5", *GEOMETRY, *unit), "--shifted")
    not_taken(take_in(archive, tmp_path / "none" / "c.h5", *GEOMETRY, *unit, "--shifted", "no"), "No such file", code=4)


def test_archives_that_are_refused(scan, tmp_path):
    archive, out = tmp_path / "a.npz", tmp_path / "a.h5"
    options = ("--positions-unit", "m", *GEOMETRY)
    positions = scan.positions
    np.savez(archive, frames=scan.frames, positions=np.array([{"a": 1}] * 36, dtype=object))
    not_taken(take_in(archive, out, *options), "pickled")
    for frames, words in ((scan.frames[:-1], ("35 frames but 36 positions",)), (scan.frames[:, :31, :31], ("31 x 31",)),
                          (scan.frames[:, :, :30], ("32 x 30",)), (scan.frames.astype(complex), ("complex",)),
                          (scan.frames[0], ("[32][32]",)), (scan.frames[:0], ("empty",))):
        np.savez(archive, frames=frames, positions=positions)
        not_taken(take_in(archive, out, *options), *words)
    for bad in (np.full((36, 2), np.nan), np.zeros((36, 3)), positions.astype(complex)):
        np.savez(archive, frames=scan.frames, positions=bad)
        not_taken(take_in(archive, out, *options), "position")
    np.savez(archive, frames=scan.frames, positions=positions, probe=np.ones((16, 16), np.complex64))
    not_taken(take_in(archive, out, *options), "[16][16]")
    whole = archive.read_bytes()
    archive.write_bytes(whole[:len(whole) // 2])
    not_taken(take_in(archive, out, *options))
    archive.write_text("not an archive")
    not_taken(take_in(archive, out, *options), "not a NumPy archive")
    not_taken(take_in(tmp_path / "gone.npz", out, *options), "does not exist")
    assert not out.exists()


def test_headers_that_lie_about_their_size_are_refused(scan, tmp_path):
    import zipfile

    def entry(values, shape):
        buffer = io.BytesIO()
        np.save(buffer, values)
        return buffer.getvalue().replace(str(values.shape).encode(), shape.encode().ljust(len(str(values.shape))), 1)

    for shape, word in (("(99, 32, 32)", "ends early"), ("(35, 32, 32)", "more are there")):
        archive = tmp_path / "a.npz"
        with zipfile.ZipFile(archive, "w") as z:
            z.writestr("frames.npy", entry(scan.frames, shape))
            z.writestr("positions.npy", entry(scan.positions, "(36, 2)"))
        not_taken(take_in(archive, tmp_path / "a.h5", "--positions-unit", "m", *GEOMETRY), word)


def test_measured_star_is_imported_with_two_flags(tmp_path):
    archive = measured.find("aps-velociprobe-siemens/siemens-star-small.npz.bz2")
    out = tmp_path / "siemens.h5"
    assert take_in(archive, out, "--positions-unit", "pixel", "--object-pixel-m", "1e-8").returncode == 0
    answer = read({"scan": {"path": str(out)}, "init_probe": {"path": str(out)}})
    with np.load(io.BytesIO(bz2.open(archive).read()), allow_pickle=False) as z:
        np.testing.assert_array_equal(answer.arrays["frames"], np.fft.fftshift(z["data"][0], axes=(1, 2)))
        np.testing.assert_allclose(answer.arrays["positions"], z["scan"][0] * 1e-8, rtol=1e-6)
        np.testing.assert_array_equal(answer.arrays["init_probe"][0], z["probe"].squeeze())


# ---------------------------------------------------------------------------------------- the sandbox


def test_no_file_is_opened_where_landlock_does_not_hold(scan_file):
    """A root that is no folder is a rule that the kernel refuses; its absence is another matter."""
    if ctypes.CDLL(None).syscall(444, None, 0, 1) < 1:
        pytest.skip("this kernel has no Landlock, or a filter hides it")
    wanted = {"arrays_only": [{"path": scan_file, "dataset": None, "use": "object"}], "roots": [scan_file]}
    with pytest.raises(AssertionError, match=r"said nothing \(exit status 1\)"):
        reader.exchange("read", wanted)


def test_reader_ends_with_its_parent(tmp_path):
    """A parent that is killed takes the reader along, also one that waits for its request."""
    script = ("import socket, subprocess, sys, time\n"
              "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
              "p = subprocess.Popen([sys.argv[1], '--socket', str(b.fileno())], pass_fds=[b.fileno()])\n"
              "print(p.pid, flush=True)\n"
              "time.sleep(60)\n")
    parent = subprocess.Popen([sys.executable, "-c", script, xptychod.program("xptycho-reader")], stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())
    assert pathlib.Path(f"/proc/{pid}").exists()
    parent.kill()
    parent.wait()
    parent.stdout.close()

    def gone():
        try:
            return "State:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text()
        except FileNotFoundError:
            return True

    xptychod.wait_until(gone, "the reader to end with its parent", 20)
