"""The queue: order, reasons, two jobs side by side, hold and release, changes, limits, fair turns, upgrades."""

import contextlib
import os
import pathlib
import sqlite3
import subprocess
import time

import pytest

import xptychod


def job_of(path, iterations=8, **changes):
    return {"name": "test", "scan": {"path": path}, "recon": {"iterations": iterations}, **changes}


def endless(path, **changes):
    return job_of(path, 100000, preview_every_s=60, **changes)


def patch(api, job_id, change, tag=None):
    return api.call("PATCH", f"/v1/jobs/{job_id}", change, {"If-Match": tag} if tag else None)


@contextlib.contextmanager
def opened(path):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        yield db


def cancel(api, *jobs):
    for job in jobs:
        api.post(f"/v1/jobs/{job['id']}/cancel")
    return [api.finish(job["id"]) for job in jobs]


@pytest.fixture
def held_up(shared_daemon, slow_scan_file):
    """(api, job): the only device set runs a job that ends with the test."""
    api = shared_daemon.api
    holder = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(holder["id"], 1)
    yield api, holder
    cancel(api, holder)


# -------------------------------------------------------------------------------------- order


def test_classes_run_in_their_order_and_priority_within(held_up, scan_file):
    api, _ = held_up
    wishes = [("scavenger", 100), ("normal", 0), ("live", -100), ("batch", 0), ("normal", 7)]
    jobs = [api.submit(job_of(scan_file, **{"class": c, "priority": p})) for c, p in wishes]
    queue = api.get("/v1/queue").json()["queued"]
    assert [j["id"] for j in queue] == [jobs[i]["id"] for i in (2, 4, 1, 3, 0)]
    assert [j["class"] for j in queue] == ["live", "normal", "normal", "batch", "scavenger"]
    assert [j["position"] for j in queue] == [1, 2, 3, 4, 5]
    cancel(api, *jobs)


def test_every_waiting_job_says_why_and_what_blocks_it(held_up, scan_file):
    api, holder = held_up
    first, second = api.submit(job_of(scan_file)), api.submit(job_of(scan_file))
    pending = api.show(first["id"])["pending"]
    assert pending["position"] == 1 and pending["reason"] == "devices-busy", pending
    assert pending["blocked_by"] == [holder["id"]] and pending["blocked_by_hidden"] == 0
    pending = api.show(second["id"])["pending"]
    assert pending["position"] == 2 and pending["reason"] == "order" and pending["detail"] == "1 job before it"
    assert api.show(holder["id"])["pending"] is None and api.show(holder["id"])["queue_position"] is None
    assert all(j["pending"]["reason"] for j in api.get("/v1/jobs?state=queued").json()["jobs"])
    cancel(api, first, second)


def test_a_start_is_estimated_from_jobs_of_the_past(make_daemon, slow_scan_file):
    daemon = make_daemon()
    api = daemon.api
    holder = api.submit(job_of(slow_scan_file, 10))
    assert api.show(holder["id"])["pending"] is None or api.show(holder["id"])["pending"]["estimated_start"] is None
    assert api.finish(holder["id"])["state"] == "succeeded"
    daemon.stop()
    daemon.start()  # what was learnt outlives the service
    api = daemon.api
    holder = api.submit(job_of(slow_scan_file, 3000))
    api.wait_for_iteration(holder["id"], 1)
    later = [api.submit(job_of(slow_scan_file, 100))["id"] for _ in range(3)]
    starts = [api.show(job_id)["pending"]["estimated_start"] for job_id in later]
    assert all(starts) and starts == sorted(set(starts)), starts
    assert starts[0] > api.show(holder["id"])["started"]


def test_a_start_is_estimated_from_the_job_that_runs_where_nothing_else_is_known(make_daemon, slow_scan_file):
    api = make_daemon().api
    holder = api.submit(job_of(slow_scan_file, 3000))
    later = api.submit(job_of(slow_scan_file, 3000))
    start = xptychod.wait_until(lambda: api.show(later["id"])["pending"]["estimated_start"], "the first job on this machine ever has an end")
    assert start > api.show(holder["id"])["started"]
    cancel(api, later, holder)


def test_an_unknown_class_is_refused_with_the_names(shared_daemon, scan_file):
    answer = shared_daemon.api.post("/v1/jobs", job_of(scan_file, **{"class": "urgent"}))
    assert answer.status == 422 and "scavenger" in answer.json()["errors"][0]["detail"], answer


# ------------------------------------------------------------------------------------- two sets


