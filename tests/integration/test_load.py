"""What keeps the service answering under load: places for readers, descriptors, clients that dawdle."""

import concurrent.futures
import re
import resource
import socket
import subprocess
import time

import pytest

import xptychod

PROBES = 16  # readers that look at submissions at a time


def reader_after(tmp_path, before):
    """A reader that runs the real one after lines of shell; `running` has a file for each that runs."""
    running = tmp_path / "running"
    running.mkdir()
    path = tmp_path / "reader.sh"
    path.write_text(f'#!/bin/sh\ntouch "{running}/$$"\n{before}\n"{xptychod.program("xptycho-reader")}" "$@"\ncode=$?\n'
                    f'rm "{running}/$$"\nexit $code\n')
    path.chmod(0o755)
    return str(path)


def submit_all(pool, daemon, path, count):
    job = {"scan": {"path": path}, "recon": {"iterations": 1}}
    return [pool.submit(daemon.api.post, "/v1/jobs", job) for _ in range(count)]


def test_a_storm_of_submissions_starts_few_readers_at_a_time(make_daemon, tmp_path, scan_file):
    counts = tmp_path / "counts"
    daemon = make_daemon("--reader-program", reader_after(tmp_path, f'ls "{tmp_path}/running" | wc -l >> "{counts}"'))
    with concurrent.futures.ThreadPoolExecutor(48) as pool:
        answers = submit_all(pool, daemon, scan_file, 48)
        assert [answer.result().status for answer in answers] == [201] * 48
    seen = [int(line) for line in counts.read_text().split()]
    assert len(seen) >= 48
    assert 2 <= max(seen) < 2 * PROBES, "and the job that runs, and on a busy machine a few that took seconds"


def test_readers_that_hang_keep_nobody_from_submitting(make_daemon, tmp_path, scan_file):
    hang = tmp_path / "hang"
    hang.mkdir()
    daemon = make_daemon("--reader-program", reader_after(tmp_path, f"""
for i in $(seq {PROBES}); do
    if mkdir "{hang}/$i" 2>/dev/null; then
        while [ ! -e "{hang}/over" ]; do sleep 0.1; done
        break
    fi
done"""))
    with concurrent.futures.ThreadPoolExecutor(2 * PROBES) as pool:
        stuck = submit_all(pool, daemon, scan_file, PROBES)
        xptychod.wait_until(lambda: len(list(hang.iterdir())) == PROBES, "every place is taken by one that hangs")
        assert [answer.result().status for answer in submit_all(pool, daemon, scan_file, 4)] == [201] * 4
        assert not any(answer.done() for answer in stuck)
        (hang / "over").touch()
        assert [answer.result().status for answer in stuck] == [201] * PROBES


def test_a_service_that_could_not_hold_its_connections_does_not_start(tmp_path):
    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))

    command = [xptychod.program("xptychod"), "--user", "--port", "0", "--runtime-dir", str(tmp_path), "--state-dir", str(tmp_path)]
    done = subprocess.run(command, preexec_fn=few_files, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 78
    assert re.search(r"limits.connections 1256 needs \d+ open files, the system allows 1000; raise", done.stderr), done.stderr


def connect(daemon):
    host, _, port = daemon.ready["http"].removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), xptychod.DEADLINE_S)


def dropped(daemon, reason):
    return int(re.search(rf'http_dropped_total{{reason="{reason}"}} (\d+)', daemon.admin.get("/metrics").text)[1])


@pytest.mark.parametrize("part", ["head", "body"])
def test_requests_that_never_become_whole_make_room_for_those_that_are(make_daemon, part):
    daemon = make_daemon("--connections-max", "8")
    slow = []
    for _ in range(60):
        slow.append(connect(daemon))
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.api.token}\r\n"
        rest = "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{" if part == "body" else "X-Slow: "
        slow[-1].sendall((head + rest).encode())
    xptychod.wait_until(lambda: daemon.api.get("/v1/version").status == 200, "sooner than the deadlines of 10 s and 30 s", 5)
    assert {daemon.api.get("/v1/version").status for _ in range(20)} == {200}
    assert part == "body" or dropped(daemon, "room") >= 52, "some bodies are answered 503 when their head comes"
    for sock in slow:
        sock.close()


def test_the_head_of_a_request_has_a_deadline(make_daemon):
    daemon = make_daemon()
    with connect(daemon) as sock:
        begin = time.monotonic()
        sock.sendall(b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\n")
        while True:  # a byte a second keeps every time-out by inactivity away
            sock.settimeout(1)
            try:
                assert sock.recv(100) == b"", "no answer to half a request"
                break
            except TimeoutError:
                assert time.monotonic() - begin < 30
                sock.sendall(b"X")
            except ConnectionError:
                break
    assert time.monotonic() - begin > 9 and dropped(daemon, "deadline") == 1


def test_many_readers_of_one_job_get_the_same_in_each_form(make_daemon, slow_scan_file):
    daemon = make_daemon()
    job = daemon.unix.submit({"scan": {"path": slow_scan_file}, "recon": {"iterations": 100000}})["id"]

    def sse(_):
        return daemon.unix.events(job, accept="text/event-stream")

    def lines(_):
        return daemon.unix.events(job)

    def text(_):
        return daemon.unix.get(f"/v1/jobs/{job}/events", Accept="text/plain").text

    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        found = {form: [pool.submit(form, i) for i in range(10)] for form in (sse, lines, text)}
        xptychod.wait_until(lambda: "subscribers 30\n" in daemon.admin.get("/metrics").text, "everybody listens")
        daemon.unix.wait_for_iteration(job, 60)
        assert daemon.unix.post(f"/v1/jobs/{job}/cancel").status == 202
        every = {form: [future.result() for future in futures] for form, futures in found.items()}
    events = every[lines][0]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1)) and events[-1]["type"] == "end"
    assert all(other == events for other in every[sse] + every[lines])
    assert every[text][0].count("\niter") >= 60 and set(every[text]) == {every[text][0]}
