"""xptycho-reader: what it says about files that are no usable scan, and about output paths."""

import os
import pathlib

import h5py
import numpy as np
import pytest

import measured
import scans
from reader import probe, read, refused, rewrite


# ----------------------------------------------------------------------------------------------------------- bad files


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
    refused(cut, "truncated", len(whole), len(whole) // 2, "may still be writing", fault="dataset-busy")
    os.utime(cut, (1e9, 1e9))
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
        refused(path, "open for writing", fault="dataset-busy", kinds=("probe", "read"))
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


def test_measured_files_with_absent_filters(scan_file):
    path = measured.find("eiger4m-bitshuffle/blosc.h5")
    refused(path, 32001)
    refused({"scan": {"path": scan_file}, "init_probe": {"path": str(path), "dataset": "/dset"}}, 32001, "/dset",
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
    refused(path, "8.0 TiB", "2.0 MiB", kinds=("probe", "read"))


@pytest.mark.parametrize("dtype, value", [("f4", 1e36), ("f8", 1e300)])
def test_counts_beyond_single_precision_are_refused_with_the_number(scan, tmp_path, dtype, value):
    frames = scan.frames.astype(dtype)
    frames[3, 4, 5] = value
    path = scan.write(tmp_path / "a.h5", frames=frames)
    refused(path, "the largest count is 1e+", "1e+30", "scan.saturation", kinds=("read",))
    frames[3, 4, 5] = 9e29
    assert read(scan.write(tmp_path / "b.h5", frames=frames)).kind == "scan"
    assert read({"scan": {"path": path, "saturation": 1e6}}).kind == "scan"


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


# ---------------------------------------------------------------------------------------------------------- the output


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
