"""Results, and the state, on a file system that does not answer: FUSE spoken by hand, so that it can be told to hang."""

import json
import os
import pathlib
import platform
import sqlite3
import threading
import time

import pytest

import blocked_fs
import xptychod

SIZE = 3 << 20
OPENAT = {"x86_64": "257"}.get(platform.machine(), "56")


@pytest.fixture
def away(tmp_path):
    """A folder with one file of 3 MiB that hangs when it is told to."""
    if why := blocked_fs.missing():
        pytest.skip(why)
    try:
        folder = blocked_fs.BlockedFolder(tmp_path / "away", {"r.h5": bytes(range(256)) * (SIZE // 256)})
    except OSError as error:
        pytest.skip(f"mounting is not allowed: {error.strerror}")
    yield folder
    folder.close()


def test_the_state_is_refused_where_it_would_not_last(tmp_path, away):
    daemon = xptychod.Daemon(tmp_path / "d", "--state-dir", str(away.path))
    daemon.folder.mkdir()
    process = daemon.spawn()
    assert process.wait(60) == 78
    said = daemon.log.read_text()
    assert f"'{away.path}' is on FUSE" in said and "daemon.state_on_network" in said and "local disk" in said, said
    daemon.arguments.append("--state-on-network")
    process = daemon.spawn()  # it gets further, and no folder can be made in this one
    assert process.wait(60) == 1
    assert "jobs may be lost" in daemon.log.read_text() and "cannot be made" in daemon.log.read_text()


def move_result(daemon, job, file):
    """Makes the record name the file instead, as if it had been written there."""
    daemon.stop()
    database = sqlite3.connect(daemon.state / "queue.db")
    result = json.loads(database.execute("select result from jobs where id = ?", (job,)).fetchone()[0])
    status = file.stat()
    result.update(path=str(file), inode=status.st_ino, bytes=status.st_size, mtime_ns=status.st_mtime_ns)
    database.execute("update jobs set result = ? where id = ?", (json.dumps(result), job))
    database.commit()
    database.close()
    daemon.start()


@pytest.fixture
def far(daemon, away, scan_file):
    """A daemon with a finished job whose result is there."""
    job = daemon.api.submit({"scan": {"path": scan_file}, "recon": {"iterations": 1}})["id"]
    daemon.api.finish(job)
    move_result(daemon, job, away.path / "r.h5")
    daemon.data = f"/v1/jobs/{job}/result/data"
    return daemon


def fetch_in_background(api, path, count=1):
    answers = []

    def fetch():
        try:
            answers.append(api.get(path).status)
        except Exception as error:  # noqa: BLE001 - what came is what is looked at
            answers.append(type(error).__name__)

    threads = [threading.Thread(target=fetch, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, answers


def waits_in_the_kernel(pid):
    """Whether a thread of the process is opening a file, which takes no time where the file system answers."""
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/syscall"):
        try:
            if task.read_text().split()[0] == OPENAT:
                return True
        except OSError:
            continue
    return False


def slowest_of(api, count=20):
    """The longest time that the service took for an answer."""
    def one():
        begin = time.monotonic()
        assert api.get("/v1/queue").status == 200
        return time.monotonic() - begin

    return max(one() for _ in range(count))


def test_a_file_that_cannot_be_opened_holds_up_nobody_else(far, away):
    assert far.api.get(far.data).body == away.data[0]
    away.block(opens=True)
    threads, answers = fetch_in_background(far.api, far.data, 3)
    assert slowest_of(far.unix) < 2, "the loop does not wait for the file"
    for thread in threads:
        thread.join(60)
    assert answers == [503, 503, 503], answers
    assert "has not answered" in far.log.read_text()
    away.unblock()
    assert xptychod.wait_until(lambda: far.api.get(far.data).status == 200, "it is served again", 30)


def test_a_file_that_hangs_in_the_middle_holds_up_nobody_else(far, away):
    away.block()
    before = away.reads
    threads, answers = fetch_in_background(far.api, far.data, 2)
    xptychod.wait_until(lambda: away.reads >= before + 2, "both are being read")
    assert slowest_of(far.unix) < 2
    away.unblock()
    for thread in threads:
        thread.join(60)
    assert answers == [200, 200], "they go on where they were"


def test_one_user_has_few_of_them_and_a_stop_does_not_wait(far, away):
    away.block(opens=True)
    threads, answers = fetch_in_background(far.api, far.data, 16)
    refused = xptychod.wait_until(lambda: (a := far.api.get(far.data)).status == 503 and "limit" in a.text and a, "the limit is reached", 30)
    assert refused.headers["Retry-After"] and "by you" in refused.json()["detail"]
    far.process.terminate()
    xptychod.wait_until(lambda: "stopped at once" in far.log.read_text(), "the broker ends", 20)
    for thread in threads:
        thread.join(60)
    assert len(answers) == 16, "all have an answer or a closed connection"
    left, address = far.process, far.ready["http"]
    with pytest.raises(ConnectionRefusedError):
        xptychod.Api(address).get("/v1/version")
    far.start()  # lock, database and addresses are free
    assert left.poll() is None, "who waits for FUSE does not even die: the kernel keeps what is left of the process until then"
    assert far.api.get("/v1/jobs").json()["jobs"][0]["state"] == "succeeded"
    away.unblock()
    assert left.wait(30) == 0


def test_a_download_that_hangs_in_the_middle_keeps_nothing_from_the_next(far, away):
    away.block()
    before = away.reads
    threads, answers = fetch_in_background(far.api, far.data, 2)
    xptychod.wait_until(lambda: away.reads >= before + 2, "both are being read")
    left = far.process
    left.terminate()
    xptychod.wait_until(lambda: "stopped at once" in far.log.read_text(), "the broker ends", 20)
    for thread in threads:
        thread.join(60)
    far.start()
    assert left.poll() is None
    away.unblock()
    assert left.wait(30) == 0
    assert far.api.get(far.data).body == away.data[0]


def test_a_worker_that_cannot_be_killed_is_replaced(make_daemon, away, slow_scan_file, scan_file):
    daemon = make_daemon("--cancel-grace-s", "1", "--cuda", "none")
    job = daemon.api.submit({"scan": {"path": slow_scan_file}, "recon": {"iterations": 100}, "checkpoint": "off",
                             "output": {"path": str(away.path / "out.h5")}})["id"]
    daemon.api.wait_for_iteration(job, 1)
    away.block(opens=True)
    daemon.api.wait_for_iteration(job, 100)
    worker = daemon.pid_of("xptycho-worker")
    xptychod.wait_until(lambda: waits_in_the_kernel(worker), "the worker waits for the folder of its result")
    daemon.api.post(f"/v1/jobs/{job}/cancel")
    other = daemon.api.submit({"scan": {"path": scan_file}, "recon": {"iterations": 2}})["id"]
    assert daemon.api.finish(job)["state"] == "cancelled" and daemon.api.finish(other)["state"] == "succeeded", "others go on"
    assert waits_in_the_kernel(worker) and f"({worker}) was killed and is still there" in daemon.log.read_text()
    away.unblock()
    xptychod.wait_until(lambda: f"process {worker}, which was left behind, has ended" in daemon.log.read_text(), "it is reaped", 30)


def test_a_worker_that_cannot_be_killed_is_left_behind(make_daemon, away, slow_scan_file):
    daemon = make_daemon("--drain-s", "1", "--cuda", "none")
    job = daemon.api.submit({"scan": {"path": slow_scan_file}, "recon": {"iterations": 100}, "checkpoint": "off",
                             "output": {"path": str(away.path / "out.h5")}})["id"]
    daemon.api.wait_for_iteration(job, 1)
    away.block(opens=True)
    daemon.api.wait_for_iteration(job, 100)
    worker, broker = daemon.pid_of("xptycho-worker"), daemon.process
    xptychod.wait_until(lambda: waits_in_the_kernel(worker), "the worker waits for the folder of its result")
    begin = time.monotonic()
    broker.terminate()
    assert broker.wait(60) == 0 and time.monotonic() - begin < 30
    assert f"({worker}) was killed and is still there" in daemon.log.read_text()
    daemon.start()
    assert xptychod.alive(worker) or waits_in_the_kernel(worker), "it is there still"
    again = daemon.api.show(job)
    assert again["state"] in ("queued", "starting", "running"), again
    daemon.api.post(f"/v1/jobs/{job}/cancel")
    away.unblock()
    assert daemon.api.finish(job)["state"] in ("cancelled", "failed")
    xptychod.wait_until(lambda: not waits_in_the_kernel(worker), "it ends when the file system answers", 30)


def test_a_result_that_was_replaced_is_gone_and_a_pipe_is_none(daemon, scan_file, tmp_path):
    out = tmp_path / "r.h5"
    job = daemon.api.submit({"scan": {"path": scan_file}, "recon": {"iterations": 1}, "output": {"path": str(out)}})["id"]
    daemon.api.finish(job)
    path, whole = f"/v1/jobs/{job}/result/data", out.read_bytes()
    assert daemon.api.get(path).body == whole
    part = daemon.api.get(path, Range="bytes=7-1006")
    assert (part.status, part.body) == (206, whole[7:1007])
    assert daemon.api.call("HEAD", path).status == 200
    aside = out.rename(tmp_path / "aside")
    assert daemon.api.get(path).status == 410
    pathlib.Path(out).symlink_to(aside)
    assert daemon.api.get(path).status == 410, "not through a link"
    out.unlink()
    os.mkfifo(out)
    assert daemon.api.get(path).status == 410
