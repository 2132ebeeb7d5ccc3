"""Workers that go wrong, by a script (tests/support/fake_worker.py) or by a signal: the broker and other jobs do not notice.

Tests 8, 9 and 10 of docs/testing.md; the long forms are tests/soak/08_, 09_ and 10_, which call what is here.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import time

import pytest

import faults
import xptychod

pytestmark = pytest.mark.filterwarnings("error")


def job_of(path, iterations=20, **changes):
    return {"scan": {"path": str(path)}, "recon": {"iterations": iterations}, **changes}


@pytest.fixture
def scripted(request, tmp_path):
    """scripted(script, *options): a started daemon whose workers follow the script; group: the control group it is put into."""
    made = request.node.daemons = []

    def make(script, *options, group=None):
        daemon = faults.ScriptedDaemon(tmp_path / f"scripted{len(made)}", script, *options)
        if group:
            daemon.prefix = ["/bin/sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(group)]
        made.append(daemon)
        return daemon.start()

    yield make
    try:
        for daemon in made:
            if daemon.process.poll() is None:
                daemon.stop()
    finally:
        for daemon in made:
            daemon.clean_up()


def ready(daemon):
    return daemon.api.get("/readyz").status == 200


def next_job_succeeds(daemon, scan_file):
    done = daemon.api.finish(daemon.api.submit(job_of(scan_file, 2))["id"])
    assert done["state"] == "succeeded", done


def check_log(events):
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert [e["type"] for e in events].count("end") == 1 and events[-1]["type"] == "end"


# ----------------------------------------------------------------------------- messages that break the rules


@pytest.mark.parametrize("hello", ["old", "garbage", "twice", "no-devices"])
def test_a_worker_that_does_not_introduce_itself_well_is_replaced(scripted, scan_file, hello):
    daemon = scripted([{"hello": hello}, {}])
    xptychod.wait_until(lambda: len(daemon.started()) == 2 and ready(daemon), "another one is ready")
    assert "breaks the rules" in daemon.log.read_text()
    next_job_succeeds(daemon, scan_file)


def test_a_worker_that_is_late_makes_jobs_wait(scripted, scan_file):
    daemon = scripted({"hello": "late", "late_s": 1.5})
    assert daemon.api.get("/readyz").status == 503
    job = daemon.api.submit(job_of(scan_file, 2))
    assert daemon.api.finish(job["id"])["state"] == "succeeded"
    assert ready(daemon) and len(daemon.started()) == 1


BREAKS = ["oversized", "malformed", "wrong-length", "unknown-type", "not-its-message", "many-descriptors", "deep", "no-type", "no-events",
          "lie-state", "lie-done", "lie-running"]


def side_by_side(scripted, scan_file, folder, scripts, *options, iterations=100):
    """Workers side by side, each with a script of its own and a job of its own; those that are started later behave.

    They begin to misbehave when all their jobs run: a job that goes on must find a worker that is new."""
    go = folder / "go"
    go.unlink(missing_ok=True)
    daemon = scripted([*({"seconds": 0.3, "when": str(go), **script} for script in scripts), {}], "--cpu-workers", str(len(scripts)), *options)
    xptychod.wait_until(lambda: daemon.log.read_text().count("is ready: fake") == len(scripts), "all are ready")
    jobs = [daemon.api.submit(job_of(scan_file, iterations))["id"] for _ in scripts]
    for job_id in jobs:
        daemon.api.wait_for_iteration(job_id, 1)
    go.touch()
    return daemon, jobs


def test_a_worker_that_breaks_the_rules_is_ended_and_its_job_goes_on(scripted, scan_file, tmp_path):
    daemon, jobs = side_by_side(scripted, scan_file, tmp_path, [{"do": what, "at": 4} for what in BREAKS])
    for job_id in jobs:
        events = daemon.api.events(job_id)
        check_log(events)
        assert events[-1]["state"] == "succeeded", events[-1]
        assert len([e for e in events if e.get("reason") == "worker-died"]) == 1, events
    log = daemon.log.read_text()
    assert log.count("breaks the rules") == len(BREAKS)
    assert len(daemon.started()) == 2 * len(BREAKS) and daemon.process.poll() is None


def test_messages_about_other_jobs_are_not_heard(scripted, scan_file):
    daemon = scripted({"do": "unknown-id", "at": 2})
    events = daemon.api.events(daemon.api.submit(job_of(scan_file, 3))["id"])
    check_log(events)
    assert events[-1]["state"] == "succeeded" and 99 not in [e.get("iter") for e in events]
    assert len(daemon.started()) == 1


def test_events_of_the_broker_are_the_brokers(scripted, scan_file):
    daemon = scripted({"do": "lie-end", "at": 2})
    events = daemon.api.events(daemon.api.submit(job_of(scan_file, 3))["id"])
    check_log(events)
    assert events[-1]["state"] == "succeeded"
    assert all(not e["t"].startswith("1970") for e in events)


def test_a_reason_of_its_own_is_internal(scripted, scan_file):
    daemon = scripted({"do": "reason", "jobs": 1})
    done = daemon.api.finish(daemon.api.submit(job_of(scan_file, 3))["id"])
    assert done["state"] == "failed" and done["reason"] == "internal" and len(done["detail"]) < 1000, done
    next_job_succeeds(daemon, scan_file)


def test_an_end_that_is_said_twice_is_heard_once(scripted, scan_file):
    daemon = scripted({"do": "twice", "jobs": 1})
    events = daemon.api.events(daemon.api.submit(job_of(scan_file, 3))["id"])
    check_log(events)
    assert events[-1]["reason"] == "output"
    next_job_succeeds(daemon, scan_file)


def test_a_flood_of_events_reaches_its_readers_and_others_are_served(scripted, scan_file):
    daemon = scripted({"do": "flood", "at": 2, "size": 10000})
    job = daemon.api.submit(job_of(scan_file, 3))
    slowest = 0.0
    while not daemon.api.show(job["id"])["terminal"]:
        began = time.monotonic()
        assert daemon.api.get("/v1/queue").status == 200
        slowest = max(slowest, time.monotonic() - began)
    events = daemon.api.events(job["id"])
    check_log(events)
    assert sum(e["type"] == "log" for e in events) == 10000
    assert slowest < 2, f"others waited {slowest:.2f} s"


# --------------------------------------------------------------------------------------------- 8: crashes


CRASHES = {"segv": "signal 11 (Segmentation fault)", "abort": "signal 6 (Aborted)", "kill": "signal 9 (Killed), by somebody else",
           "leave": "left with status 3"}


def crash(daemon, job_id):
    """Follows a job whose worker dies: events, and the seconds until a worker was back."""
    before = len(daemon.started())
    died = back = None
    events = []
    with daemon.api.stream(job_id) as stream:
        for event in stream:
            events.append(event)
            if event.get("reason") == "worker-died" and died is None:
                died = time.monotonic()
            if died and back is None and event.get("state") == "starting":
                back = time.monotonic() - died
    check_log(events)
    return events, back, len(daemon.started()) - before


def test_a_crash_is_named_and_the_job_runs_again(scripted, scan_file, tmp_path):
    daemon, jobs = side_by_side(scripted, scan_file, tmp_path, [{"do": how, "at": 4, "size": 3} for how in CRASHES])
    said = []
    for job_id in jobs:
        events = daemon.api.events(job_id)
        check_log(events)
        assert events[-1]["state"] == "succeeded" and daemon.api.show(job_id)["attempts"] == 1
        said += [e["detail"] for e in events if e.get("reason") == "worker-died"]
    assert sorted(said) == sorted(f"the worker {'was ended by ' if 'signal' in text else ''}{text}" for text in CRASHES.values())
    next_job_succeeds(daemon, scan_file)


def test_a_job_that_crashes_two_workers_is_poison_and_the_next_runs(scripted, scan_file):
    daemon = scripted([{"do": "segv", "at": 7}, {"do": "segv", "at": 7}, {}])
    job = daemon.api.submit(job_of(scan_file, 20))
    events, back, started = crash(daemon, job["id"])
    assert back < 5, f"{back:.1f} s without a worker"
    done = daemon.api.show(job["id"])
    assert (done["state"], done["reason"], done["attempts"]) == ("failed", "poison", 2) and "Segmentation fault" in done["detail"], done
    next_job_succeeds(daemon, scan_file)


def test_jobs_of_other_workers_are_not_touched(scripted, scan_file):
    daemon = scripted([{"seconds": 0.05}, {"do": "segv", "at": 10, "seconds": 0.05}, {"seconds": 0.01}], "--cpu-workers", "2")
    xptychod.wait_until(lambda: len(daemon.started()) == 2, "two workers")
    both = [daemon.api.submit(job_of(scan_file, 60))["id"] for _ in range(2)]
    logs = [daemon.api.events(job_id) for job_id in both]
    died = [sum(e.get("reason") == "worker-died" for e in log) for log in logs]
    assert sorted(died) == [0, 1], "one of the two"
    untouched = logs[died.index(0)]
    assert [e["iter"] for e in untouched if e["type"] == "iter"] == list(range(1, 61))
    assert [log[-1]["state"] for log in logs] == ["succeeded", "succeeded"]
    assert [daemon.api.show(i)["attempts"] for i in both] == died


def test_workers_go_first_when_memory_is_short(daemon):
    def score(pid):
        return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())
    assert score(daemon.pid_of("xptycho-worker")) >= score(daemon.process.pid) + 500


# ----------------------------------------------------------------------------------------- 9: sticky errors


def lost_device(daemon):
    """Follows a first job whose device is lost at its third iteration: it goes on with another worker."""
    job = daemon.api.submit(job_of(daemon.scan_file, 5))
    xptychod.wait_until(lambda: not ready(daemon), "not ready without a worker")
    xptychod.wait_until(lambda: ready(daemon), "ready again")
    events = daemon.api.events(job["id"])
    check_log(events)
    assert events[-1]["state"] == "succeeded", events[-1]
    assert ["illegal memory access" in e["detail"] for e in events if e.get("reason") == "worker-died"] == [True], events
    assert daemon.api.show(job["id"])["attempts"] == 1 and len(daemon.started()) == 2


def test_a_worker_whose_device_is_lost_is_replaced_and_the_job_goes_on(scripted, scan_file):
    daemon = scripted([{"do": "sticky", "at": 3}, {"hello": "late", "late_s": 0.5}])
    daemon.scan_file = scan_file
    lost_device(daemon)
    next_job_succeeds(daemon, scan_file)


def test_a_device_that_is_lost_three_times_in_a_row_is_drained_and_visible(scripted, scan_file):
    daemon = scripted({"do": "sticky", "at": 2})
    first = daemon.api.finish(daemon.api.submit(job_of(scan_file, 5))["id"])
    assert (first["state"], first["reason"], first["attempts"]) == ("failed", "poison", 2), first
    second = daemon.api.submit(job_of(scan_file, 5))
    xptychod.wait_until(lambda: "drained after 3 failures in a row" in daemon.log.read_text(), "the device is drained")
    assert daemon.api.get("/readyz").status == 503
    cpu = [d for d in daemon.api.get("/v1/devices").json()["devices"] if d["name"] == "cpu"]
    assert "drained after 3 failures in a row: an illegal memory access" in json.dumps(cpu), cpu
    assert daemon.api.show(second["id"])["state"] == "queued" and len(daemon.started()) == 3, "nothing is tried on it"
    daemon.write({})
    assert daemon.admin.post("/admin/undrain").status == 200
    assert daemon.api.finish(second["id"])["state"] == "succeeded" and ready(daemon)


def test_a_device_that_works_in_between_is_not_drained(scripted, scan_file):
    sticky = {"do": "sticky", "at": 2, "jobs": 1}
    daemon = scripted([sticky, {}])
    for _ in range(3):
        done = daemon.api.finish(daemon.api.submit(job_of(scan_file, 3))["id"])
        assert done["state"] == "succeeded", done
        before = daemon.process_of("xptycho-worker")
        daemon.write([sticky, {}])
        os.kill(before, signal.SIGKILL)
        xptychod.wait_until(lambda: len(daemon.started()) == 1 and ready(daemon), "the next one")
    assert "drained" not in daemon.log.read_text()


# ------------------------------------------------------------------------------------------------ 10: hangs

STALL, GRACE = 2, 1
LIMITS = ("--stall-s", str(STALL), "--cancel-grace-s", str(GRACE))


HANGS = [{"do": "hang", "ignore": ["term"]}, {"do": "freeze"}, {"do": "deaf", "ignore": ["term"]}]


def stand_still(daemon, job_id):
    """Seconds from a job's last iteration to the news that its worker was replaced."""
    last = None
    with daemon.api.stream(job_id) as stream:
        for event in stream:
            if event["type"] == "iter":
                last = time.monotonic()
            if event.get("reason") == "worker-died":
                return time.monotonic() - last, event["detail"]
    raise AssertionError("the worker was not replaced")