def test_two_jobs_run_side_by_side_on_two_sets(make_daemon, slow_scan_file, scan_file):
    daemon = make_daemon("--cpu-workers", "2")
    api = daemon.api
    xptychod.wait_until(lambda: len({d["set"] for d in api.get("/v1/devices").json()["devices"] if not d["absent"]}) == 2, "both sets")
    one, two = api.submit(endless(slow_scan_file)), api.submit(endless(slow_scan_file))
    for job in (one, two):
        api.wait_for_iteration(job["id"], 2)
    third = api.submit(job_of(scan_file))
    queue = api.get("/v1/queue").json()
    assert {j["id"] for j in queue["running"]} == {one["id"], two["id"]}
    assert [j["id"] for j in queue["queued"]] == [third["id"]]
    holders = {d["job"] for d in api.get("/v1/devices").json()["devices"] if d["name"] == "cpu"}
    assert holders == {one["id"], two["id"]}
    cancel(api, one)
    assert api.finish(third["id"])["state"] == "succeeded"
    assert api.show(two["id"])["state"] == "running"
    cancel(api, two)


def test_a_dead_worker_takes_only_its_own_job(make_daemon, slow_scan_file):
    daemon = make_daemon("--cpu-workers", "2")
    api = daemon.api
    jobs = [api.submit(endless(slow_scan_file)) for _ in range(2)]
    for job in jobs:
        api.wait_for_iteration(job["id"], 2)
    daemon.kill_worker()
    xptychod.wait_until(lambda: sorted(api.show(j["id"])["attempts"] for j in jobs) == [0, 1], "one job lost its worker")
    xptychod.wait_until(lambda: all(api.show(j["id"])["state"] == "running" for j in jobs), "both run again")
    other = next(j for j in jobs if api.show(j["id"])["attempts"] == 0)
    assert not any(e["type"] == "state" and e["state"] == "queued" for e in api.events(other["id"], follow=0)[1:])
    cancel(api, *jobs)


def test_the_result_does_not_depend_on_the_number_of_sets(make_daemon, scan_file):
    errors = []
    for sets in ("1", "2"):
        api = make_daemon("--cpu-workers", sets).api
        errors.append(api.finish(api.submit(job_of(scan_file, 12))["id"])["result"]["data_error"])
    assert errors[0] == errors[1]


def test_a_limit_of_running_jobs_makes_the_others_wait(make_daemon, slow_scan_file):
    daemon = make_daemon("--cpu-workers", "2", "--running-user-max", "1")
    api = daemon.api
    one = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(one["id"], 1)
    two = api.submit(job_of(slow_scan_file, 2))
    pending = api.show(two["id"])["pending"]
    assert pending["reason"] == "user-limit" and "limit" in pending["detail"], pending
    assert api.get("/v1/limits").json()["running_user"] == {"limit": 1, "current": 1}
    cancel(api, one)
    assert api.finish(two["id"])["state"] == "succeeded"


def test_a_live_job_has_a_batch_job_make_room_which_goes_on_with_the_same_bits(make_daemon, slow_scan_file, scan_file):
    api = make_daemon("--min-run-s", "0").api
    long = job_of(slow_scan_file, 400, **{"class": "batch"})
    undisturbed = api.finish(api.submit(long)["id"])
    victim = api.submit(long)
    api.wait_for_iteration(victim["id"], 20)
    normal = api.submit(job_of(scan_file))
    assert api.show(normal["id"])["pending"]["reason"] == "devices-busy", "a normal job waits"
    live = api.submit(job_of(scan_file, **{"class": "live"}))
    done = api.finish(live["id"])
    assert done["state"] == "succeeded"
    resumed = api.finish(victim["id"])
    assert resumed["state"] == "succeeded" and resumed["attempts"] == 0
    assert done["finished"] < resumed["finished"]
    events = api.events(victim["id"])
    assert [e["reason"] for e in events if e["type"] == "state" and e["state"] == "queued"] == ["", "preempted"]
    assert next(e["from_iter"] for e in events if e["type"] == "resumed") >= 20
    assert resumed["result"]["data_error"] == undisturbed["result"]["data_error"]
    api.finish(normal["id"])


# ------------------------------------------------------------------------------------- verbs


