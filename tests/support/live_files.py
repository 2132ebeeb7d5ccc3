"""Test 22: scans that are being written, replaced or cut off while a service reads them."""

import os
import pathlib
import platform
import signal
import subprocess
import sys
import threading
import time

import blocked_fs
import xptychod

WRITER = """
import sys, time, h5py, numpy
sys.path.insert(0, sys.argv[1])
import scans
scan = scans.make()
path, way, seconds = sys.argv[2], sys.argv[3], float(sys.argv[4])
with h5py.File(path, "w", libver="latest") as f:
    g = f.create_group("scan")
    frames = g.create_dataset("frames", (0, 32, 32), "f4", maxshape=(None, 32, 32), chunks=(1, 32, 32))
    g["positions"] = scan.positions
    g.attrs.update(wavelength=scans.WAVELENGTH, detector_distance=scans.DISTANCE, detector_pitch=scans.PITCH)
    if way == "swmr":
        f.swmr_mode = True
    for i, frame in enumerate(scan.frames):
        frames.resize(i + 1, 0)
        frames[i] = frame
        f.flush()
        if i == 3:
            print("writing", flush=True)
        time.sleep(seconds / len(scan.frames))
"""


class Writer:
    """A program that writes a scan frame by frame for some seconds, "plain" or "swmr"."""

    def __init__(self, path, way="plain", seconds=2.0):
        self.process = subprocess.Popen([sys.executable, "-c", WRITER, str(pathlib.Path(__file__).parent), str(path), way, str(seconds)],
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "writing\n"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def wait(self):
        assert self.process.wait(60) == 0
        self.process.stdout.close()


def job_of(path, **members):
    return {"scan": {"path": str(path)}, "recon": {"iterations": 2}, **members}


def reasons_of(api, job_id):
    """(state, reason) of every change so far."""
    return [(e["state"], e["reason"]) for e in api.events(job_id, follow=0) if e["type"] == "state"]


def waits_for_a_writer(api, path, way, seconds):
    """A job submitted while the file is written waits and then reads the whole of it; returns seconds that it waited on."""
    writer = Writer(path, way, seconds)
    try:
        dry = api.post("/v1/jobs?dry_run=true", job_of(path))
        assert dry.status == 409 and dry.json()["type"].endswith(":dataset-busy"), dry
        job = api.submit(job_of(path))
        xptychod.wait_until(lambda: api.show(job["id"])["reason"] == "dataset-busy", "the job waits for its file")
        shown = api.show(job["id"])
        if shown["state"] == "queued":
            assert shown["pending"]["reason"] == "dataset-busy" and "writing" in shown["pending"]["detail"], shown
            assert "open for writing" in shown["detail"] and shown["started"] is None, shown
        writer.wait()
        closed = time.monotonic()
    finally:
        if writer.process.poll() is None:
            writer.kill()
    end = api.finish(job["id"])
    waited = time.monotonic() - closed
    assert end["state"] == "succeeded" and end["attempts"] == 0, end
    events = api.events(job["id"], follow=0)
    assert not [e for e in events if e["type"] == "resumed"], "nothing was repeated"
    return waited


def tells_a_writer_that_died(api, path):
    """Its mark is still in the file: waited for while that is fresh, then refused with what removes it."""
    writer = Writer(path, "plain", 30)
    writer.kill()
    job = api.submit(job_of(path))
    xptychod.wait_until(lambda: api.show(job["id"])["reason"] == "dataset-busy", "it could be a writer without locks")
    old = time.time() - 3600
    os.utime(path, (old, old))
    end = api.finish(job["id"])
    assert end["state"] == "failed" and end["reason"] == "dataset" and "h5clear" in end["detail"], end
    response = api.post("/v1/jobs", job_of(path))
    assert response.status == 422 and "h5clear" in response.text, response


# ----------------------------------------------------------------------- changed while it is read


def slow_reader(folder, seconds):
    """A program in the reader's place that takes its time between opening a scan and reading its frames."""
    script = pathlib.Path(folder) / "slow-reader"
    script.write_text("#!/bin/sh\nexec strace -f -qq -o /dev/null -e trace=memfd_create "
                      f"-e inject=memfd_create:delay_enter={int(seconds * 1e6)} {xptychod.program('xptycho-reader')} \"$@\"\n")
    script.chmod(0o755)
    return str(script)


MEMFD_CREATE = {"x86_64": "319", "aarch64": "279"}[platform.machine()]


def _open_in_reader(daemon, path):
    """Whether a reader has the scan open, knows what file that is, and is held before it reads."""
    for pid, name in xptychod.processes_marked(daemon.mark):
        if name == "xptycho-reader":
            try:
                links = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
                call = pathlib.Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").split()[0]
            except OSError:
                continue
            if str(path) in links and call == MEMFD_CREATE:
                return True
    return False


def refuses_what_changes(daemon, scan, path, way):
    """With a slow reader: replaced, appended to or written to after it was opened."""
    scan.write(path)
    answer = []
    ask = threading.Thread(target=lambda: answer.append(daemon.api.post("/v1/jobs", job_of(path))))
    ask.start()
    xptychod.wait_until(lambda: _open_in_reader(daemon, path), "the reader has the scan open")
    if way == "replaced":
        scan.write(str(path) + ".new", positions=scan.positions[::-1].copy())
        os.replace(str(path) + ".new", path)
    elif way == "appended":
        with open(path, "ab") as f:
            f.write(b"x" * 100)
    else:  # a writer that takes no locks
        with open(path, "r+b") as f:
            f.seek(-100, os.SEEK_END)
            f.write(b"y" * 100)
    ask.join(60)
    response = answer[0]
    assert response.status == 422 and response.json()["type"].endswith(":dataset-changed"), response
    assert ("replaced" if way == "replaced" else "changed") in response.text, response


# -------------------------------------------------------------------- a file system that is away


def answers(api, seconds):
    """Times that the API takes for a small answer, asked again and again for so long."""
    taken, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        assert api.get("/v1/version").status == 200
        taken.append(time.monotonic() - start)
    return taken


def lives_with_a_file_system_that_hangs(daemon, folder, probe_s, lost_max=4):
    """Readers that hang are given up at their deadline, so many are left lying, then scans are not read until they go.

    `folder` is a BlockedFolder with scan.h5, which is read at first.  Returns the times of answers meanwhile, in seconds."""
    api, path = daemon.api, folder.path / "scan.h5"
    assert api.finish(api.submit(job_of(path))["id"])["state"] == "succeeded"
    folder.block()
    taken = []
    for _ in range(lost_max):
        answer = []
        start = time.monotonic()
        ask = threading.Thread(target=lambda: answer.append(api.post("/v1/jobs", job_of(path))))
        ask.start()
        taken += answers(api, probe_s / 2)
        ask.join(60)
        assert answer[0].status == 422 and answer[0].json()["type"].endswith(":dataset-unresponsive"), answer
        assert time.monotonic() - start < probe_s + 10
    response = api.post("/v1/jobs", job_of(path))
    assert response.status == 503 and "do not answer" in response.text and response.headers["Retry-After"], response
    folder.unblock()
    xptychod.wait_until(lambda: not daemon.process_of("xptycho-reader"), "the readers that hung are gone")
    assert api.finish(api.submit(job_of(path))["id"])["state"] == "succeeded"
    return taken


def fails_a_job_whose_file_system_goes_away(daemon, folder):
    api, path = daemon.api, folder.path / "scan.h5"
    folder.block()
    response = api.post("/v1/jobs?probe=async", job_of(path))
    assert response.status == 201, response
    end = api.finish(response.json()["id"])
    folder.unblock()
    assert end["state"] == "failed" and end["reason"] == "dataset-unresponsive" and "within" in end["detail"], end


def blocked_folder(folder, scan_path):
    """A BlockedFolder that holds scan.h5, or why there is none."""
    why = blocked_fs.missing()
    if why:
        return None, why
    try:
        return blocked_fs.BlockedFolder(folder, {"scan.h5": pathlib.Path(scan_path).read_bytes()}), ""
    except OSError as error:
        return None, f"no file system can be mounted here: {error.strerror}"


def stops_while_a_file_system_hangs(daemon, folder):
    """The service leaves in order although a reader of its own cannot be killed; returns seconds."""
    folder.block()
    assert daemon.api.post("/v1/jobs", job_of(folder.path / "scan.h5")).status == 422
    assert daemon.process_of("xptycho-reader"), "it hangs still"
    start = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    status = daemon.process.wait(xptychod.DEADLINE_S)
    seconds = time.monotonic() - start
    folder.unblock()
    assert status == 0, status
    xptychod.wait_until(lambda: not xptychod.processes_marked(daemon.mark), "the reader that hung is gone")
    return seconds
