"""xptycho-reader import: NumPy archives become scans, and what is refused of them."""

import bz2
import io
import json

import numpy as np
import pytest

import measured
import xptychod
from reader import probe, read


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
    not_taken(take_in(archive, out, *unit), "--energy-kev", "--detector-distance-m", "--detector-pitch-m")
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