def test_a_held_job_waits_for_its_release(held_up, scan_file):
    api, holder = held_up
    job, other = api.submit(job_of(scan_file)), api.submit(job_of(scan_file, priority=-100))
    for _ in range(2):  # may be repeated
        answer = api.post(f"/v1/jobs/{job['id']}/hold")
        assert answer.status == 200 and answer.json()["state"] == "held" and not answer.json()["terminal"]
    assert answer.json()["pending"]["reason"] == "held" and answer.json()["queue_position"] is None
    assert api.get("/v1/queue").json()["held"][0]["id"] == job["id"]
    assert [j["id"] for j in api.get("/v1/jobs?state=held").json()["jobs"]] == [job["id"]]
    assert api.post(f"/v1/jobs/{holder['id']}/hold").status == 409
    cancel(api, holder)
    assert api.finish(other["id"])["state"] == "succeeded", "the one behind it went first"
    assert api.show(job["id"])["state"] == "held"
    for _ in range(2):
        assert api.post(f"/v1/jobs/{job['id']}/release").status == 200
    done = api.finish(job["id"])
    assert done["state"] == "succeeded"
    states = [e["state"] for e in api.events(job["id"]) if e["type"] == "state"]
    assert states == ["queued", "held", "queued", "starting", "running"], states
    assert api.post(f"/v1/jobs/{job['id']}/hold").status == 409
    assert api.post(f"/v1/jobs/{job['id']}/release").status == 409


def test_a_held_job_stays_held_over_a_restart_and_can_be_cancelled(make_daemon, scan_file, slow_scan_file):
    daemon = make_daemon()
    holder = daemon.api.submit(endless(slow_scan_file))
    job = daemon.api.submit(job_of(scan_file, labels={"a": "1"}))
    assert daemon.api.post(f"/v1/jobs/{job['id']}/hold").status == 200
    tag = daemon.api.get(f"/v1/jobs/{job['id']}").headers["ETag"]
    assert patch(daemon.api, job["id"], {"labels": {"b": "2"}, "priority": 9, "name": "again"}, tag).status == 200
    daemon.kill()
    daemon.start()
    again = daemon.api.show(job["id"])
    assert again["state"] == "held" and again["labels"] == {"a": "1", "b": "2"} and again["priority"] == 9 and again["name"] == "again"
    cancel(daemon.api, holder)
    assert cancel(daemon.api, job)[0]["state"] == "cancelled"


def test_name_priority_and_labels_can_be_changed_and_nothing_else(held_up, scan_file):
    api, _ = held_up
    one, two = api.submit(job_of(scan_file)), api.submit(job_of(scan_file, labels={"keep": "1", "drop": "2"}))
    tag = api.get(f"/v1/jobs/{two['id']}").headers["ETag"]
    assert patch(api, two["id"], {"priority": 5}).status == 428
    assert patch(api, two["id"], {"priority": 5}, '"other-1"').status == 412
    changed = patch(api, two["id"], {"priority": 5, "name": "two", "labels": {"drop": None, "new": "3"}}, tag)
    assert changed.status == 200 and changed.headers["ETag"] != tag, changed
    assert changed.json()["name"] == "two" and changed.json()["job"]["name"] == two["name"] != "two"
    assert changed.json()["priority"] == 5 and changed.json()["labels"] == {"keep": "1", "new": "3"}
    assert changed.json()["queue_position"] == 1 and api.show(one["id"])["queue_position"] == 2
    assert patch(api, two["id"], {"priority": 6}, tag).status == 412, "the tag is of the document before"
    tag = changed.headers["ETag"]
    for wrong, where in (({"priority": 101}, "/priority"), ({"priority": None}, "/priority"), ({"priority": "1"}, "/priority"),
                         ({"name": None}, "/name"), ({"name": "x" * 257}, "/name"), ({"metadata": {}}, "/metadata"), ({"labels": {"a": 1}}, "/labels"), ({"labels": {"": "x"}}, "/labels"),
                         ({"labels": {str(i): "" for i in range(65)}}, "/labels"), ({"labels": "x"}, "/labels")):
        answer = patch(api, two["id"], wrong, tag)
        assert answer.status == 422 and answer.json()["errors"][0]["pointer"].startswith(where), (wrong, answer)
    assert patch(api, two["id"], [1], tag).status == 400
    assert patch(api, two["id"], {"labels": None}, tag).json()["labels"] == {}
    done = cancel(api, one, two)[1]
    tag = api.get(f"/v1/jobs/{two['id']}").headers["ETag"]
    assert patch(api, two["id"], {"priority": 1}, tag).status == 409
    after = patch(api, two["id"], {"labels": {"after": "it"}, "name": ""}, tag).json()
    assert after["labels"] == {"after": "it"} and after["name"] == ""
    assert done["state"] == "cancelled"


