"""Test 6: the n-th system call or allocation of the broker or a worker fails, in start, submit, stream, cancel and stop.

Shared by tests/integration/test_torture.py and tests/soak/06_torture.py.
"""

import json
import os
import re
import shutil
import signal
import sqlite3

import faults
import xptychod

SANITIZER = re.compile(r"(ERROR: (?!Leak)\w*Sanitizer|runtime error:)[^\n]*")
# json_pack and glibc's regular expressions keep what they were given or have made when an allocation fails: some kilobytes once.
LEAK = "ERROR: LeakSanitizer"
# HDF5 1.10.8 uses names of a property list after it freed them when a copy of the list failed; glibc 2.36 does not get over a lack of
# memory as it looks up the first name of a user, which the broker does as it starts.
LIBRARY = re.compile(r"H5MM_xfree|__nss_passwd_lookup|__nss_database_get")
DEADLINE_S = 40
PATIENCE_S = 10  # of a client that follows a job; a heartbeat after 15 s tells that it waits in vain
PROGRAMS = ("xptychod", "xptycho-worker", "xptycho-reader")
LOST = (OSError, EOFError, ValueError, AssertionError)  # whatever a client sees of a service that is told to fail


class Faulty(faults.FaultyDaemon):
    """With the worker that follows a script, which is quick, unless the real one is the program under test."""

    def __init__(self, folder, program):
        super().__init__(folder, *([] if program == "xptycho-worker" else ["--worker-program", faults.FAKE_WORKER]), "--cancel-grace-s", "5", "--drain-s", "5")
        (self.folder / "script.json").parent.mkdir(parents=True, exist_ok=True)
        (self.folder / "script.json").write_text(json.dumps({"seconds": 0.005}))

    def spawn(self):
        os.environ["XP_FAKE_WORKER"] = str(self.folder / "script.json")
        return super().spawn()

    def process_of(self, name):
        return True  # a worker may come and go, and be a script


def rule(kind, error, program, n=1, stack=None):
    """XP_FAULT for the n-th call, of those with these callers; the next worker or reader is sound."""
    return f"{kind}:{n}:{error}:{f'stack={stack}:' if stack else ''}in={program}{'' if program == 'xptychod' else ':once'}"


def spoilt(text):
    """What a library did not get over: "library" in a worker that is replaced, "leak"; else None.  What is ours is an AssertionError."""
    found = SANITIZER.search(text)
    if not found:
        return "leak" if LEAK in text else None
    assert LIBRARY.search(text[found.start():]), found.group(0)
    return "library"


def scenario(daemon, scan_file):
    """Everything once; returns the jobs that were acknowledged, and what a client has waited for in vain."""
    known, vain = [], []

    def quietly(call):
        try:
            return call()
        except LOST as error:
            if isinstance(error, TimeoutError) or "does not end in time" in str(error):
                vain.append(repr(error))
            return None

    def submit(iterations, name):
        answer = api.post("/v1/jobs", {"scan": {"path": scan_file}, "recon": {"iterations": iterations}, "name": name,
                                              "checkpoint_every_s": 0, "preview_every_s": 0.1})
        if answer.status == 201:
            known.append(answer.json()["id"])
            return known[-1]
        assert answer.status in (400, 422, 500, 503, 507), answer
        return None

    def watch(job_id, most):
        with api.stream(job_id, accept="text/event-stream", deadline_s=PATIENCE_S) as stream:
            for count, _ in enumerate(stream):
                if count > most:
                    break

    def stranger():
        answer = xptychod.Api(api.address, "0" * 64, api.timeout).post("/v1/jobs", {"scan": {"path": scan_file}, "name": "stranger"})
        if answer.status < 400:
            raise RuntimeError(f"a caller without a token got {answer}")

    api = daemon.api
    api.timeout = 20
    quietly(stranger)
    first = quietly(lambda: submit(4, "short"))
    second = quietly(lambda: submit(100000, "long"))
    if first:
        quietly(lambda: watch(first, 1000))
        quietly(lambda: api.get(f"/v1/jobs/{first}/result"))
    if second:
        quietly(lambda: watch(second, 6))
        quietly(lambda: api.post(f"/v1/jobs/{second}/cancel"))
        quietly(lambda: watch(second, 1000))
    for path in ("/v1/jobs", "/v1/queue", "/v1/limits", "/v1/devices", "/readyz"):
        quietly(lambda path=path: api.get(path))
    return known, vain