def test_a_worker_that_stands_still_is_replaced(scripted, scan_file, tmp_path):
    daemon, jobs = side_by_side(scripted, scan_file, tmp_path, [{"at": 5, "seconds": 0.1, **how} for how in HANGS], *LIMITS, iterations=300)
    first = daemon.started()[:len(HANGS)]
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        found = list(pool.map(lambda job_id: stand_still(daemon, job_id), jobs))
    for took, detail in found:
        said = re.fullmatch(r"the worker made no progress for ([0-9]+) s and was replaced", detail)
        assert said and STALL <= int(said[1]) < 20, detail  # by its own pace, which others on the machine may slow down
        assert int(said[1]) <= took < int(said[1]) + 2 + GRACE + 5, f"{took:.1f} s"
    for job_id in jobs:
        done = daemon.api.finish(job_id)
        assert done["state"] == "succeeded" and done["attempts"] == 1, done
    assert not [pid for pid in first if xptychod.alive(pid)]
    next_job_succeeds(daemon, scan_file)


def test_a_job_that_makes_two_workers_stand_still_is_poison(scripted, scan_file):
    daemon = scripted({"do": "hang", "at": 5, "ignore": ["term"]}, "--stall-s", "1", "--cancel-grace-s", "1")
    done = daemon.api.finish(daemon.api.submit(job_of(scan_file, 10))["id"])
    assert (done["state"], done["reason"]) == ("failed", "poison") and "made no progress" in done["detail"], done


