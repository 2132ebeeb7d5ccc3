"""Test 7: state folders that are damaged in every way; shared by tests/integration/test_damage.py and tests/soak/07_damage.py."""

import json
import random
import re
import shutil
import sqlite3

import faults
import xptychod

KINDS = ("queue.db", "queue.db-wal", "events.ndjson", "checkpoint", "done.json")


def job_of(path, iterations=2, **changes):
    return {"scan": {"path": str(path)}, "recon": {"iterations": iterations}, **changes}


class Template:
    """A state with jobs of every kind, as kill -9 leaves it: some rows in the database, some in the write-ahead log."""

    def __init__(self, folder, scan_file, slow_scan_file):
        daemon = xptychod.Daemon(folder)
        try:
            daemon.start()
            api = daemon.api
            self.finished = [api.finish(api.submit(job_of(scan_file))["id"])["id"] for _ in range(3)]
            daemon.stop()  # moves the log into the database
            daemon.start()
            api = daemon.api
            self.finished += [api.finish(api.submit(job_of(scan_file))["id"])["id"] for _ in range(2)]
            self.running = api.submit(job_of(slow_scan_file, 30, checkpoint_every_s=0, priority=5))["id"]
            api.wait_for_event(self.running, lambda e: e["type"] == "checkpoint" and e["iter"] >= 4)
            self.waiting = [api.submit(job_of(scan_file, name=f"waits {i}"))["id"] for i in range(4)]
            self.held = api.submit(job_of(scan_file))["id"]
            assert api.post(f"/v1/jobs/{self.held}/hold").status == 200
            daemon.kill()
        finally:
            daemon.clean_up()
        self.state = daemon.state
        self.jobs = {*self.finished, self.running, *self.waiting, self.held}


def targets(template, state, kind):
    if kind == "events.ndjson":
        return sorted(state.glob("jobs/*/events.ndjson"))
    if kind == "checkpoint":
        return sorted(state.glob(f"jobs/{template.running}/checkpoint.?"))
    if kind == "done.json":
        return sorted(state.glob("jobs/*/done.json"))
    return [state / kind]


def spoil(path, chance):
    """One of many kinds of damage; says which."""
    data = bytearray(path.read_bytes())
    how = chance.choice(["flip", "flip", "flip", "cut", "cut", "zero", "noise", "swap", "double", "append", "empty"])
    size = len(data)
    at = chance.randrange(max(1, size))
    length = min(chance.choice([1, 4, 24, 512, 4096, 16384]), size - at)
    if how == "flip":
        for _ in range(chance.choice([1, 1, 2, 16])):
            k = chance.randrange(max(1, size))
            if size:
                data[k] ^= 1 << chance.randrange(8)
    elif how == "cut":
        del data[at:]
    elif how == "zero":
        data[at:at + length] = bytes(length)
    elif how == "noise":
        data[at:at + length] = chance.randbytes(length)
    elif how == "swap" and size:
        other = chance.randrange(size)
        length = min(length, size - max(at, other))
        data[at:at + length], data[other:other + length] = data[other:other + length], data[at:at + length]
    elif how == "double":
        data[at:at] = data[at:at + length]
    elif how == "append":
        data += chance.randbytes(chance.choice([1, 32, 4096]))
    elif how == "empty":
        data.clear()
    path.write_bytes(data)
    return f"{how} at {at}, {length} of {size} bytes"


class Variant:
    """One damaged copy: starts, or refuses and names the file; nothing else."""

    def __init__(self, template, folder, seed, kind=None):
        self.template, self.chance = template, random.Random(seed)
        self.kind = kind or self.chance.choice(KINDS)
        # the fake worker where no checkpoint matters: it is quick
        make = xptychod.Daemon if self.kind == "checkpoint" else lambda f: faults.ScriptedDaemon(f, {})
        self.daemon = make(folder)
        shutil.copytree(template.state, self.daemon.state, ignore=shutil.ignore_patterns("run", "lock"))
        self.path = self.chance.choice(targets(template, self.daemon.state, self.kind))
        self.what = f"seed {seed}: {self.path.relative_to(self.daemon.state)}: {spoil(self.path, self.chance)}"

    def run(self):
        """\"started\" or \"refused\"; anything else is an AssertionError."""
        try:
            return self._run()
        except Exception as error:
            raise AssertionError(f"{self.what}: {type(error).__name__}: {error}\n{self.daemon.log_tail(25)}") from error
        finally:
            self.daemon.clean_up()
            shutil.rmtree(self.daemon.folder, ignore_errors=True)

    def _run(self):
        try:
            self.daemon.start()
        except AssertionError:
            status = self.daemon.process.poll()
            assert status == 1, f"it ended with {status}"
            last = self.daemon.log.read_text().splitlines()[-1]
            assert "queue.db" in last, f"the refusal names no file: {last}"
            assert self.kind.startswith("queue.db"), "a file of one job is in the way of all"
            return "refused"
        api = self.daemon.api
        jobs = {job["id"]: job for job in api.get("/v1/jobs?limit=200").json()["jobs"]}
        log = self.daemon.log.read_text()
        for job_id in self.template.jobs - set(jobs):
            assert any(job_id in line and " error: " in line for line in log.splitlines()), f"{job_id} is gone and nobody says so"
        if not self.kind.startswith("queue.db"):
            assert set(jobs) == self.template.jobs
        for job_id in jobs:
            assert api.get(f"/v1/jobs/{job_id}").status == 200, job_id
            response = api.get(f"/v1/jobs/{job_id}/events?follow=0", Accept="application/x-ndjson")
            assert response.status in (200, 204), response
            for line in response.body.split(b"\n"):
                # what is damaged within a line is shown as it is: nothing on the disk tells
                assert not line or re.match(rb'\{"seq": ?[0-9]+,|\{"type":"gap",', line), f"a stream with {line!r}"
            assert api.get(f"/v1/jobs/{job_id}/result").status < 500
        xptychod.wait_until(lambda: all(j["terminal"] or j["state"] == "held" for j in api.get("/v1/jobs?limit=200").json()["jobs"]),
                            "every job comes to its end", 60)
        if self.kind == "checkpoint":
            done = api.show(self.template.running)
            assert done["state"] == "succeeded", done
        assert api.finish(api.submit(job_of(self.scan_file()))["id"])["state"] == "succeeded"
        self.daemon.stop()
        connection = sqlite3.connect(self.daemon.state / "queue.db")
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        connection.close()
        return "started"

    def scan_file(self):
        with sqlite3.connect(f"file:{self.template.state}/queue.db?immutable=1", uri=True) as connection:
            doc = connection.execute("SELECT doc FROM jobs ORDER BY number LIMIT 1").fetchone()[0]
        connection.close()
        return json.loads(doc)["scan"]["path"]