def test_limits_are_told_and_counted(make_daemon, slow_scan_file, scan_file):
    api = make_daemon("--queue-user-max", "2").api
    holder = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(holder["id"], 1)
    jobs = [api.submit(job_of(scan_file)) for _ in range(2)]
    assert api.post(f"/v1/jobs/{jobs[0]['id']}/hold").status == 200
    limits = api.get("/v1/limits").json()
    assert limits["queued_user"] == {"limit": 2, "current": 2} and limits["queued"]["current"] == 2
    assert limits["running_user"] == {"limit": None, "current": 1}
    assert limits["disk"]["free_bytes"] > 0
    full = api.post("/v1/jobs", job_of(scan_file))
    assert full.status == 429 and full.json()["scope"] == "user", "held jobs count"
    cancel(api, holder, *jobs)
    assert api.get("/v1/limits").json()["used_seconds"] > 0


# ------------------------------------------------------------------------------------- state


def test_an_older_state_is_copied_and_taken_over(make_daemon, scan_file):
    daemon = make_daemon()
    job = daemon.api.finish(daemon.api.submit(job_of(scan_file))["id"])
    daemon.stop()
    database = daemon.state / "queue.db"
    with opened(database) as db:
        for column in ("queued_ms", "frames", "side", "labels", "more"):
            db.execute(f"ALTER TABLE jobs DROP COLUMN {column}")
        db.execute("DROP TABLE notes")
        db.execute("UPDATE meta SET value = '1' WHERE key = 'schema_version'")
    daemon.start()
    assert daemon.api.show(job["id"])["result"] == job["result"]
    assert daemon.api.finish(daemon.api.submit(job_of(scan_file))["id"])["state"] == "succeeded"
    with opened(f"{database}.v1") as db:
        assert db.execute("SELECT count(*) FROM jobs").fetchone() == (1,)


def test_finished_jobs_are_forgotten_after_their_days(make_daemon, scan_file):
    daemon = make_daemon("--keep-days", "7")
    old, young = [daemon.api.finish(daemon.api.submit(job_of(scan_file, 1))["id"]) for _ in range(2)]
    daemon.stop()
    eight_days = int((time.time() - 8 * 86400) * 1000)
    with opened(daemon.state / "queue.db") as db:
        db.execute("UPDATE jobs SET finished_ms = ? WHERE id = ?", (eight_days, old["id"]))
    daemon.start()
    daemon.api.finish(daemon.api.submit(job_of(scan_file, 1))["id"])  # an end is an occasion
    xptychod.wait_until(lambda: daemon.api.get(f"/v1/jobs/{old['id']}").status == 404, "the old job is forgotten")
    assert not (daemon.state / "jobs" / old["id"]).exists()
    assert daemon.api.show(young["id"])["state"] == "succeeded"


def test_the_ballast_is_there_while_the_service_is(make_daemon):
    daemon = make_daemon("--ballast-mib", "8")
    ballast = pathlib.Path(daemon.state / "ballast")
    assert ballast.stat().st_blocks * 512 >= 8 << 20
    daemon.stop()
    assert not ballast.exists()


@pytest.fixture
def small_disk(tmp_path):
    """64 MiB, which nobody else fills."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no file system of a few megabytes: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(path):
    with open(path, "wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        with contextlib.suppress(OSError):
            while True:
                file.write(b"0")


def test_on_a_full_disk_what_runs_ends_and_freed_space_restores_service(make_daemon, small_disk, slow_scan_file, scan_file):
    state = small_disk / "state"
    daemon = make_daemon("--ballast-mib", "4", "--low-disk-mib", "2", "--state-dir", str(state))
    api = daemon.api
    job = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(job["id"], 2)
    waiting = [api.submit(job_of(scan_file))["id"] for _ in range(40)]
    assert (state / "ballast").stat().st_blocks * 512 >= 4 << 20
    fill(small_disk / "filler")
    assert os.statvfs(small_disk).f_bavail == 0
    refused = api.post("/v1/jobs", job_of(scan_file))
    assert refused.status == 507, refused
    assert refused.json()["free_bytes"] < refused.json()["required_bytes"] == 2 << 20
    for job_id in waiting:  # many changes of state, more than the room that the files have left
        assert api.post(f"/v1/jobs/{job_id}/cancel").status in (200, 202)
        assert api.finish(job_id)["state"] == "cancelled"
    assert cancel(api, job)[0]["state"] == "cancelled", "the running job ended"
    assert api.get("/v1/jobs?limit=200").status == 200
    assert api.post("/v1/jobs", job_of(scan_file)).status == 507
    (small_disk / "filler").unlink()
    assert api.finish(api.submit(job_of(scan_file))["id"])["state"] == "succeeded", "without a restart"
    xptychod.wait_until(lambda: (state / "ballast").exists(), "the ballast is there again")
    daemon.kill()
    daemon.start()
    assert daemon.api.show(job["id"])["state"] == "cancelled"
    assert {daemon.api.show(job_id)["state"] for job_id in waiting} == {"cancelled"}
    daemon.stop()
