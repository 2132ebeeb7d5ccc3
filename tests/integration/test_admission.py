"""Admission and limits: never or not now, memory of jobs and of strangers, shares of sets, files of others, times."""

import contextlib
import json
import os
import pathlib
import pwd
import re
import shutil
import sqlite3
import subprocess
import time

import h5py
import pytest

import memory_runs
import system_daemon
import xptychod
from memory_runs import MIB


def job_of(path, iterations=8, **changes):
    return {"name": "test", "scan": {"path": path}, "recon": {"iterations": iterations}, **changes}


def endless(path, **changes):
    return job_of(path, 100000, preview_every_s=60, **changes)


def needs_of(api, job):
    verdict = api.post("/v1/jobs?dry_run=true", job)
    assert verdict.status == 200, verdict
    return verdict.json()["needs"]


def host_need(needs):
    return needs["device_bytes"] + needs["host_bytes"]


def cancel(api, *jobs):
    for job in jobs:
        api.post(f"/v1/jobs/{job['id']}/cancel")
    return [api.finish(job["id"]) for job in jobs]


def wait_for_reason(api, job, reason):
    return xptychod.wait_until(lambda: (lambda p: p if p and p["reason"] == reason else None)(api.show(job["id"])["pending"]), reason)


@pytest.fixture
def machine(request, tmp_path):
    """make(*options, total=, free=): a daemon whose worker says of its memory what is told."""
    made = []

    def make(*arguments, **memory):
        made.append(memory_runs.Machine(tmp_path / f"machine{len(made)}", *arguments, **memory))
        request.node.daemons = [m.daemon for m in made]
        made[-1].daemon.start()
        return made[-1]

    yield make
    try:
        for one in made:
            one.daemon.stop()
    finally:
        for one in made:
            one.daemon.clean_up()


# ------------------------------------------------------------------------------------- memory


def test_random_scans_meet_random_limits(machine, tmp_path):
    counts = memory_runs.run(machine(), tmp_path / "scans", 4, seed=5)
    assert counts["suggestions"] > 0 and counts["most memory taken"] <= 1, counts
    print(counts)


def test_what_never_fits_is_refused_with_what_is_missing(make_daemon, slow_scan_file):
    daemon = make_daemon("--memory-mib", "30")
    answer = daemon.api.post("/v1/jobs", job_of(slow_scan_file))
    assert answer.status == 422, answer
    problem = answer.json()
    assert problem["type"] == "urn:xptychod:problem:insufficient-device-memory" and "never fits" in problem["detail"]
    assert problem["available_bytes"] == 30 * MIB and problem["shortfall_bytes"] == problem["required_bytes"] - 30 * MIB > 0
    assert [r["resource"] for r in problem["resources"]] == ["host-memory"] and problem["suggestions"] == []
    late = daemon.api.finish(daemon.api.post("/v1/jobs?probe=async", job_of(slow_scan_file)).json()["id"])
    assert late["state"] == "failed" and late["reason"] == "no-device-memory" and "never fits" in late["detail"], late