def test_a_slow_job_is_left_alone(scripted, scan_file):
    daemon = scripted({"seconds": 2.2}, "--stall-s", "1")
    done = daemon.api.finish(daemon.api.submit(job_of(scan_file, 3))["id"])
    assert done["state"] == "succeeded" and done["attempts"] == 0, done


def test_a_cancel_is_answered_at_once_and_enforced(scripted, scan_file, tmp_path):
    scripts = [{"at": 3, **how} for how in HANGS] + [{"ignore": ["cancel", "term"]}]
    daemon, jobs = side_by_side(scripted, scan_file, tmp_path, scripts, "--cancel-grace-s", str(GRACE), iterations=100000)
    first = daemon.started()[:len(scripts)]
    for job_id in jobs:
        daemon.api.wait_for_iteration(job_id, 2)
    began = time.monotonic()
    for job_id in jobs:
        asked = time.monotonic()
        assert daemon.api.post(f"/v1/jobs/{job_id}/cancel").status == 202
        assert time.monotonic() - asked < 1
    for job_id in jobs:
        assert daemon.api.finish(job_id)["state"] == "cancelled"
    took = time.monotonic() - began
    assert took < GRACE + 5 + 2, f"{took:.1f} s"
    xptychod.wait_until(lambda: not [pid for pid in first if xptychod.alive(pid)], "the workers that hung are gone")
    next_job_succeeds(daemon, scan_file)


