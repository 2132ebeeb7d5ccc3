"""Test 21: hostile files, given to the reader alone and to a service that runs another job meanwhile."""

import collections
import ctypes
import json
import os
import pathlib
import re
import subprocess
import time

import hostile_files
import reader
import xptychod

LIMIT_S = 30
# what every program opens: its libraries, and what libc and the reader itself look up
SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/etc/ld.so.", "/proc/self/", "/proc/meminfo", "/proc/filesystems", "/dev/null", "/dev/urandom",
          "/sys/devices/system/", "/etc/localtime", "/usr/share/")
OPENED = re.compile(r'open(?:at2?)?\((?:(AT_FDCWD|\d+), )?"((?:[^"\\]|\\.)*)", .*\)\s+= \d+')


def landlock():
    """Whether the kernel confines the reader; without it a file outside may be opened, though nothing of it is read."""
    return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 1


def can_trace(folder):
    try:
        return subprocess.run(["strace", "-o", f"{folder}/probe", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def tracer(folder):
    """A program in the reader's place that writes what it opens to a file of its own in `folder`."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "traced-reader"
    libraries = f"-E ASAN_OPTIONS={os.environ['ASAN_OPTIONS']}" if "ASAN_OPTIONS" in os.environ else ""
    script.write_text(f"#!/bin/sh\nexec strace -f -qq {libraries} -e trace=open,openat,openat2,chdir -o {folder}/trace.$$ "
                      f"{xptychod.program('xptycho-reader')} \"$@\"\n")
    script.chmod(0o755)
    return str(script)


def opened_outside(folder, roots):
    """Paths that traced readers opened and that lie neither in a root nor among the system's own."""
    found = set()
    bad = [os.path.realpath(r) for r in roots]
    for trace in pathlib.Path(folder).glob("trace.*"):
        here = "/"
        for line in trace.read_text(errors="replace").splitlines():
            moved = re.search(r'chdir\("((?:[^"\\]|\\.)*)"\)\s+= 0', line)
            if moved:
                here = moved.group(1)
            match = OPENED.search(line)
            if not match:
                continue
            path = match.group(2)
            if path.startswith(SYSTEM) or path == os.path.dirname(xptychod.program("xptycho-reader")):
                continue
            whole = os.path.realpath(os.path.join(here, path))
            if not any(whole == r or whole.startswith(r + "/") for r in bad):
                found.add(whole)
    return found


class Outcome:
    """`what` is "refused", "accepted", "died", or "late": ended at the deadline, as the broker does."""

    def __init__(self, what, detail, seconds):
        self.what, self.detail, self.seconds = what, detail, seconds


def look(kind, path, roots, program=None):
    """One reader on one file."""
    body = json.dumps({"job": {"scan": {"path": str(path)}}, "roots": [str(r) for r in roots], "write_roots": None,
                       "output_path": None}).encode()
    start = time.monotonic()
    message = reader.HEADER.pack(reader.MAGIC, reader.VERSION, reader.TYPES[kind], len(body), 0, 0) + body
    try:
        packet, fds, _ = reader.send(message, timeout=LIMIT_S, program=program)
    except TimeoutError:
        return Outcome("late", "", LIMIT_S)
    seconds = time.monotonic() - start
    try:
        if not packet:
            return Outcome("died", "", seconds)
        header = reader.HEADER.unpack_from(packet)
        if header[2] == reader.TYPES["scan"]:
            return Outcome("accepted", "", seconds)
        problem = json.loads(os.pread(fds[-1], header[3], 0) if header[5] & 1 else packet[reader.HEADER.size:])["problem"]
        return Outcome("refused", problem["detail"], seconds)
    finally:
        for fd in fds:
            os.close(fd)


def look_both(path, roots, program=None):
    """Headers, and what is in them if they were taken."""
    first = look("probe", path, roots, program)
    return first if first.what != "accepted" else look("read", path, roots, program)


def check_set(made, roots, program=None):
    """Every file of hostile_files.build: refused with its words, in time.  Returns the slowest, in seconds."""
    slowest = 0
    for name, (path, words) in made.items():
        outcome = look_both(path, roots, program)
        assert outcome.what == "refused", (name, outcome.what)
        assert all(word in outcome.detail for word in words), (name, outcome.detail)
        assert outcome.seconds < LIMIT_S, (name, outcome.seconds)
        slowest = max(slowest, outcome.seconds)
    return slowest


def check_mutants(seeds, count, folder, program=None, seed=1):
    """Counts of outcomes of so many damaged files, and the slowest of those that were not ended, in seconds."""
    folder = pathlib.Path(folder)
    path, counts, slowest = folder / "mutant.h5", collections.Counter(), 0
    for name, data in hostile_files.mutants(seeds, count, seed):
        path.write_bytes(data)
        outcome = look_both(path, [folder], program)
        counts[outcome.what] += 1
        if outcome.what != "late":
            slowest = max(slowest, outcome.seconds)
        if outcome.what in ("late", "died"):
            print(f"{name}: {outcome.what}", flush=True)
    return counts, slowest


def through_the_service(daemon, paths, background):
    """Each path as a job while `background` runs: refused at once or failed by its dataset; the same processes go on.

    Returns reasons counted."""
    lasting = {"xptychod", "xptycho-worker"}
    before = {p for p in xptychod.processes_marked(daemon.mark) if p[1] in lasting}
    other = daemon.api.submit(background)["id"]
    reasons = collections.Counter()
    for path in paths:
        response = daemon.api.post("/v1/jobs", {"scan": {"path": str(path)}, "recon": {"iterations": 2}})
        if response.status == 201:
            end = daemon.api.finish(response.json()["id"])
            assert end["state"] == "succeeded" or (end["state"] == "failed" and end["detail"]), end
            reasons[end["reason"] or "none"] += 1
            assert end["reason"] in ("", "dataset", "dataset-unresponsive", "diverged", "refused"), end
        else:
            problem = response.json()
            assert response.status == 422 and problem["detail"], response
            reasons[problem["type"].rpartition(":")[2]] += 1
    assert daemon.api.show(other)["state"] in ("running", "starting", "queued", "succeeded"), daemon.api.show(other)
    daemon.api.post(f"/v1/jobs/{other}/cancel")
    assert daemon.api.finish(other)["state"] in ("cancelled", "succeeded")
    after = {p for p in xptychod.processes_marked(daemon.mark) if p[1] in lasting}
    assert before == after, (before, after)
    return reasons
