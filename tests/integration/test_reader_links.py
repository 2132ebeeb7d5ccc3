"""xptycho-reader: external links, external storage and virtual datasets."""

import os

import h5py
import numpy as np

from reader import read, refused


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
