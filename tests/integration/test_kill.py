"""kill -9 in mid-run: of the worker, of the broker, of the reader; nothing acknowledged is lost."""

import os
import signal
import sqlite3

import h5py
import pytest

import xptychod

ITERATIONS = 120


def job_of(path, **changes):
    return {"scan": {"path": path}, "recon": {"iterations": ITERATIONS}, "preview_every_s": 0.1, **changes}


def arrays(done):
    with h5py.File(done["result"]["path"]) as f:
        return tuple(f[name][...].tobytes() for name in ("sample/object", "sample/probe", "run/data_error"))


def check_log(events):
    """Numbered without holes, one end, and iterations that repeat have equal values."""
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert [e["type"] for e in events].count("end") == 1 and events[-1]["type"] == "end"
    values = {}
    for e in events:
        if e["type"] == "iter":
            assert values.setdefault(e["iter"], e["data_error"]) == e["data_error"], e
    assert sorted(values) == list(range(1, ITERATIONS + 1))


@pytest.fixture
def undisturbed(daemon, slow_scan_file):
    done = daemon.api.finish(daemon.api.submit(job_of(slow_scan_file))["id"])
    assert done["state"] == "succeeded", done
    return arrays(done)


def test_killed_worker_is_replaced_and_its_job_ends_with_the_same_bytes(daemon, slow_scan_file, undisturbed):
    job = daemon.api.submit(job_of(slow_scan_file))
    after = daemon.api.submit(job_of(slow_scan_file, recon={"iterations": 2}))
    daemon.api.wait_for_iteration(job["id"], 10)
    killed = daemon.kill_worker()
    events = daemon.api.events(job["id"])
    done = daemon.api.show(job["id"])
    assert done["state"] == "succeeded" and done["attempts"] == 1, done
    assert daemon.pid_of("xptycho-worker") not in (None, killed)
    assert arrays(done) == undisturbed
    check_log(events)
    kinds = [e["type"] for e in events]
    assert kinds.count("resumed") == 1
    states = [e["state"] for e in events if e["type"] == "state"]
    assert states[:6] == ["queued", "starting", "running", "queued", "starting", "running"], states
    assert daemon.api.finish(after["id"])["state"] == "succeeded"


def test_a_job_that_kills_two_workers_is_poison_and_the_next_runs(daemon, slow_scan_file, scan_file):
    job = daemon.api.submit(job_of(slow_scan_file, recon={"iterations": 100000}))
    other = daemon.api.submit(job_of(scan_file, recon={"iterations": 2}))
    daemon.api.wait_for_iteration(job["id"], 2)
    daemon.kill_worker()
    daemon.api.wait_for_event(job["id"], lambda e: e["type"] == "resumed")
    xptychod.wait_until(lambda: daemon.api.show(job["id"])["state"] == "running", "the job runs again")
    daemon.kill_worker()
    done = daemon.api.finish(job["id"])
    assert done["state"] == "failed" and done["reason"] == "poison" and done["attempts"] == 2, done
    assert daemon.api.finish(other["id"])["state"] == "succeeded"


def test_killed_broker_requeues_its_job_and_the_log_goes_on(daemon, slow_scan_file, scan_file, undisturbed):
    finished = daemon.api.submit(job_of(scan_file, recon={"iterations": 2}))
    finished = daemon.api.finish(finished["id"])
    job = daemon.api.submit(job_of(slow_scan_file))
    queued = daemon.api.submit(job_of(scan_file, recon={"iterations": 3}, labels={"a": "b"}))
    daemon.api.wait_for_iteration(job["id"], 10)
    before = daemon.api.events(job["id"], follow=0)
    daemon.kill()
    daemon.start()
    events = daemon.api.events(job["id"])
    assert events[:len(before)] == before, "what was seen stays"
    check_log(events)
    assert any(e["type"] == "resumed" for e in events)
    done = daemon.api.show(job["id"])
    assert done["state"] == "succeeded" and done["attempts"] == 0, "restarts of the service do not count"
    assert arrays(done) == undisturbed
    other = daemon.api.finish(queued["id"])
    assert other["state"] == "succeeded" and other["labels"] == {"a": "b"}
    assert daemon.api.show(finished["id"]) == finished


def test_broker_killed_at_once_after_201_has_the_job(daemon, scan_file):
    ids = []
    for _ in range(3):
        ids.append(daemon.api.submit(job_of(scan_file, recon={"iterations": 2}))["id"])
        daemon.kill()
        daemon.start()
    for job_id in ids:
        assert daemon.api.finish(job_id)["state"] == "succeeded"
    daemon.stop()
    connection = sqlite3.connect(daemon.state / "queue.db")
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()


def test_stopped_broker_requeues_its_job(daemon, slow_scan_file, undisturbed):
    job = daemon.api.submit(job_of(slow_scan_file))
    daemon.api.wait_for_iteration(job["id"], 5)
    daemon.stop()
    daemon.start()
    events = daemon.api.events(job["id"])
    check_log(events)
    assert arrays(daemon.api.show(job["id"])) == undisturbed


def test_torn_event_log_loses_only_its_last_line(daemon, slow_scan_file):
    job = daemon.api.submit(job_of(slow_scan_file))
    daemon.api.wait_for_iteration(job["id"], 5)
    daemon.kill()
    log = daemon.state / "jobs" / job["id"] / "events.ndjson"
    with open(log, "ab") as f:
        f.write(b'{"seq":99999,"t":"2026')
    daemon.start()
    check_log(daemon.api.events(job["id"]))


def test_a_worker_that_hangs_is_replaced_after_a_cancel(make_daemon, slow_scan_file, scan_file):
    daemon = make_daemon("--cancel-grace-s", "1")
    job = daemon.api.submit(job_of(slow_scan_file, recon={"iterations": 100000}))
    daemon.api.wait_for_iteration(job["id"], 2)
    stopped = daemon.pid_of("xptycho-worker")
    os.kill(stopped, signal.SIGSTOP)
    assert daemon.api.post(f"/v1/jobs/{job['id']}/cancel").status == 202
    done = daemon.api.finish(job["id"])
    assert done["state"] == "cancelled", done
    assert not xptychod.alive(stopped)
    assert daemon.api.finish(daemon.api.submit(job_of(scan_file, recon={"iterations": 2}))["id"])["state"] == "succeeded"


def test_a_cancel_that_was_answered_outlives_the_broker(daemon, slow_scan_file):
    """Of a job that waits and of one whose worker does not obey: both are cancelled after the restart, not run again."""
    running = daemon.api.submit({"scan": {"path": slow_scan_file}, "recon": {"iterations": 100000}})["id"]
    daemon.api.wait_for_iteration(running, 2)
    waiting = daemon.api.submit(job_of(slow_scan_file))["id"]
    os.kill(daemon.pid_of("xptycho-worker"), signal.SIGSTOP)
    for job in (waiting, running):
        assert daemon.api.post(f"/v1/jobs/{job}/cancel").status == 202
    shown = daemon.api.show(running)
    assert (shown["state"], shown["reason"]) == ("running", "cancelling") and shown["detail"].startswith("cancelled by "), shown
    daemon.kill()
    daemon.start()
    for job in (waiting, running):
        last = daemon.api.events(job)[-1]
        assert (last["type"], last["state"], last["reason"]) == ("end", "cancelled", "cancelled"), last
        assert daemon.api.show(job)["detail"].startswith("cancelled by ")
        assert daemon.api.post(f"/v1/jobs/{job}/cancel").status == 200
