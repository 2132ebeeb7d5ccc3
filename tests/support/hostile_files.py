"""Files made to harm whoever opens them: by what they are, by where their links lead, by what their headers say."""

import os
import pathlib
import random
import struct
import zlib

import h5py
import numpy as np

import compressed


def _without_frames(scan, path):
    scan.write(path, frames=None)
    return h5py.File(path, "r+")


def _direct(f, chunk_bytes, count=36, filters=((1, (4,)),), dtype="u4", first=0):
    """/scan/frames of `count` frames, one a chunk, each chunk stored as these bytes."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((1, 32, 32))
    for number, values in filters:
        plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, values)
    space = h5py.h5s.create_simple((36, 32, 32))
    d = h5py.h5d.create(f["scan"].id, b"frames", h5py.h5t.py_create(np.dtype(dtype)), space, plist)
    for i in range(first, count):
        d.write_direct_chunk((i, 0, 0), chunk_bytes)


def build(scan, inside, outside, slow=True):
    """name -> (path, words that the refusal must have); roots are [inside], `outside` must stay closed.

    slow: also those that take seconds to make."""
    inside, outside = pathlib.Path(inside), pathlib.Path(outside)
    for folder in (inside, outside):
        folder.mkdir(parents=True, exist_ok=True)
    made = {}

    def add(name, words, path=None):
        made[name] = (str(path or inside / f"{name}.h5"), words)
        return inside / f"{name}.h5"

    secret = outside / "secret.h5"
    scan.write(secret)
    (outside / "raw").write_bytes(scan.frames.tobytes())

    os.mkfifo(add("fifo", ("FIFO",)))
    add("zero", ("outside",), "/dev/zero")
    add("folder", ("folder",)).mkdir()
    add("link-out", ("outside",)).symlink_to(secret)
    add("link-to-device", ("outside",)).symlink_to("/dev/zero")
    add("dots", ("outside",), f"{inside}/../{outside.name}/secret.h5")
    add("proc", ("outside",), "/proc/self/mem")
    for name, target in (("storage", outside / "raw"), ("storage-passwd", "/etc/passwd")):
        with _without_frames(scan, add(name, ("external storage",))) as f:
            f.create_dataset("scan/frames", shape=scan.frames.shape, dtype="f4", external=[(str(target), 0, h5py.h5f.UNLIMITED)])
    with _without_frames(scan, add("elink-out", ("outside",))) as f:
        f["scan/frames"] = h5py.ExternalLink(str(secret), "/scan/frames")
    with _without_frames(scan, add("elink-passwd", ("outside",))) as f:
        f["scan/frames"] = h5py.ExternalLink("/etc/passwd", "/x")
    with _without_frames(scan, add("elink-chain", ("leads nowhere",))) as f:
        f["scan/frames"] = h5py.ExternalLink("chain-0.h5", "/next")
    for i in range(40):  # the last one leads out
        with h5py.File(inside / f"chain-{i}.h5", "w") as f:
            f["next"] = h5py.ExternalLink(f"chain-{i + 1}.h5" if i < 39 else str(secret), "/next" if i < 39 else "/scan/frames")
    with _without_frames(scan, add("elink-short-chain-out", ("outside",))) as f:
        f["scan/frames"] = h5py.ExternalLink("short-0.h5", "/next")
    with h5py.File(inside / "short-0.h5", "w") as f:
        f["next"] = h5py.ExternalLink(str(secret), "/scan/frames")
    with _without_frames(scan, add("elink-circle", ("leads nowhere",))) as f:
        f["scan/frames"] = h5py.ExternalLink("elink-circle.h5", "/scan/frames")
    with _without_frames(scan, add("soft-circle", ("leads nowhere",))) as f:
        f["scan/frames"] = h5py.SoftLink("/scan/frames")
    with _without_frames(scan, add("hard-circle", ("not a dataset",))) as f:
        f["scan/frames"] = f["scan"]
    for name, source, dataset, words in (("virtual-missing", "gone.h5", "a", ("virtual", "does not exist")),
                                         ("virtual-out", str(secret), "scan/frames", ("virtual", "outside")),
                                         ("virtual-self", ".", "scan/frames", ("virtual",)),
                                         ("virtual-own-file", "virtual-own-file.h5", "scan/frames", ("virtual",)),
                                         ("virtual-fifo", "fifo.h5", "a", ("virtual", "not a regular file"))):
        with _without_frames(scan, add(name, words)) as f:
            layout = h5py.VirtualLayout(shape=scan.frames.shape, dtype="f4")
            layout[:] = h5py.VirtualSource(source, dataset, shape=scan.frames.shape)
            f.create_virtual_dataset("scan/frames", layout)
    with _without_frames(scan, add("huge", ("beyond what fits any memory",))) as f:
        f.create_dataset("scan/frames", shape=(1 << 50, 32, 32), chunks=(1, 32, 32), dtype="f4")
    with _without_frames(scan, add("huge-written", ("beyond what fits any memory",))) as f:
        f.create_dataset("scan/frames", shape=(1 << 50, 32, 32), chunks=(1, 32, 32), dtype="f4")[5] = 1
    with _without_frames(scan, add("huge-side", ("beyond what fits any memory",))) as f:
        f.create_dataset("scan/frames", shape=(1, 1 << 30, 1 << 30), chunks=(1, 32, 32), dtype="f4")[0, :32, :32] = 1
    with _without_frames(scan, add("huge-chunk", ())) as f:
        f.create_dataset("scan/frames", shape=(36, 1 << 14, 1 << 14), chunks=(1, 1 << 14, 1 << 14), dtype="f8", compression="gzip",
                         fillvalue=0)
    with _without_frames(scan, add("unknown-filter", ("31999", "h5repack"))) as f:
        _direct(f, b"x" * 100, filters=((31999, (1, 2, 3)),))
    packed = zlib.compress(np.zeros((32, 32), "u4").tobytes())
    for name, chunk in (("gzip-cut", packed[:len(packed) // 2]), ("gzip-noise", os.urandom(900)), ("gzip-short", zlib.compress(b"\1" * 64)),
                        ("gzip-bomb", zlib.compress(bytes(1 << 28), 9)), ("gzip-empty", zlib.compress(b""))):
        with _without_frames(scan, add(name, ("damaged",))) as f:
            _direct(f, chunk)
    frame = scan.frames[0].astype("u4")
    good = compressed.lz4(frame)
    for name, chunk in (("lz4-cut", good[:len(good) // 2]), ("lz4-size", struct.pack(">Q", 1 << 62) + good[8:]),
                        ("lz4-small", struct.pack(">Q", 64) + good[8:]), ("lz4-block", good[:8] + struct.pack(">I", 0) + good[12:])):
        with _without_frames(scan, add(name, ("LZ4",))) as f:
            _direct(f, chunk, filters=((compressed.LZ4, (0,)),))
    good = compressed.bitshuffle(frame)
    for name, chunk in (("bits-cut", good[:len(good) // 2]), ("bits-size", struct.pack(">Q", 1 << 62) + good[8:])):
        with _without_frames(scan, add(name, ("bitshuffle",))) as f:
            _direct(f, chunk, filters=((compressed.BITSHUFFLE, (0, 3, 4, 0, 2)),))
    whole = secret.read_bytes()
    path = add("cut", ("truncated",))
    path.write_bytes(whole[:len(whole) // 2])
    os.utime(path, (1e9, 1e9))  # else it could be on its way still
    add("signature-only", ()).write_bytes(whole[:8])
    add("noise-behind-signature", ()).write_bytes(whole[:8] + os.urandom(4096))
    add("zeros-behind-signature", ()).write_bytes(whole[:8] + bytes(4096))
    if not slow:
        return made
    with h5py.File(add("huge-attribute", ("wavelength",)), "w", libver="latest") as f:
        g = f.create_group("scan")
        g["frames"], g["positions"] = scan.frames, scan.positions
        g.attrs.update(detector_distance=1.0, detector_pitch=5e-5)
        h5py.h5a.create(g.id, b"wavelength", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((1 << 27,)))  # 1 GiB, in a sparse file
    with h5py.File(add("many-objects", ("no scan was recognised",)), "w", libver="latest") as f:
        for i in range(20000):
            f.create_group(f"g{i}")
    with h5py.File(add("deep", ("no scan was recognised",)), "w") as f:
        f.create_group("/".join(["a"] * 2000))
    return made


# ----------------------------------------------------------------------------------------- mutants


MARKS = (b"TREE", b"SNOD", b"HEAP", b"OHDR", b"OCHK", b"FRHP", b"FHDB", b"FHIB", b"BTHD", b"BTLF", b"BTIN", b"FSHD", b"FSSE", b"EAHD", b"EAIB",
         b"FAHD", b"FADB", b"GCOL")
EXTREMES = (b"\0", b"\xff", b"\x7f", b"\x80", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0" * 8, b"\xff" * 8, b"\xff" * 7 + b"\x7f",
            struct.pack("<Q", 1 << 60), struct.pack("<I", 1 << 30))


def seeds(scan, folder):
    """Small scans whose structure differs: old and new object headers, chunk indices, links, attributes."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for libver in ("earliest", "latest"):
        for kind in ("plain", "gzip", "fixed", "virtual"):
            path = folder / f"seed-{libver}-{kind}.h5"
            with h5py.File(path, "w", libver=libver) as f:
                g = f.create_group("scan")
                if kind == "virtual":
                    f["part"] = scan.frames
                    layout = h5py.VirtualLayout(shape=scan.frames.shape, dtype="f4")
                    layout[:] = h5py.VirtualSource(".", "part", shape=scan.frames.shape)
                    f.create_virtual_dataset("scan/frames", layout)
                else:
                    options = {"plain": {}, "gzip": dict(chunks=(1, 32, 32), compression="gzip", shuffle=True, maxshape=(None, 32, 32)),
                               "fixed": dict(chunks=(1, 16, 32), fletcher32=True)}[kind]
                    g.create_dataset("frames", data=scan.frames, **options)
                g["mask"] = np.zeros((32, 32), np.uint8)
                g["positions"] = scan.positions
                g["positions"].attrs["units"] = "m"
                g.attrs.update(wavelength=1e-10, detector_distance=1.0, detector_pitch=5e-5, name="seed")
            made.append(path)
    return made


def targets(data):
    """Offsets of structure: the first 2 KiB, and what follows each mark."""
    found = list(range(8, min(2048, len(data))))
    for mark in MARKS:
        at = data.find(mark)
        while at >= 0:
            found.extend(range(at, min(at + 300, len(data))))
            at = data.find(mark, at + 1)
    return found


def mutants(paths, count, seed=1):
    """(name, bytes): structure of the seed files damaged in one to four places; the same for the same seed."""
    rng = random.Random(seed)
    originals = [(p.stem, p.read_bytes()) for p in paths]
    places = [targets(data) for _, data in originals]
    for i in range(count):
        which = i % len(originals)
        name, data = originals[which]
        data = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at = rng.choice(places[which])
            if rng.random() < 0.4:
                data[at] ^= 1 << rng.randrange(8)
            else:
                value = rng.choice(EXTREMES)
                data[at:at + len(value)] = value[:len(data) - at]
        if rng.random() < 0.05:
            data = data[:rng.randrange(len(data))]
        yield f"{name}-{i}", bytes(data)
