"""xptycho-reader: what it hands over of good files, to whom and how; each in a process of its own."""

import ctypes
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import h5py
import numpy as np
import pytest

import reader
import scans
import xptychod
from conftest import DATA
from reader import inspect, probe, read


# ------------------------------------------------------------------------------------------------ what good files give


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


# ------------------------------------------------------------------------------------------------------ the connection


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


# ------------------------------------------------------------------------------------------------------------- inspect


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


# --------------------------------------------------------------------------------------------------------- the sandbox


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
