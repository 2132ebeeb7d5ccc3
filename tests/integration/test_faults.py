"""Calls of the system that fail at the worst moment: the programs of bin/faults (tests/faults/seam.c).

Tests 2, 3, 4, 5 and 6 of docs/testing.md; the long forms are tests/soak/02_..06_, which call what is here.
"""

import os
import pathlib
import shutil
import sqlite3
import subprocess
import time

import h5py
import pytest

import faults
import torture
import xptychod

pytestmark = pytest.mark.skipif(faults.available() is not None, reason=str(faults.available()))


def job_of(path, iterations=40, **changes):
    return {"scan": {"path": str(path)}, "recon": {"iterations": iterations}, "preview_every_s": 1, **changes}


def bits(path):
    with h5py.File(path) as f:
        return tuple(f[name][...].tobytes() for name in ("sample/object", "sample/probe", "run/data_error"))


@pytest.fixture
def make_faulty(request, tmp_path):
    """make_faulty(fault, *options): a daemon of bin/faults, not started."""
    made = request.node.daemons = []

    def make(fault="", *options):
        made.append(faults.FaultyDaemon(tmp_path / f"faulty{len(made)}", *options, fault=fault))
        return made[-1]

    yield make
    try:
        for daemon in made:
            if daemon.process and daemon.process.poll() is None:
                daemon.stop()
    finally:
        for daemon in made:
            daemon.clean_up()


def check_state(daemon):
    """The database of a daemon that is down is whole."""
    connection = sqlite3.connect(daemon.state / "queue.db")
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()


def check_log(events):
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1)), "numbered without holes"
    assert [e["type"] for e in events].count("end") == 1 and events[-1]["type"] == "end"


# ------------------------------------------------------------------------------------- the seam itself


def symbols(path):
    return subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("name", ["xptychod", "xptycho-worker", "xptycho-reader", "xptycho-zmq", "xptycho"])
def test_the_real_programs_hold_no_trace_of_it(name):
    program = pathlib.Path(xptychod.program(name))
    assert b"XP_FAULT" not in program.read_bytes()
    assert not {"malloc", "fsync", "write", "pwrite64", "renameat2", "open64"} & set(symbols(program))


def test_the_copies_are_the_same_programs_with_it():
    for name in ("xptychod", "xptycho-worker", "xptycho-reader"):
        program = xptychod.program(f"faults/{name}")
        assert {"malloc", "fsync", "write"} <= set(symbols(program))
        assert subprocess.run([program, "--version"], capture_output=True, check=True).stdout == \
            subprocess.run([xptychod.program(name), "--version"], capture_output=True, check=True).stdout


def test_a_rule_that_makes_no_sense_ends_the_program():
    for rule in ("fsync", "fsync:0:EIO", "fsync:1:ENONSENSE", "fsync:1:EIO:where=x"):
        done = subprocess.run([xptychod.program("faults/xptychod"), "--version"], env={"XP_FAULT": rule}, capture_output=True, check=False)
        assert done.returncode == 2 and b"XP_FAULT" in done.stderr, rule


# --------------------------------------------------------- 2: between the result's name and the commit


def named(rest):
    """Rules for the call by which a result gets its name, which depends on the file system."""
    return f"renameat2:1:{rest};linkat:1:{rest}"


def die_between(daemon, scan_file, out, who):
    """Runs a job whose result gets its name, upon which `who` is killed; returns its document and events afterwards."""
    rules = {"worker": named(f"killafter:path={out.name}:in=xptycho-worker:once"),
             "broker": f"pwrite:1:kill:path=queue.db:when={out}:in=xptychod:once"}
    daemon.fault = ";".join(rules[name] for name in who)
    daemon.start()
    job = daemon.api.submit(job_of(scan_file, 3, output={"path": str(out)}))
    if "broker" in who:
        daemon.ended()
        check_state(daemon)
        with_name = out.read_bytes()
        daemon.start()
    events = daemon.api.events(job["id"])
    if "broker" in who:
        assert out.read_bytes() == with_name
    assert {f[1] for f in daemon.faults()} == {f"xptycho{'-worker' if name == 'worker' else 'd'}" for name in who}, "it has happened"
    return daemon.api.show(job["id"]), events


@pytest.mark.parametrize("who", [["worker"], ["broker"], ["worker", "broker"]], ids="-".join)
def test_killed_between_the_name_of_the_result_and_the_commit(make_faulty, scan_file, tmp_path, who):
    out = tmp_path / "out-folder" / "result.h5"
    out.parent.mkdir()
    daemon = make_faulty()
    done, events = die_between(daemon, scan_file, out, who)
    check_log(events)
    assert done["state"] == "succeeded" and done["result"]["bytes"] == out.stat().st_size, done
    assert "resumed" not in [e["type"] for e in events] and [e.get("state") for e in events].count("starting") == 1, "not run again"
    assert [p.name for p in out.parent.iterdir()] == ["result.h5"], "nothing half written is left"
    assert not list((daemon.state / "jobs" / done["id"]).glob("checkpoint*"))
    assert daemon.api.get(f"/v1/jobs/{done['id']}/result/data").body == out.read_bytes()