def test_a_job_waits_for_the_memory_of_another(make_daemon, slow_scan_file, scan_file):
    need = host_need(needs_of(make_daemon().api, endless(slow_scan_file)))
    small = 60 * MIB
    daemon = make_daemon("--cpu-workers", "2", "--memory-mib", str((need + need // 2) // MIB))
    api = daemon.api
    holder = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(holder["id"], 2)
    waits = api.submit(job_of(slow_scan_file))
    pending = wait_for_reason(api, waits, "memory")
    assert pending["blocked_by"] == [holder["id"]] and pending["blocked_by_hidden"] == 0
    assert pending["detail"].startswith("memory of this machine: ") and "needed" in pending["detail"] and "free" in pending["detail"]
    later = api.submit(job_of(scan_file))
    assert need // 2 < small or api.show(later["id"])["pending"], "what the first waits for is kept for it"
    assert api.get("/v1/limits").json()["memory"]["free_bytes"] < need
    cancel(api, holder)
    assert api.finish(waits["id"])["state"] == "succeeded"
    assert api.finish(later["id"])["state"] == "succeeded"


def test_memory_of_strangers_is_waited_for_and_holds_nobody_else_up(machine, slow_scan_file, scan_file):
    one = machine("--cpu-workers", "2")
    api = one.daemon.api
    need, small = (host_need(needs_of(api, job_of(path))) for path in (slow_scan_file, scan_file))
    assert small < need
    one.say(free=need - 1)
    one.settle(lambda memory: memory["free_bytes"] == need - 1)
    waits = api.submit(job_of(slow_scan_file))
    pending = wait_for_reason(api, waits, "foreign-process")
    assert "processes that are not of this service hold" in pending["detail"], pending
    assert api.finish(api.submit(job_of(scan_file))["id"])["state"] == "succeeded", "the one behind it"
    assert api.show(waits["id"])["state"] == "queued"
    one.say(free=64 << 30)
    done = api.finish(waits["id"])
    assert done["state"] == "succeeded" and done["attempts"] == 0
    assert [e["state"] for e in api.events(waits["id"]) if e["type"] == "state"] == ["queued", "starting", "running"], "it did not try in vain"


def test_a_worker_that_finds_less_sends_the_job_back(machine, scan_file):
    one = machine()
    api = one.daemon.api
    one.say(refuse=2, required=1 << 30)
    done = api.finish(api.submit(job_of(scan_file))["id"])
    assert done["state"] == "succeeded" and done["attempts"] == 0, done
    back = [(e["reason"], e["detail"]) for e in api.events(done["id"]) if e["type"] == "state" and e["state"] == "queued"]
    assert back == [("", ""), ("memory", "no memory for the run"), ("memory", "no memory for the run")], back


def test_and_one_that_never_has_it_fails_it(machine, scan_file):
    one = machine()
    one.say(refuse=1, required=65 << 30)
    done = one.daemon.api.finish(one.daemon.api.submit(job_of(scan_file))["id"])
    assert done["state"] == "failed" and done["reason"] == "no-device-memory", done


@pytest.fixture
def gpus(machine):
    """Two emulated GPUs that have as much memory as is told."""
    if not (pathlib.Path(os.environ["XPTYCHOD_BIN"]) / "xptycho-worker-cuda-emu").exists():
        pytest.skip("xptycho-worker-cuda-emu is not built")
    one = machine(option="--cuda-worker-program", XP_MEMORY_PROGRAM="xptycho-worker-cuda-emu", CUDA_VISIBLE_DEVICES="0,1", XPE_EMU_DEVICES="2", XPE_EMU_MIB="128")
    one.tell = lambda total, *free: [one.say(total=total, free=f, device=f"cuda:{i}") for i, f in enumerate(free)]
    one.heard = lambda *free: xptychod.wait_until(lambda: one.daemon.api.get("/v1/limits") and list(free) == [
        d["bytes_free"] for d in one.daemon.api.get("/v1/devices").json()["devices"] if d["name"].startswith("cuda:")], "the GPUs' memory")
    one.tell(128 * MIB, 100 * MIB, 100 * MIB)
    one.heard(100 * MIB, 100 * MIB)
    return one


def test_a_job_that_is_too_large_for_a_gpu_is_told_what_would_hold_it(gpus, scan_file):
    api = gpus.daemon.api
    job = job_of(scan_file, 4, model={"probe_modes": 3}, devices={"num_devices": 1})
    job["recon"]["mode_schedule"] = [2, 3]
    need = needs_of(api, job)["device_bytes"]
    two = needs_of(api, {**job, "devices": {"num_devices": 2}})["device_bytes"]
    total = (need + two) // 2
    gpus.tell(total, total, total)
    gpus.heard(total, total)
    answer = api.post("/v1/jobs", job)
    problem = answer.json()
    assert answer.status == 422 and problem["device"] == "cuda:0" and problem["required_bytes"] == need, answer
    assert problem["resources"][0]["resource"] == "device-memory" and problem["available_bytes"] == int(total * 0.97)
    changes = {s["detail"]: s["change"] for s in problem["suggestions"]}
    assert changes["2 GPUs"] == {"devices": {"devices": ["cuda:0", "cuda:1"]}} and changes["the CPU"] == {"devices": {"devices": ["cpu"]}}
    fewer = next(change for detail, change in changes.items() if detail.startswith("model.probe_modes "))
    assert fewer["recon"]["mode_schedule"] == [2, 3][:fewer["model"]["probe_modes"] - 1], changes
    for change in changes.values():
        changed = {**job, **{"devices": change.get("devices", job["devices"]), "model": change.get("model", job["model"])}}
        changed["recon"] = {**job["recon"], **change.get("recon", {})}
        assert api.post("/v1/jobs?dry_run=true", changed).status == 200, change
    done = api.finish(api.submit({**job, **changes["2 GPUs"]})["id"])
    assert done["state"] == "succeeded" and done["devices"] == ["cuda:0", "cuda:1"], done


def test_memory_of_a_gpu_that_strangers_hold(gpus, scan_file):
    api = gpus.daemon.api
    job = job_of(scan_file, 2)
    need = needs_of(api, job)["device_bytes"]
    gpus.tell(128 * MIB, need - 1, need - 1)
    gpus.heard(need - 1, need - 1)
    waits = api.submit(job)
    pending = wait_for_reason(api, waits, "foreign-process")
    assert re.match("memory of 'cuda:[01]': .* needed, .* free; processes that are not of this service hold .* \\(nvidia-smi names them\\)", pending["detail"]), pending
    gpus.tell(128 * MIB, need - 1, 100 * MIB)
    done = api.finish(waits["id"])
    assert done["state"] == "succeeded" and done["devices"] == ["cuda:1"], done


# ------------------------------------------------------------------------------------- sets and times


def test_a_set_that_is_kept_takes_live_jobs_alone(make_daemon, slow_scan_file, scan_file):
    api = make_daemon("--cpu-workers", "2", "--live-set", "1").api
    xptychod.wait_until(lambda: api.get("/v1/limits").json()["scheduling"]["sets"] == {"all": 2, "live": 1}, "two sets have their workers")
    holder = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(holder["id"], 1)
    waits = api.submit(job_of(scan_file))
    pending = api.show(waits["id"])["pending"]
    assert pending["reason"] == "devices-busy" and "kept for live jobs" in pending["detail"], pending
    assert api.finish(api.submit(job_of(scan_file, **{"class": "live"}))["id"])["state"] == "succeeded"
    assert api.show(waits["id"])["state"] == "queued"
    tag = api.get(f"/v1/jobs/{waits['id']}").headers["ETag"]
    change = api.call("PATCH", f"/v1/jobs/{waits['id']}", {"class": "live"}, {"If-Match": tag})
    assert change.status == 200 and change.json()["class"] == "live", change
    assert api.finish(waits["id"])["state"] == "succeeded", "now it may have the set"
    tag = api.get(f"/v1/jobs/{holder['id']}").headers["ETag"]
    assert api.call("PATCH", f"/v1/jobs/{holder['id']}", {"class": "batch"}, {"If-Match": tag}).status == 409
    cancel(api, holder)
    alone = make_daemon("--live-set", "0", "--cuda", "none").api
    refused = alone.post("/v1/jobs", job_of(scan_file))
    assert refused.status == 422 and "kept for live jobs" in refused.json()["detail"], refused


def test_a_class_and_a_wait_have_their_time(make_daemon, slow_scan_file, scan_file):
    api = make_daemon("--max-run-batch-s", "1", "--max-queue-s", "2").api
    scheduling = api.get("/v1/limits").json()["scheduling"]
    assert scheduling["max_run_s"] == {"live": None, "normal": None, "batch": 1, "scavenger": None} and scheduling["max_queue_s"] == 2
    done = api.finish(api.submit(endless(slow_scan_file, **{"class": "batch"}))["id"])
    assert done["state"] == "failed" and done["reason"] == "deadline", done
    assert done["detail"] == "not finished 1 s after its start, the most that a job of class batch may run here"
    holder = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(holder["id"], 1)
    late = api.finish(api.submit(job_of(scan_file))["id"])
    assert late["state"] == "failed" and late["reason"] == "deadline" and "not started 2 s" in late["detail"], late
    assert api.show(holder["id"])["state"] == "running"
    cancel(api, holder)


def test_a_user_holds_so_many_sets(make_daemon, slow_scan_file):
    api = make_daemon("--cpu-workers", "2", "--sets-user-max", "1").api
    holder = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(holder["id"], 1)
    waits = api.submit(job_of(slow_scan_file, 2))
    pending = api.show(waits["id"])["pending"]
    assert pending["reason"] == "user-limit" and "device sets" in pending["detail"] and pending["blocked_by"] == [holder["id"]], pending
    assert api.get("/v1/limits").json()["sets_user"] == {"limit": 1, "current": 1}
    cancel(api, holder)
    assert api.finish(waits["id"])["state"] == "succeeded"


def test_a_drained_service_says_that_it_is(make_daemon, slow_scan_file, scan_file):
    daemon = make_daemon()
    holder = daemon.api.submit(endless(slow_scan_file))
    daemon.api.wait_for_iteration(holder["id"], 1)
    waits = daemon.api.submit(job_of(scan_file))
    assert daemon.admin.post("/admin/drain").status == 200
    for job in (waits, holder):
        pending = wait_for_reason(daemon.api, job, "drained")
        assert "administrator" in pending["detail"] and pending["estimated_start"] is None, pending
    assert daemon.admin.post("/admin/undrain").status == 200
    cancel(daemon.api, holder)
    assert daemon.api.finish(waits["id"])["state"] == "succeeded"


def test_how_often_a_job_made_room_outlives_a_restart(make_daemon, slow_scan_file, scan_file):
    daemon = make_daemon("--min-run-s", "0")
    victim = daemon.api.submit(endless(slow_scan_file, **{"class": "batch"}))
    for times in range(1, 4):
        daemon.api.wait_for_event(victim["id"], lambda e, n=[0], t=times: e["type"] == "state" and e["state"] == "running" and
                                  n.__setitem__(0, n[0] + 1) is None and n[0] == t)
        xptychod.wait_until(lambda: daemon.api.show(victim["id"])["progress"], "an iteration")
        assert daemon.api.finish(daemon.api.submit(job_of(scan_file, 2, **{"class": "live"}))["id"])["state"] == "succeeded"
        if times == 2:
            daemon.stop()
            with contextlib.closing(sqlite3.connect(daemon.state / "queue.db")) as db:
                more = db.execute("SELECT more FROM jobs WHERE id = ?", (victim["id"],)).fetchone()[0]
            assert json.loads(more)["yielded"] == 2
            daemon.start()
            break
    xptychod.wait_until(lambda: daemon.api.show(victim["id"])["state"] == "running" and daemon.api.show(victim["id"])["progress"], "it runs again")
    daemon.api.finish(daemon.api.submit(job_of(scan_file, 2, **{"class": "live"}))["id"])  # the third time
    xptychod.wait_until(lambda: daemon.api.show(victim["id"])["state"] == "running" and daemon.api.show(victim["id"])["progress"], "it runs again")
    live = daemon.api.submit(job_of(scan_file, 2, **{"class": "live"}))
    time.sleep(0.5)  # in which it would have been sent back a fourth time
    assert daemon.api.show(live["id"])["pending"]["reason"] == "devices-busy" and daemon.api.show(victim["id"])["state"] == "running"
    cancel(daemon.api, victim)
    assert daemon.api.finish(live["id"])["state"] == "succeeded"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has jobs of several users")
def test_a_class_above_what_a_token_is_for_is_refused(request, tmp_path, slow_scan_file):
    daemon = system_daemon.SystemDaemon(tmp_path / "system", "[roots]\ndata = /\n")
    request.node.daemons = [daemon]
    daemon.add_token("night", "daemon", "submit,class=batch")
    daemon.start()
    try:
        api = daemon.api_of("night")
        for wish in ({}, {"class": "live"}):
            refused = api.post("/v1/jobs", endless(slow_scan_file, **wish))
            assert refused.status == 403 and "'batch'" in refused.json()["detail"] and "night" in refused.json()["detail"], refused
        jobs = [api.submit(endless(slow_scan_file, **{"class": "batch"})) for _ in range(2)]
        tag = api.get(f"/v1/jobs/{jobs[1]['id']}").headers["ETag"]
        higher = api.call("PATCH", f"/v1/jobs/{jobs[1]['id']}", {"class": "normal"}, {"If-Match": tag})
        assert higher.status == 403 and api.show(jobs[1]["id"])["class"] == "batch", higher
        lower = api.call("PATCH", f"/v1/jobs/{jobs[1]['id']}", {"class": "scavenger"}, {"If-Match": tag})
        assert lower.status == 200 and lower.json()["class"] == "scavenger", lower
        cancel(api, *jobs)
        daemon.stop()
    finally:
        daemon.clean_up()


# ------------------------------------------------------------------------------------- files


def test_one_file_has_one_writer_whatever_it_is_called(make_daemon, slow_scan_file, scan_file, tmp_path):
    api = make_daemon("--cpu-workers", "2").api
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "link").symlink_to(out)
    holder = api.submit(endless(slow_scan_file, output={"path": str(out / "a.h5")}))
    for name in (out / "a.h5", f"{out}/../out/a.h5", tmp_path / "link" / "a.h5", f"{out}//a.h5"):
        answer = api.post("/v1/jobs", job_of(scan_file, output={"path": str(name)}))
        assert answer.status == 422 and holder["id"] in answer.json()["detail"], (name, answer)
        late = api.finish(api.post("/v1/jobs?probe=async", job_of(scan_file, output={"path": str(name)})).json()["id"]) if name != out / "a.h5" else None
        assert late is None or (late["state"] == "failed" and late["reason"] == "output" and holder["id"] in late["detail"]), late
    assert api.finish(api.submit(job_of(scan_file, output={"path": str(out / "b.h5")}))["id"])["state"] == "succeeded"
    cancel(api, holder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has jobs of several users")
def test_a_result_stays_its_owners_when_its_job_is_forgotten(request, tmp_path, scan_file):
    out = tmp_path / "out"
    out.mkdir()
    daemon = system_daemon.SystemDaemon(tmp_path / "system", f"[roots]\ndata = /\nwrite = {out}\n[limits]\nshare = daemon:2\n")
    request.node.daemons = [daemon]
    daemon.add_token("ada", "daemon")
    daemon.add_token("bob", "nobody")
    daemon.start()
    try:
        ada, bob = daemon.api_of("ada"), daemon.api_of("bob")
        job = job_of(scan_file, output={"path": str(out / "a.h5"), "overwrite": True})
        assert (ada.get("/v1/limits").json()["scheduling"]["share"], bob.get("/v1/limits").json()["scheduling"]["share"]) == (2, 1)
        done = ada.finish(ada.submit(job)["id"])
        assert ada.delete(f"/v1/jobs/{done['id']}").status == 204
        for name in ("a.h5", "../out/a.h5"):
            taken = bob.post("/v1/jobs", {**job, "output": {"path": f"{out}/{name}", "overwrite": True}})
            assert taken.status == 422 and "another user" in taken.json()["detail"], taken
        uid = pwd.getpwnam("daemon").pw_uid
        with h5py.File(out / "a.h5") as f:
            assert f["run"].attrs["owner_uid"] == uid == done["result"]["owner"]
        shutil.copyfile(out / "a.h5", out / "copy.h5")  # by the service's user, as a backup comes back
        copy = {**job, "output": {"path": f"{out}/copy.h5", "overwrite": True}}
        assert bob.post("/v1/jobs?dry_run=true", copy).status == 422 and ada.post("/v1/jobs?dry_run=true", copy).status == 200
        os.chown(out / "copy.h5", uid, -1)  # what somebody else can have written says nothing
        assert bob.post("/v1/jobs?dry_run=true", copy).status == 200
        daemon.stop()
        with contextlib.closing(sqlite3.connect(daemon.state / "queue.db")) as db:
            assert not db.execute("SELECT * FROM notes WHERE key LIKE 'own/%'").fetchall(), "nothing is kept that the file says"
        daemon.start()
        ada, bob = daemon.api_of("ada"), daemon.api_of("bob")
        assert bob.post("/v1/jobs", job).status == 422, "after a restart, too"
        again = ada.finish(ada.submit(job)["id"])
        assert again["state"] == "succeeded", "its owner may"
        daemon.stop()
    finally:
        daemon.clean_up()


def test_files_left_in_the_state_folder_are_counted(make_daemon, scan_file):
    api = make_daemon("--artefacts-user-mib", "1").api
    jobs = []
    while (answer := api.post("/v1/jobs", job_of(scan_file, 1))).status == 201:
        jobs.append(api.finish(answer.json()["id"]))
        assert len(jobs) < 100
    assert answer.status == 507 and answer.json()["scope"] == "user" and answer.json()["current"] >= MIB, answer
    counted = api.get("/v1/limits").json()["artefact_bytes_user"]
    assert counted["limit"] == MIB and counted["current"] >= sum(j["result"]["bytes"] for j in jobs), counted
    for job in jobs[:len(jobs) // 2]:
        assert api.delete(f"/v1/jobs/{job['id']}").status == 204
    assert api.post("/v1/jobs", job_of(scan_file, 1)).status == 201


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1400 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1400k", "none", folder], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no file system of a few megabytes: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_result_that_does_not_fit_its_disk_is_refused_with_numbers(make_daemon, scan_file, slow_scan_file, small_disk):
    api = make_daemon().api
    small = job_of(scan_file, output={"path": str(small_disk / "a.h5")})
    needs = needs_of(api, small)
    assert needs["checkpoint_bytes"] > 0 and needs_of(api, {**small, "checkpoint": "off"})["checkpoint_bytes"] == 0
    never = api.post("/v1/jobs", {**small, "scan": {"path": slow_scan_file}})
    problem = never.json()
    assert never.status == 422 and problem["type"] == "urn:xptychod:problem:insufficient-disk", never
    assert problem["available_bytes"] == 1400 << 10 and problem["errors"][0]["pointer"] == "/output/path"
    assert problem["shortfall_bytes"] == problem["required_bytes"] - problem["available_bytes"] > 0 and "never fits" in problem["detail"]
    (small_disk / "filler").write_bytes(bytes((1400 << 10) - needs["result_bytes"] // 2))
    later = api.post("/v1/jobs", small)
    assert later.status == 507 and later.headers["Retry-After"] and "free now" in later.json()["detail"], later
    assert later.json()["required_bytes"] == needs["result_bytes"] and later.json()["free_bytes"] < needs["result_bytes"]
    (small_disk / "filler").unlink()
    done = api.finish(api.submit(small)["id"])
    assert done["state"] == "succeeded" and done["result"]["bytes"] <= needs["result_bytes"], done
