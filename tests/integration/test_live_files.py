"""Test 22, short: scans that are being written, that change while they are read, and file systems that hang."""

import pytest

import hostile_run
import live_files


@pytest.mark.parametrize("way", ["plain", "swmr"])
def test_a_job_waits_for_a_scan_that_is_being_written(shared_daemon, tmp_path, way):
    live_files.waits_for_a_writer(shared_daemon.api, tmp_path / "live.h5", way, 1.5)


def test_a_writer_that_died_is_told_with_what_helps(shared_daemon, tmp_path):
    live_files.tells_a_writer_that_died(shared_daemon.api, tmp_path / "dead.h5")


def test_the_wait_for_a_writer_ends(make_daemon, tmp_path):
    daemon = make_daemon("--reader-wait-s", "1")
    writer = live_files.Writer(tmp_path / "live.h5", "plain", 60)
    try:
        end = daemon.api.finish(daemon.api.submit(live_files.job_of(tmp_path / "live.h5"))["id"])
    finally:
        writer.kill()
    assert end["state"] == "failed" and end["reason"] == "dataset-busy" and "open for writing" in end["detail"], end


def test_a_job_that_waits_for_its_file_can_be_cancelled(shared_daemon, tmp_path):
    api = shared_daemon.api
    writer = live_files.Writer(tmp_path / "live.h5", "plain", 60)
    try:
        job = api.submit(live_files.job_of(tmp_path / "live.h5"))
        api.post(f"/v1/jobs/{job['id']}/cancel")
        assert api.finish(job["id"])["state"] == "cancelled"
    finally:
        writer.kill()


def test_a_scan_that_changes_while_it_is_read_is_refused(make_daemon, scan, tmp_path):
    if not hostile_run.can_trace(tmp_path):
        pytest.skip("processes cannot be traced here, so no reader can be slowed")
    daemon = make_daemon("--reader-program", live_files.slow_reader(tmp_path, 1))
    for way in ("replaced", "appended", "overwritten"):
        live_files.refuses_what_changes(daemon, scan, tmp_path / f"{way}.h5", way)


def test_a_file_system_that_hangs_costs_its_own_jobs_only(make_daemon, scan_file, tmp_path):
    folder, why = live_files.blocked_folder(tmp_path / "away", scan_file)
    if not folder:
        pytest.skip(why)
    try:
        daemon = make_daemon("--reader-probe-s", "1", "--reader-read-s", "1")
        live_files.lives_with_a_file_system_that_hangs(daemon, folder, 1)
        live_files.fails_a_job_whose_file_system_goes_away(daemon, folder)
        assert live_files.stops_while_a_file_system_hangs(daemon, folder) < 20
    finally:
        folder.close()