def test_killed_before_the_name_of_the_result_runs_again(make_faulty, scan_file, tmp_path):
    out = tmp_path / "out-folder" / "result.h5"
    out.parent.mkdir()
    daemon = make_faulty(named(f"kill:path={out.name}:in=xptycho-worker:once")).start()
    done = daemon.api.finish(daemon.api.submit(job_of(scan_file, 3, output={"path": str(out)}))["id"])
    assert done["state"] == "succeeded" and done["attempts"] == 1, done
    assert [p.name for p in out.parent.iterdir() if not p.name.startswith(".")] == ["result.h5"]


# ------------------------------------------------------------------------------------- 3: state disk full


@pytest.fixture
def small_state(tmp_path):
    """make(daemon): puts its state folder on a file system of 2 MiB; skips where none can be mounted."""
    mounted = []

    def make(daemon):
        if os.geteuid() != 0 or not shutil.which("mount"):
            pytest.skip("only root may mount the small file system that this needs")
        daemon.state.mkdir(parents=True)
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0755", "none", daemon.state], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
        mounted.append((daemon, daemon.state))

    yield make
    for daemon, folder in mounted:
        daemon.clean_up()
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder):
    """Every free byte of the file system."""
    filler = folder / "filler"
    fd = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    os.write(fd, b"x" * size)
            except OSError:
                continue
    finally:
        os.close(fd)
    return filler


def test_full_state_disk(make_faulty, small_state, slow_scan_file, scan_file, tmp_path):
    daemon = make_faulty("", "--low-disk-mib", "0", "--ballast-mib", "0")
    small_state(daemon)
    daemon.start()
    pid = daemon.process.pid
    before = daemon.api.finish(daemon.api.submit(job_of(scan_file, 2, output={"path": str(tmp_path / "before.h5")}))["id"])
    assert before["state"] == "succeeded", before
    running = daemon.api.submit(job_of(slow_scan_file, 100000, checkpoint="off", output={"path": str(tmp_path / "running.h5")}))
    daemon.api.wait_for_iteration(running["id"], 3)
    filler = fill(daemon.state)
    refused = [daemon.api.post("/v1/jobs", job_of(scan_file, 2, name="x" * 200, output={"path": str(tmp_path / f"{i}.h5")})) for i in range(20)]
    full = [r for r in refused if r.status == 507]
    assert full and {r.status for r in refused} <= {201, 507}, refused[-1]
    for r in full:
        assert r.json()["type"] == "urn:xptychod:problem:low-disk"
        assert r.json()["free_bytes"] < 1 << 20 and r.json()["required_bytes"] >= 0, r
    accepted = [r.json()["id"] for r in refused if r.status == 201]
    for path in ("/v1/jobs", f"/v1/jobs/{before['id']}", f"/v1/jobs/{running['id']}", "/v1/devices", "/v1/limits"):
        assert daemon.api.get(path).status == 200, path
    assert daemon.api.post(f"/v1/jobs/{running['id']}/cancel").status in (202, 507)  # it is cancelled; whether that is on disk
    xptychod.wait_until(lambda: daemon.api.show(running["id"])["terminal"], "the running job ends in memory")
    filler.unlink()
    xptychod.wait_until(lambda: daemon.api.get("/readyz").status == 200, "room again: ready again")
    for job_id in [*accepted, daemon.api.submit(job_of(scan_file, 2, output={"path": str(tmp_path / "after.h5")}))["id"]]:
        assert daemon.api.finish(job_id)["state"] == "succeeded"
    assert daemon.process.pid == pid and daemon.process.poll() is None, "without a restart"
    daemon.stop()
    check_state(daemon)
    daemon.start()
    assert daemon.api.show(running["id"])["state"] == "cancelled"
    assert {j["id"] for j in daemon.api.get("/v1/jobs?limit=100").json()["jobs"]} >= {before["id"], running["id"], *accepted}


def test_a_quota_is_a_full_disk(make_faulty, scan_file):
    daemon = make_faulty()
    daemon.fault = f"pwrite:1+:EDQUOT:path=queue.db:when={daemon.armed}:in=xptychod"
    daemon.start()
    daemon.arm()
    refused = daemon.api.post("/v1/jobs", job_of(scan_file, 2))
    assert refused.status == 507 and refused.json()["required_bytes"] > 0, refused
    daemon.arm(False)
    xptychod.wait_until(lambda: daemon.api.get("/readyz").status == 200, "ready again")
    assert daemon.api.finish(daemon.api.submit(job_of(scan_file, 2))["id"])["state"] == "succeeded"


