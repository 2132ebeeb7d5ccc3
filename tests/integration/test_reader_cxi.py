"""xptycho-reader: CXI files, made here and measured."""

import json

import h5py
import numpy as np
import pytest

import measured
import scans
from reader import inspect, probe, read, refused


# ----------------------------------------------------------------------------------------------------------------- CXI


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


# ------------------------------------------------------------------------------------------------------ measured files


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
