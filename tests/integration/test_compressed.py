"""Frames compressed with LZ4 and bitshuffle, as pixel detectors write them: read bit for bit, refused where damaged."""

import os
import subprocess

import h5py
import numpy as np
import pytest

import compressed
import measured
from reader import probe, read, refused


def packed_scan(scan, path, frames=None, chunk=(1, 32, 32), **options):
    scan.write(path, frames=None)
    with h5py.File(path, "r+") as f:
        compressed.write(f["scan"], "frames", scan.frames if frames is None else frames, chunk, **options)
    return path


@pytest.mark.parametrize("filter_id", [compressed.LZ4, compressed.BITSHUFFLE])
@pytest.mark.parametrize("chunk", [(1, 32, 32), (5, 32, 32), (36, 32, 32), (7, 20, 9)])
@pytest.mark.parametrize("dtype", ["u1", "u2", "i4", "f4", "f8", ">u2"])
def test_frames_come_back_bit_for_bit(scan, tmp_path, filter_id, chunk, dtype):
    frames = (scan.frames % 100).astype(dtype)
    answer = read(packed_scan(scan, tmp_path / "a.h5", frames, chunk, filter_id=filter_id))
    np.testing.assert_array_equal(answer.arrays["frames"], frames.astype(np.dtype(dtype).newbyteorder("=")))


def test_small_blocks_and_shuffle_alone(scan, tmp_path):
    frames = scan.frames.astype(np.uint16)
    path = packed_scan(scan, tmp_path / "a.h5", frames, encode=lambda a: compressed.bitshuffle(a, 72))
    np.testing.assert_array_equal(read(path).arrays["frames"], frames)

    def shuffled(values):
        flat, block = values.ravel(), 8192 // 2
        return b"".join(compressed._bits(flat[i:i + block]) for i in range(0, len(flat), block))

    path = packed_scan(scan, tmp_path / "b.h5", frames, encode=shuffled, parameters=(0, 3, 2, 0, 0))
    np.testing.assert_array_equal(read(path).arrays["frames"], frames)


def test_a_detector_s_master_file(scan, tmp_path):
    """Links to data files of some frames each, put together by a virtual dataset."""
    path = scan.write(tmp_path / "scan_master.h5", frames=None)
    frames = scan.frames.astype(np.uint32)
    layout = h5py.VirtualLayout(shape=frames.shape, dtype="u4")
    for i, first in enumerate((0, 20)):
        part = frames[first:first + 20]
        with h5py.File(tmp_path / f"scan_data_{i + 1:06}.h5", "w") as f:
            compressed.write(f.create_group("entry/data"), "data", part, (1 + i, 32, 32))
        layout[first:first + len(part)] = h5py.VirtualSource(f"scan_data_{i + 1:06}.h5", "entry/data/data", shape=part.shape)
    with h5py.File(path, "r+") as f:
        f.create_virtual_dataset("scan/frames", layout)
    np.testing.assert_array_equal(read(path, roots=[tmp_path]).arrays["frames"], frames)
    with h5py.File(path, "r+") as f:
        del f["scan/frames"]
        f["scan/frames"] = h5py.ExternalLink("scan_data_000001.h5", "entry/data/data")
        del f["scan/positions"]
        f["scan/positions"] = scan.positions[:20]
    np.testing.assert_array_equal(read(path, roots=[tmp_path]).arrays["frames"], frames[:20])


def test_probes_are_read_too(scan_file, scan, tmp_path):
    with h5py.File(tmp_path / "p.h5", "w") as f:
        compressed.write(f, "probe", scan.probe.astype(np.complex64), (1, 32, 32))
    answer = read({"scan": {"path": scan_file}, "init_probe": {"path": str(tmp_path / "p.h5")}})
    np.testing.assert_array_equal(answer.arrays["init_probe"], scan.probe.astype(np.complex64))


@pytest.mark.parametrize("filter_id", [compressed.LZ4, compressed.BITSHUFFLE])
@pytest.mark.parametrize("spoil, word", [
    (lambda c: b"\x7f" + c[1:], "not the size of its chunk"),  # 2^63 bytes
    (lambda c: c[:7] + b"\xff" + c[8:], "not the size of its chunk"),
    (lambda c: c[:6] + b"\x08" + c[7:], "not the size of its chunk"),
    (lambda c: c[:12] + b"\xff\xff\xff\xff" + c[16:], "damaged"),
    (lambda c: c[:12] + b"\x00\x00\x00\x01" + c[16:], "damaged"),
    (lambda c: c[:len(c) // 2], "damaged"),
    (lambda c: c[:7], "no header"),
])
def test_chunks_that_lie_or_are_cut_are_refused_with_the_reason(scan, tmp_path, filter_id, spoil, word):
    frames = scan.frames.astype(np.uint32)
    encode = compressed.bitshuffle if filter_id == compressed.BITSHUFFLE else compressed.lz4
    path = packed_scan(scan, tmp_path / "a.h5", frames, filter_id=filter_id, encode=lambda a: spoil(encode(a)))
    assert probe(path).kind == "scan"
    refused(path, word, "/scan/frames", kinds=("read",))


@pytest.mark.parametrize("parameters", [(0, 3, 4, 0, 3), (0, 3, 0, 0, 2), (0, 3, 100000, 0, 2), (0,)])
def test_forms_that_cannot_be_decoded_are_named_at_once(scan, tmp_path, parameters):
    path = packed_scan(scan, tmp_path / "a.h5", scan.frames, parameters=parameters)
    refused(path, "32008", "bitshuffle", "h5repack", kinds=("probe", "read"))


WRITE = """
import sys, h5py, hdf5plugin, numpy
frames = numpy.load(sys.argv[1])
for name, filters in (("bits", hdf5plugin.Bitshuffle()), ("bits_old", hdf5plugin.Bitshuffle(nelems=96)), ("lz4", hdf5plugin.LZ4()),
                      ("lz4_small", hdf5plugin.LZ4(nbytes=1024))):
    with h5py.File(sys.argv[2] + "/" + name + ".h5", "r+") as f:
        f["scan"].create_dataset("frames", data=frames, chunks=(3, 32, 32), **filters)
"""


def test_what_the_usual_plugins_write_is_read(scan, tmp_path):
    python = os.environ.get("XPTYCHOD_REFERENCE_PYTHON")
    if not python or subprocess.run([python, "-c", "import h5py, hdf5plugin"], capture_output=True, check=False).returncode:
        pytest.skip("no interpreter with PyPI's hdf5plugin; tests/run.sh makes one, or set XPTYCHOD_REFERENCE_PYTHON")
    names = ("bits", "bits_old", "lz4", "lz4_small")
    for dtype in ("u1", "u2", "u4", "f4"):
        frames = (scan.frames % 200).astype(dtype)
        np.save(tmp_path / "frames.npy", frames)
        for name in names:
            scan.write(tmp_path / f"{name}.h5", frames=None)
        subprocess.run([python, "-c", WRITE, tmp_path / "frames.npy", tmp_path], check=True)
        for name in names:
            np.testing.assert_array_equal(read(tmp_path / f"{name}.h5").arrays["frames"], frames, err_msg=f"{name} {dtype}")


def test_a_measured_frame_of_an_eiger(tmp_path):
    """It is no scan and not square; the unit test of the filters compares its pixels."""
    path = measured.find("eiger4m-bitshuffle/eiger4m_bitshuffle_lz4.h5")
    refused(path, "no scan was recognised")
