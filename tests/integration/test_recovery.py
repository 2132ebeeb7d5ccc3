"""A job that had finished when its end was lost: killed between the name of the result and the commit."""

import json
import sqlite3

import pytest

import faults


def lose_the_end(daemon, job_id):
    """The state as it is when the broker dies after the rename and before the commit."""
    with sqlite3.connect(daemon.state / "queue.db") as db:
        db.execute("UPDATE jobs SET state = 'running', result = NULL, finished_ms = 0 WHERE id = ?", (job_id,))
    db.close()
    log = daemon.state / "jobs" / job_id / "events.ndjson"
    lines = log.read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["type"] == "end"
    log.write_text("".join(lines[:-1]))


def finished(daemon, scan_file, path):
    job = daemon.api.submit({"scan": {"path": scan_file}, "recon": {"iterations": 3}, "output": {"path": str(path)}})
    document = daemon.api.finish(job["id"])
    assert document["state"] == "succeeded", document
    daemon.stop()
    lose_the_end(daemon, job["id"])
    return document


def test_a_finished_job_is_not_run_again(make_daemon, scan_file, tmp_path):
    daemon = make_daemon()
    before = finished(daemon, scan_file, tmp_path / "out.h5")
    whole = (tmp_path / "out.h5").read_bytes()
    daemon.start()
    after = daemon.api.finish(before["id"])
    assert after["state"] == "succeeded" and after["result"]["sha256"] == before["result"]["sha256"]
    assert (tmp_path / "out.h5").read_bytes() == whole
    events = daemon.api.events(before["id"])
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert [e["type"] for e in events].count("end") == 1 and "resumed" not in [e["type"] for e in events]
    assert daemon.api.get(f"/v1/jobs/{before['id']}/result/data").body == whole


def test_a_file_of_somebody_else_is_not_taken_for_the_result(make_daemon, scan_file, tmp_path):
    daemon = make_daemon()
    before = finished(daemon, scan_file, tmp_path / "out.h5")
    with open(tmp_path / "out.h5", "ab") as f:
        f.write(b"more")
    changed = (tmp_path / "out.h5").read_bytes()
    daemon.start()
    after = daemon.api.finish(before["id"])
    assert (after["state"], after["reason"]) == ("failed", "output"), after
    assert (tmp_path / "out.h5").read_bytes() == changed


@pytest.mark.skipif(faults.available() is not None, reason=str(faults.available()))
def test_the_end_of_a_job_waits_for_its_own_commit(request, tmp_path, scan_file):
    """A short job ends while the commits of its start are on their way still: theirs do not count."""
    daemon = faults.FaultyDaemon(tmp_path / "daemon")
    request.node.daemons = [daemon]
    daemon.fault = f"pwrite:1+:delay100:path=queue.db-wal:when={daemon.armed}:in=xptychod"  # a commit is several
    try:
        daemon.start()
        daemon.arm()
        for _ in range(2):
            job = daemon.api.submit({"scan": {"path": scan_file}, "recon": {"iterations": 2}})["id"]
            assert daemon.api.events(job)[-1]["type"] == "end"
            daemon.kill()
            daemon.start()
            after = daemon.api.events(job)
            assert [e["type"] for e in after].count("end") == 1 and daemon.api.show(job)["state"] == "succeeded", after
        assert daemon.faults(), "the commits were slow"
        daemon.arm(False)
        daemon.stop()
    finally:
        daemon.clean_up()
