"""Test 21, short: hostile files are refused with a reason, in time, and nothing outside the roots is opened."""

import pathlib

import pytest

import hostile_files
import hostile_run


@pytest.fixture(scope="module")
def files(scan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    return folder, hostile_files.build(scan, folder / "in", folder / "out", slow=False)


def test_hostile_files_are_refused_and_nothing_outside_is_opened(files, tmp_path):
    folder, made = files
    if not hostile_run.can_trace(tmp_path):
        assert hostile_run.check_set(made, [folder / "in"]) < hostile_run.LIMIT_S
        pytest.skip("processes cannot be traced here; refusals were checked, what was opened was not")
    program = hostile_run.tracer(tmp_path / "traces")
    hostile_run.check_set(made, [folder / "in"], program)
    traces = list((tmp_path / "traces").glob("trace.*"))
    assert len(traces) >= len(made)
    text = "".join(t.read_text(errors="replace") for t in traces)
    assert str(folder / "in") in text, "the traces see what is opened"
    if not hostile_run.landlock():
        pytest.skip("this kernel has no Landlock: files outside are opened, then refused unread")
    assert hostile_run.opened_outside(tmp_path / "traces", [folder / "in"]) == set()


def test_the_trace_would_show_a_file_outside(files, scan_file, tmp_path):
    """The judge of the test above finds what is outside when the roots allow it to be opened."""
    folder, _ = files
    if not hostile_run.can_trace(tmp_path):
        pytest.skip("processes cannot be traced here")
    program = hostile_run.tracer(tmp_path / "traces")
    hostile_run.look("probe", folder / "in" / "elink-out.h5", [folder], program)
    assert hostile_run.opened_outside(tmp_path / "traces", [folder / "in"]) == {str(folder / "out" / "secret.h5"), str(folder)}


def test_damaged_structure_never_hangs_or_harms(scan, tmp_path):
    seeds = hostile_files.seeds(scan, tmp_path / "seeds")
    (tmp_path / "mutants").mkdir()
    counts, _ = hostile_run.check_mutants(seeds, 80, tmp_path / "mutants")
    assert counts["refused"] > 15 and counts["accepted"] > 5, counts


def test_the_service_goes_on_beside_hostile_files(files, make_daemon, slow_scan_file, scan_file):
    folder, made = files
    daemon = make_daemon("--data-root", str(folder / "in"), "--data-root", str(pathlib.Path(slow_scan_file).parent),
                         "--data-root", str(pathlib.Path(scan_file).parent))
    background = {"scan": {"path": slow_scan_file}, "recon": {"iterations": 100000}, "devices": {"cpu_threads": 1}}
    wanted = ("fifo", "folder", "link-out", "storage-passwd", "elink-out", "virtual-missing", "huge", "unknown-filter", "cut")
    reasons = hostile_run.through_the_service(daemon, [made[name][0] for name in wanted], background)
    assert reasons == {"dataset": len(wanted)}
    for name in ("gzip-short", "gzip-bomb", "lz4-size", "bits-cut"):  # found when their pixels are read
        job = daemon.api.submit({"scan": {"path": made[name][0]}, "recon": {"iterations": 2}})
        end = daemon.api.finish(job["id"])
        assert end["state"] == "failed" and end["reason"] == "dataset" and "damaged" in end["detail"], end
    assert daemon.api.finish(daemon.api.submit({"scan": {"path": scan_file}, "recon": {"iterations": 2}})["id"])["state"] == "succeeded"
