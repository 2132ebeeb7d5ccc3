"""Admission against real runs: random scans, the needs that are stated, limits around them, what the worker really takes.

Used by tests/integration/test_admission.py with a few scans and by tests/soak/23_memory.py with many."""

import json
import pathlib
import random

import scans
import xptychod

MIB = 1 << 20
RELAY = pathlib.Path(__file__).resolve().parent / "memory_worker.py"


class Machine:
    """A daemon whose worker says of its memory what is told here."""

    def __init__(self, folder, *arguments, total=64 << 30, free=48 << 30, option="--worker-program", **environment):
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "memory.json"
        self.wishes = {}
        self.say(total=total, free=free)
        self.daemon = xptychod.Daemon(folder / "daemon", option, str(RELAY), *arguments)
        self.daemon.environment = {"XP_MEMORY_FILE": str(self.file), **environment}

    def say(self, total=None, free=None, device="cpu", **others):
        told = self.wishes.setdefault("devices", {}).setdefault(device, {})
        told.update({name: value for name, value in (("bytes_total", total), ("bytes_free", free)) if value is not None})
        self.wishes.update(others)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.wishes))
        new.replace(self.file)

    def settle(self, what):
        """Waits until the broker has heard it: what(limits()["memory"]) holds."""
        xptychod.wait_until(lambda: what(self.daemon.api.get("/v1/limits").json()["memory"]), "the worker's word on memory")


def random_job(rng, path, modes):
    job = {"name": "memory", "scan": {"path": path}, "model": {"probe_modes": modes}, "preview_every_s": 0.1,
           "recon": {"iterations": modes + 2, "mode_schedule": list(range(2, modes + 1))}}
    if rng.random() < 0.3:
        job["devices"] = {"devices": ["cpu"] * rng.randint(1, 3)}
    return job


def random_scan(rng, folder, number):
    n, points = 2 * rng.randint(12, 48), rng.randint(4, 13)
    return scans.make(n=n, points=points, step=rng.randint(2, n // 3), seed=number).write(folder / f"scan{number}.h5")


def resident_peak(pid):
    status = pathlib.Path("/proc", str(pid), "status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) << 10


def forget_peak(pid):
    pathlib.Path("/proc", str(pid), "clear_refs").write_text("5")


def check_refusal(machine, job, needs, total):
    """The machine has `total` bytes, too few: the arithmetic, and that each suggestion is admitted."""
    api = machine.daemon.api
    machine.say(total=total, free=total)
    machine.settle(lambda memory: memory["host_bytes"] == total // 100 * 95)
    answer = api.post("/v1/jobs?dry_run=true", job)
    assert answer.status == 422, answer
    problem = answer.json()
    assert problem["type"] == "urn:xptychod:problem:insufficient-device-memory", answer
    required = needs["device_bytes"] + needs["host_bytes"]
    available = total // 100 * 95
    wanted = {"resource": "host-memory", "required_bytes": required, "available_bytes": available,
              "shortfall_bytes": required - available}
    assert len(problem["resources"]) == 1 and problem["resources"][0].items() >= wanted.items(), (wanted, problem)
    assert {k: problem[k] for k in ("required_bytes", "available_bytes", "shortfall_bytes")}.items() <= wanted.items()
    for suggestion in problem["suggestions"]:
        change = suggestion["change"]
        changed = {**job, "model": {**job["model"], **change.get("model", {})}, "recon": {**job["recon"], **change.get("recon", {})}}
        assert api.post("/v1/jobs?dry_run=true", changed).status == 200, (suggestion, changed)
    return len(problem["suggestions"])


def check_wait(machine, job, needs, total):
    """A stranger holds all but a byte of what is needed: the job waits and says so; the stranger goes and it runs."""
    api = machine.daemon.api
    required = needs["device_bytes"] + needs["host_bytes"]
    machine.say(total=total, free=required - 1)
    machine.settle(lambda memory: memory["free_bytes"] == required - 1)
    job_id = api.submit(job)["id"]
    pending = api.show(job_id)["pending"]
    assert pending["reason"] == "foreign-process" and "free" in pending["detail"], pending
    assert pending["estimated_start"] is None and not pending["blocked_by"] and not pending["blocked_by_hidden"], pending
    pid = machine.daemon.pid_of("xptycho-worker")
    before = resident_peak(pid)
    forget_peak(pid)
    idle = resident_peak(pid)
    machine.say(free=total)
    done = api.finish(job_id)
    assert done["state"] == "succeeded" and done["attempts"] == 0, done
    assert before >= idle
    taken = resident_peak(pid) - idle
    assert taken <= required, f"the worker took {taken} bytes for a job that was admitted for {required}"
    result = done["result"]["bytes"]
    assert result <= needs["result_bytes"], f"the result has {result} bytes and was reckoned with {needs['result_bytes']}"
    return taken / required, result / needs["result_bytes"]


def run(machine, folder, rounds, seed, say=lambda text: None):
    """Figures of so many random scans: refusals checked, suggestions, largest parts of what was reckoned with."""
    rng = random.Random(seed)
    api = machine.daemon.api
    folder.mkdir(parents=True, exist_ok=True)
    suggested, memory, disk = 0, [], []
    total = 8 << 30
    for i in range(rounds):
        path = random_scan(rng, folder, i)
        job = random_job(rng, path, rng.choice((1, 2, 3, 4, 4)))
        machine.say(total=total, free=total)
        machine.settle(lambda heard: heard["host_bytes"] == total // 100 * 95)
        verdict = api.post("/v1/jobs?dry_run=true", job)
        assert verdict.status == 200, verdict
        needs = verdict.json()["needs"]
        required = needs["device_bytes"] + needs["host_bytes"]
        for part in (rng.uniform(0.05, 0.5), rng.uniform(0.5, 0.99)):
            suggested += check_refusal(machine, job, needs, int(required * part))
        taken, written = check_wait(machine, job, needs, total)
        memory.append(taken)
        disk.append(written)
        pathlib.Path(path).unlink()
        say(f"{i + 1}: {required >> 20} MiB reckoned, {taken:.0%} of it taken, {written:.0%} of the result's bytes")
    return {"scans": rounds, "refusals": 2 * rounds, "suggestions": suggested, "most memory taken": max(memory), "least memory taken": min(memory),
            "most of a result": max(disk)}