# ------------------------------------------------------------------------------------------- memory


def test_a_worker_that_keeps_memory_is_replaced_between_jobs(scripted, scan_file):
    daemon = scripted([{"do": "grow", "at": 2, "size": 300, "seconds": 0.2}, {}], "--worker-memory-mib", "200")
    job = daemon.api.submit(job_of(scan_file, 12))
    done = daemon.api.finish(job["id"])
    assert done["state"] == "succeeded" and done["attempts"] == 0, "not in the middle of it"
    xptychod.wait_until(lambda: len(daemon.started()) == 2 and ready(daemon), "another worker")
    assert re.search(r"worker 0 \(\d+\) holds 3\d\d MiB between jobs, more than the 200 of worker.memory_mib; it is replaced", daemon.log.read_text())
    next_job_succeeds(daemon, scan_file)
    assert len(daemon.started()) == 2


@pytest.fixture
def small_group():
    """A control group whose processes may take 400 MiB, of the second version or the first."""
    for root, limit, swap in ((pathlib.Path("/sys/fs/cgroup"), "memory.max", "memory.swap.max"),
                              (pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")):
        group = root / f"xptychod-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / limit).exists():
            break
        group.rmdir()
    else:
        pytest.skip("no control group that limits memory can be made here")
    try:
        (group / limit).write_text(str(400 << 20))
        if (group / swap).exists():
            (group / swap).write_text("0" if limit == "memory.max" else str(400 << 20))
        yield group
    finally:
        xptychod.wait_until(lambda: not (group / "cgroup.procs").read_text(), "all of them are gone")
        group.rmdir()


@pytest.fixture
def scripted_in_small_group(small_group, scripted):  # in this order, so that the daemon is gone before its group
    return lambda script, *options: scripted(script, *options, group=small_group)


def test_the_kernel_kills_a_worker_for_want_of_memory(scripted_in_small_group, small_group, scan_file, tmp_path):
    """The one that takes it, by the kernel's own hand; broker, reader and the other worker stay, and the job says why."""
    daemon, jobs = side_by_side(scripted_in_small_group, scan_file, tmp_path, [{"do": "grow", "size": 2000, "at": 4}, {}], iterations=40)
    for job_id in jobs:
        events = daemon.api.events(job_id)
        check_log(events)
        assert events[-1]["state"] == "succeeded", events[-1]
    died = [e["detail"] for job_id in jobs for e in daemon.api.events(job_id) if e.get("reason") == "worker-died"]
    assert died == ["the worker was ended by signal 9 (Killed), as the system was out of memory"]
    assert len(daemon.started()) == 3 and daemon.process.poll() is None
    counts = [line for name in ("memory.events", "memory.oom_control") if (small_group / name).exists()
              for line in (small_group / name).read_text().splitlines()]
    assert "oom_kill 1" in counts, counts
    next_job_succeeds(daemon, scan_file)


@pytest.mark.skipif(faults.available() is not None, reason=str(faults.available()))
def test_a_kill_for_want_of_memory_is_named(request, scan_file, tmp_path):
    """The kernel's count as a file of ours, since no test may fill this machine."""
    counts = tmp_path / "vmstat"
    counts.write_text("pgfault 1\noom_kill 4\n")
    daemon = faults.FaultyDaemon(tmp_path / "faulty", fault=f"open:1+:to={counts}:path=/proc/vmstat:in=xptychod")
    request.node.daemons = [daemon]
    try:
        daemon.start()
        job = daemon.api.submit(job_of(scan_file, 100000))
        daemon.api.wait_for_iteration(job["id"], 5)
        counts.write_text("pgfault 9\noom_kill 5\n")
        daemon.kill_worker()
        event = daemon.api.wait_for_event(job["id"], lambda e: e.get("reason") == "worker-died")
        assert event["detail"] == "the worker was ended by signal 9 (Killed), as the system was out of memory", event
        daemon.api.post(f"/v1/jobs/{job['id']}/cancel")
        assert daemon.api.finish(job["id"])["state"] == "cancelled"
        daemon.stop()
    finally:
        daemon.clean_up()