# ------------------------------------------------------------------- 4 and 5: results and checkpoints


CHECKPOINT_FAULTS = {"write:1:ENOSPC": "No space left", "fsync:1:EIO": "Input/output error", "close:1:EDQUOT": "quota"}
# for the long form
CHECKPOINT_FAULTS_MORE = {"write:1:EDQUOT": "quota", "write:3:ENOSPC": "No space left", "rename:1:EIO": "Input/output error",
                          "open:1:EMFILE": "open files", "open:1:ENOSPC": "No space left"}


def one_checkpoint_fails(daemon, slow_scan_file, fault, iterations=16):
    """A job whose second checkpoint meets the fault and whose worker is killed after it; document and events."""
    daemon.fault = fault
    daemon.start()
    job = daemon.api.submit(job_of(slow_scan_file, iterations, checkpoint_every_s=0))
    warning = daemon.api.wait_for_event(job["id"], lambda e: e["type"] == "warning" and "checkpoint" in e["text"])
    folder = daemon.state / "jobs" / job["id"]
    assert [p.name for p in folder.glob("checkpoint*")] == ["checkpoint.0"], "the generation before stays, nothing half written"
    daemon.kill_worker()
    events = daemon.api.events(job["id"])
    return daemon.api.show(job["id"]), events, warning


@pytest.mark.parametrize("fault", CHECKPOINT_FAULTS)
def test_a_checkpoint_that_cannot_be_written(make_faulty, slow_scan_file, fault):
    check_checkpoint_fault(make_faulty(), slow_scan_file, fault, CHECKPOINT_FAULTS[fault])


def check_checkpoint_fault(daemon, slow_scan_file, fault, words):
    done, events, warning = one_checkpoint_fails(daemon, slow_scan_file, f"{fault}:path=checkpoint.1.tmp:in=xptycho-worker:once")
    assert words in warning["text"] and "checkpoint" in warning["text"], warning
    check_log(events)
    kept = [e["iter"] for e in events if e["type"] == "checkpoint"]
    resumed = [e["from_iter"] for e in events if e["type"] == "resumed"]
    assert resumed == kept[:1], "from the generation that was kept"
    assert done["state"] == "succeeded", done
    assert len(daemon.faults()) == 1, "not tried again on what failed"
    again = daemon.api.finish(daemon.api.submit(job_of(slow_scan_file, 16))["id"])
    assert bits(done["result"]["path"]) == bits(again["result"]["path"])


RESULT_FAULTS = {"fallocate:1:ENOSPC": "space left", "pwrite:2:ENOSPC": "space left", "pwrite:1+:EDQUOT": "quota", "fsync:1:EIO": "Input/output error",
                 "close:3:EDQUOT": "quota", "name:1:EIO": "Input/output error"}
RESULT_FAULTS_MORE = {"fallocate:1:EDQUOT": "quota", "pwrite:1:EIO": "Input/output error", "pwrite:4:EIO": "Input/output error", "name:1:EROFS": "Read-only"}


@pytest.mark.parametrize("fault", RESULT_FAULTS)
def test_a_result_that_cannot_be_written(make_faulty, scan_file, tmp_path, fault):
    check_result_fault(make_faulty(), scan_file, tmp_path / "out-folder" / "result.h5", fault, RESULT_FAULTS[fault])


def check_result_fault(daemon, scan_file, out, fault, words):
    out.parent.mkdir()
    rest = f"in=xptycho-worker:when={daemon.armed}"
    daemon.fault = f"{fault}:path=/{out.parent.name}/:{rest}"
    if fault.startswith("name:"):
        daemon.fault = named(f"{fault.split(':')[2]}:path={out.name}:{rest}")
    daemon.start()
    daemon.arm()
    worker = daemon.pid_of("xptycho-worker")
    job = job_of(scan_file, 3, output={"path": str(out)})
    done = daemon.api.finish(daemon.api.submit(job)["id"])
    assert daemon.faults(), "it has happened"
    assert done["state"] == "failed" and done["reason"] == "output", done
    assert str(out) in done["detail"] and words in done["detail"], done
    assert list(out.parent.iterdir()) == [], "nothing half written is left"
    assert daemon.pid_of("xptycho-worker") == worker, "the worker goes on"
    daemon.arm(False)
    again = daemon.api.finish(daemon.api.submit(job)["id"])
    assert again["state"] == "succeeded", again


