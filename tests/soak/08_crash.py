#!/usr/bin/python3
"""Test 8: one of two workers ends by SIGSEGV, SIGABRT or SIGKILL at a random moment (--rounds), the real ones with real jobs.

Passes when its job goes on from its checkpoint to the bits of an undisturbed run, the job of the other worker is not touched,
and a worker is back in less than five seconds; a job that takes two workers with it is poison.  The kernel's own kill for want
of memory is in test_isolation.py.
"""

import os
import random
import signal
import time

import fault_rounds
import soak
import test_resume
import xptychod


def job_of(path, iterations=60):
    return {"scan": {"path": path}, "recon": {"iterations": iterations}, "checkpoint_every_s": 0.2, "preview_every_s": 1}


def workers(daemon):
    return {pid for pid, name in xptychod.processes_marked(daemon.mark) if name == "xptycho-worker"}


def crash(daemon, chance, slow, wanted):
    api = daemon.api
    jobs = [api.submit(job_of(slow))["id"] for _ in range(2)]
    for job_id in jobs:
        api.wait_for_iteration(job_id, chance.randint(1, 30))
    before = workers(daemon)
    victim = chance.choice(sorted(before))
    os.kill(victim, chance.choice([signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL]))
    began = time.monotonic()
    xptychod.wait_until(lambda: len(workers(daemon)) == 2 and victim not in workers(daemon), "two workers again", 20)
    back = time.monotonic() - began
    died = []
    for job_id in jobs:
        events = api.events(job_id)
        soak.check_log(events)
        done = api.show(job_id)
        assert done["state"] == "succeeded" and test_resume.bits(done["result"]["path"]) == wanted, done
        died.append(sum(e.get("reason") == "worker-died" for e in events))
    assert sorted(died) in ([0, 1], [0, 0]), died  # the job may just have ended
    return back, sum(died)


def poison(daemon, slow):
    api = daemon.api
    job_id = api.submit(job_of(slow, 100000))["id"]
    for attempt in range(2):
        api.wait_for_event(job_id, lambda e, n=attempt: e["type"] == "state" and e["state"] == "running" and api.show(job_id)["attempts"] == n)
        xptychod.wait_until(lambda n=attempt: api.show(job_id)["state"] == "running" and api.show(job_id)["attempts"] == n, "it runs")
        for pid in workers(daemon):
            os.kill(pid, signal.SIGSEGV)
        xptychod.wait_until(lambda n=attempt: api.show(job_id)["attempts"] == n + 1, "its worker died")
    done = api.finish(job_id)
    assert (done["state"], done["reason"]) == ("failed", "poison") and "Segmentation fault" in done["detail"], done


def body(options):
    _, slow = fault_rounds.scan_files(options.folder)
    chance = random.Random(options.seed)
    found = []
    with fault_rounds.daemon_of(xptychod.Daemon(options.folder / "daemon", "--cpu-workers", "2")) as daemon:
        daemon.start()
        first = daemon.api.finish(daemon.api.submit(job_of(slow))["id"])
        wanted = test_resume.bits(first["result"]["path"])
        for _ in range(options.rounds):
            found.append(crash(daemon, chance, slow, wanted))
        poison(daemon, slow)
        done = daemon.api.finish(daemon.api.submit(job_of(slow, 5))["id"])
        assert done["state"] == "succeeded"
    slowest = max(back for back, _ in found)
    assert slowest < 5, f"{slowest:.1f} s without a worker"
    hit = sum(n for _, n in found)
    return f"{options.rounds} crashes, {hit} in a job, same bits each time, the other job untouched; a worker back in {slowest:.1f} s at most; poison after two"


if __name__ == "__main__":
    soak.main(8, body, soak.arguments(__doc__, rounds=40, seed=8))