def stop(daemon):
    """SIGTERM; the exit status, or "hung"."""
    if daemon.process.poll() is None:
        daemon.process.send_signal(signal.SIGTERM)
    try:
        return daemon.ended(DEADLINE_S)
    except Exception:  # noqa: BLE001, it is judged by the caller
        daemon.process.kill()
        return "hung"


def torture(folder, scan_file, fault, program):
    """One round; says how the service ended: its exit status.  What must not be is an AssertionError."""
    daemon = Faulty(folder, program)
    daemon.fault = fault
    try:
        return _torture(daemon, scan_file)
    except Exception as error:
        raise AssertionError(f"{fault}: {type(error).__name__}: {error}\n{daemon.log_tail(60)}\n{daemon.callers()}") from error
    finally:
        daemon.clean_up()
        shutil.rmtree(daemon.folder, ignore_errors=True)


def _torture(daemon, scan_file):
    known, vain = [], []
    try:
        daemon.start()
        known, vain = scenario(daemon, scan_file)
    except AssertionError:
        pass  # it did not start
    status = stop(daemon)
    text = daemon.log.read_text(errors="replace")
    found = spoilt(text)
    if found == "library" or (status not in (0, 1, 78) and not known and LIBRARY.search(daemon.callers())):
        return "library"
    assert status in (0, 1, 78) or found, f"the broker ended with {status}"
    assert not vain, f"something was lost, and nobody told: {vain}"
    if daemon.fault == "":
        return status
    daemon.fault = ""
    daemon.start()
    names = [job["name"] for job in daemon.api.get("/v1/jobs").json()["jobs"]]
    assert len(names) == len(set(names)) <= 2, f"one request, one job: {names}"
    for job_id in known:
        daemon.api.post(f"/v1/jobs/{job_id}/cancel")  # a wish that was lost, or a job that is over
        done = daemon.api.finish(job_id)
        assert done["state"] in ("succeeded", "failed", "cancelled"), done
        events = daemon.api.events(job_id)
        assert [e["type"] for e in events].count("end") == 1, events[-6:]
    daemon.stop()
    connection = sqlite3.connect(daemon.state / "queue.db")
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()
    return spoilt(daemon.log.read_text(errors="replace")) or status


def stacks(folder, scan_file, program, rounds=5):
    """Where the program calls from, in some undisturbed rounds, whose threads meet in different orders: {"any": [...], "alloc": [...]}
    of (stack, call)."""
    found = {"any": {}, "alloc": {}}
    for _ in range(rounds):
        daemon = Faulty(folder, program)
        daemon.note_stacks = True
        try:
            assert _torture(daemon, scan_file) == 0, daemon.log_tail()
            for line in daemon.stacks.read_text().splitlines():
                name, kind, stack, call = line.split()
                if name == program:
                    found[kind].setdefault(stack, call)
        finally:
            daemon.clean_up()
            shutil.rmtree(daemon.folder, ignore_errors=True)
    return {kind: sorted(of_kind.items()) for kind, of_kind in found.items()}


def count(folder, scan_file, program):
    """Calls of an undisturbed round: {"any": n, "alloc": n} of the program under test."""
    daemon = Faulty(folder, program)
    try:
        assert _torture(daemon, scan_file) == 0, daemon.log_tail()
        lines = [line.split() for line in daemon.counts.read_text().splitlines()]
        return {key: max(int(v) for line in lines if line[0] == program for k, _, v in [part.partition("=") for part in line[2:]] if k == key)
                for key in ("any", "alloc")}
    finally:
        daemon.clean_up()
        shutil.rmtree(daemon.folder, ignore_errors=True)