@pytest.mark.parametrize("call", ["fdatasync", "fsync", "pwrite"])
def test_a_database_that_cannot_be_synced_ends_the_service(make_faulty, scan_file, call):
    daemon = make_faulty()
    daemon.fault = f"{call}:1+:EIO:path=queue.db:when={daemon.armed}:in=xptychod"
    daemon.start()
    known = daemon.api.finish(daemon.api.submit(job_of(scan_file, 2))["id"])
    daemon.arm()
    try:
        answer = daemon.api.post("/v1/jobs", job_of(scan_file, 2))
    except OSError:
        answer = None  # it left before it could say so
    if call == "fsync" and not daemon.faults():
        daemon.arm(False)
        pytest.skip("this SQLite syncs by fdatasync")
    assert answer is None or answer.status == 503, answer
    assert daemon.ended() == 1
    assert len(daemon.faults()) == 1, "no second try"
    daemon.arm(False)
    check_state(daemon)
    daemon.start()
    assert daemon.api.show(known["id"]) == known
    for job in daemon.api.get("/v1/jobs?limit=100").json()["jobs"]:
        assert daemon.api.finish(job["id"])["state"] == "succeeded"


# ------------------------------------------------------------------------- 6: calls that fail once, by class


def test_an_event_log_that_cannot_be_read_once_loses_no_event(make_faulty, scan_file):
    daemon = make_faulty()
    daemon.start()
    job = daemon.api.submit(job_of(scan_file, 5))
    events = daemon.api.events(job["id"])
    check_log(events)
    daemon.stop()
    daemon.fault = "pread:1:EIO:path=events.ndjson:in=xptychod"  # as the log is opened: not its end
    daemon.start()
    answer = daemon.api.get(f"/v1/jobs/{job['id']}/events", Accept="application/x-ndjson")
    assert answer.status == 503 and "cannot be read" in daemon.log_tail(), answer
    assert daemon.api.events(job["id"]) == events
    daemon.stop()
    daemon.fault = "pread:3:EIO:path=events.ndjson:in=xptychod"  # as its second reader reads it: no gap
    daemon.start()
    parts = [daemon.api.events(job["id"]) for _ in range(3)]
    assert daemon.faults()[1:] and [] in parts, "a stream that cannot go on ends"
    assert [part for part in parts if part] == [events, events]


def spread(step, when):
    """Some allocations of the broker that fail, each once."""
    return ";".join(f"alloc:{1 + k * step}:ENOMEM:when={when}:in=xptychod" for k in range(16))


def status_of(call):
    try:
        return call().status
    except OSError:
        return None  # the connection was closed: there was no memory for an answer


def test_a_stranger_gets_nothing_whatever_allocation_fails(tmp_path, scan_file):
    for step in (37, 43, 47, 59):
        daemon = torture.Faulty(tmp_path / f"daemon{step}", "xptychod")
        daemon.fault = spread(step, daemon.armed)
        try:
            daemon.start()
            stranger = xptychod.Api(daemon.ready["http"], "0" * 64)
            daemon.arm()
            found = [status_of(lambda: stranger.post("/v1/jobs", {"scan": {"path": scan_file}})) for _ in range(60)]
            daemon.arm(False)
            assert set(found) <= {None, 401, 503} and 401 in found, found
            assert daemon.faults()
            assert daemon.api.get("/v1/jobs").json()["jobs"] == []
            daemon.stop()
        finally:
            daemon.clean_up()


def test_jobs_are_made_once_and_end_whatever_allocation_fails(tmp_path, scan_file):
    for step in (1511, 2503, 2657):
        daemon = torture.Faulty(tmp_path / f"daemon{step}", "xptychod")
        daemon.fault = spread(step, daemon.armed)
        try:
            daemon.start()
            daemon.arm()
            for i in range(16):
                status_of(lambda i=i: daemon.api.post("/v1/jobs", job_of(scan_file, 1, name=f"job {i}")))
            jobs = persistently(daemon, lambda: daemon.api.get("/v1/jobs").json()["jobs"])
            names = [job["name"] for job in jobs]
            assert len(names) == len(set(names)), sorted(names)
            for job in jobs:
                check_log(all_events(daemon, job["id"], 10))
            assert daemon.faults()
            daemon.arm(False)
            daemon.stop()
        finally:
            daemon.clean_up()


def persistently(daemon, call):
    """Again where an answer is lost, and of the next service where the database had no memory, which ends one."""
    while True:
        try:
            return call()
        except ConnectionRefusedError:
            assert daemon.ended() == 1
            daemon.fault = ""
            daemon.start()
        except (OSError, AssertionError) as error:
            if isinstance(error, AssertionError) and not str(error).startswith("503 "):
                raise


def all_events(daemon, job_id, deadline_s):
    """Through streams that are cut."""
    events, end = [], time.monotonic() + deadline_s

    def more():
        assert time.monotonic() < end, f"no end of job {job_id} in time: {events[-1:]}"
        with daemon.api.stream(job_id, start=len(events) + 1, deadline_s=deadline_s) as stream:
            for event in stream:
                events.append(event)

    while not events or events[-1]["type"] != "end":
        persistently(daemon, more)
    return events
