"""Start, stop, double start, who may call, and what the service says about itself."""

import fcntl
import json
import os
import pathlib
import re
import stat
import time

import pytest

import xptychod
from conftest import NO_GPU


def test_ready_file_names_every_address(daemon):
    assert daemon.ready["http"].startswith("http://127.0.0.1:")
    assert pathlib.Path(daemon.ready["unix"].removeprefix("unix:")).is_socket()
    assert pathlib.Path(daemon.ready["admin"].removeprefix("unix:")).is_socket()
    assert daemon.ready["pid"] == daemon.process.pid
    token = pathlib.Path(daemon.ready["token_file"])
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert len(token.read_text().strip()) >= 32


def test_others_can_write_no_file_of_a_daemon_whose_umask_allows_it(make_daemon, scan_file):
    before = os.umask(0)
    try:
        daemon = make_daemon("--zmq-router", "tcp://127.0.0.1:*", "--zmq-pub", "tcp://127.0.0.1:*")
    finally:
        os.umask(before)
    daemon.api.finish(daemon.api.submit({"scan": {"path": scan_file}, "recon": {"iterations": 2}})["id"])
    files = [path for folder in (daemon.runtime, daemon.state) for path in folder.rglob("*")]
    assert {"zmq.json", "ready.json", "queue.db", "events.ndjson"} <= {path.name for path in files}
    assert not [path for path in files if path.stat().st_mode & stat.S_IWOTH]


def test_stop_leaves_no_process_and_a_second_start_works(make_daemon):
    daemon = make_daemon()
    first = daemon.process.pid
    daemon.stop()
    daemon.start()
    assert daemon.process.pid != first
    assert daemon.api.get("/v1/version").status == 200


def test_second_daemon_on_the_same_state_refuses_and_the_first_goes_on(daemon):
    other = daemon.spawn()
    assert other.wait(xptychod.DEADLINE_S) not in (0, None)
    assert str(daemon.process.pid) in daemon.log_tail(), "the refusal names the process that holds the state"
    assert daemon.api.get("/v1/version").status == 200
    assert json.loads((daemon.runtime / "ready.json").read_text())["pid"] == daemon.process.pid


def test_of_many_started_at_once_one_serves(make_daemon):
    daemon = make_daemon()
    daemon.stop()
    rivals = [daemon.spawn() for _ in range(6)]
    serving = xptychod.wait_until(lambda: sum(rival.poll() is None for rival in rivals) == 1 and
                                  next(rival for rival in rivals if rival.poll() is None), "all but one have left")
    assert all(rival.returncode == 1 for rival in rivals if rival is not serving)
    daemon.process = serving
    daemon.ready = xptychod.wait_until(daemon._read_ready, "the one that is left is ready")
    assert daemon.api.get("/v1/version").status == 200


def test_the_lock_of_a_broker_that_is_gone_is_waited_for(make_daemon):
    """A child between its birth and its program holds it a moment longer than the broker that was killed."""
    daemon = make_daemon()
    daemon.kill()
    with open(daemon.state / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        starting = daemon.spawn()
        time.sleep(0.5)
        assert starting.poll() is None
    daemon.process = starting
    daemon.ready = xptychod.wait_until(daemon._read_ready, "it starts when the lock is free")


def test_livez_and_readyz_are_on_the_admin_listener(shared_daemon):
    assert shared_daemon.admin.get("/livez").json() == {"status": "ok"}
    xptychod.wait_until(lambda: shared_daemon.admin.get("/readyz").status == 200, "readyz answers 200")
    for path in ("/livez", "/readyz"):
        assert "job" not in shared_daemon.admin.get(path).text


def test_readyz_dips_while_the_worker_is_replaced(daemon):
    xptychod.wait_until(lambda: daemon.admin.get("/readyz").status == 200, "readyz answers 200")
    killed = daemon.kill_worker()
    xptychod.wait_until(lambda: daemon.pid_of("xptycho-worker") not in (None, killed), "a new worker runs")
    xptychod.wait_until(lambda: daemon.admin.get("/readyz").status == 200, "readyz answers 200 again")


def test_version_devices_and_schema(shared_daemon):
    version = shared_daemon.api.get("/v1/version").json()
    assert version["api"] == "v1" and version["version"]
    def listed():
        devices = {d["name"]: d for d in shared_daemon.api.get("/v1/devices").json()["devices"]}
        return len(devices) >= 2 and devices

    devices = xptychod.wait_until(listed, "both kinds are listed")
    assert devices["cpu"]["absent"] == "" and devices["cpu"]["threads"] >= 1 and devices["cpu"]["bytes_total"] > 0
    assert NO_GPU.search(devices["cuda"]["absent"])
    schema = shared_daemon.api.get("/v1/schema/job").json()
    assert schema["properties"]["scan"]["required"] == ["path"]
    assert "$ref" not in json.dumps(schema), "references are resolved"


def test_openapi_is_the_file_of_the_tree(shared_daemon):
    served = shared_daemon.api.get("/openapi.json").body
    tree = pathlib.Path(__file__).resolve().parents[2] / "protocol" / "openapi.json"
    assert json.loads(served) == json.loads(tree.read_text())


def test_every_path_of_openapi_is_served(shared_daemon):
    """Each method of each path answers with something other than 'no such resource' or 'no such method'."""
    document = shared_daemon.api.get("/openapi.json").json()
    for path, item in document["paths"].items():
        api = shared_daemon.api if path.startswith("/v1/") or path == "/openapi.json" else shared_daemon.admin
        if path == "/admin/drain":
            continue  # it would drain the daemon of the other tests: test_admin.py
        for method in set(item) & {"get", "post", "delete"}:
            concrete = re.sub(r"\{\w+\}", "01KG7Q3N6W8Y2M4T6V8X0Z1A3C", path)
            if path == "/v1/events":
                concrete += "?follow=0"
            response = api.call(method.upper(), concrete, {} if method == "post" else None)
            assert response.status != 405, (method, path)
            if response.status == 404:
                assert "{" in path, (method, path)
            assert str(response.status) in item[method]["responses"], (method, path, response)


# ------------------------------------------------------------------------------------- who asks


def test_tcp_without_a_token_is_401(shared_daemon):
    api = xptychod.Api(shared_daemon.ready["http"])
    for path in ("/v1/jobs", "/v1/version", "/v1/queue", "/v1/events"):
        response = api.get(path)
        assert response.status == 401, path
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
        assert response.headers["Content-Type"] == "application/problem+json"
        assert response.json()["type"] == "urn:xptychod:problem:unauthenticated"


@pytest.mark.parametrize("value", ["Bearer", "Bearer ", "Bearer wrong", "Basic dXNlcjpwYXNz", "bearer", "Bearer a b"])
def test_tcp_with_another_credential_is_401(shared_daemon, value):
    assert xptychod.Api(shared_daemon.ready["http"]).get("/v1/jobs", Authorization=value).status == 401


def test_a_wrong_token_is_401_on_the_unix_socket_too(shared_daemon):
    assert shared_daemon.unix.get("/v1/jobs").status == 200
    assert shared_daemon.unix.get("/v1/jobs", Authorization="Bearer wrong").status == 401


def test_the_token_is_in_no_log(shared_daemon):
    token = pathlib.Path(shared_daemon.ready["token_file"]).read_text().strip()
    shared_daemon.api.get("/v1/jobs")
    assert token not in shared_daemon.log.read_text(errors="replace")


def test_foreign_host_and_origin_are_refused_on_tcp(shared_daemon):
    assert shared_daemon.api.get("/v1/jobs", Host="evil.example").status in (400, 403, 421)
    assert shared_daemon.api.get("/v1/jobs", Origin="http://evil.example").status == 403


# ------------------------------------------------------------------------------- raw requests


def raw(daemon, data):
    """Sends bytes over the unix socket and returns all that comes back until the server closes or is silent."""
    connection = daemon.unix.connection()
    connection.timeout = 5
    connection.connect()
    received = b""
    with connection.sock as sock:
        sock.sendall(data)
        try:
            while chunk := sock.recv(65536):
                received += chunk
        except TimeoutError:
            pass
    return received


def test_two_framings_of_a_body_never_smuggle_a_request(shared_daemon):
    answer = raw(shared_daemon, b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                 b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1 ") == 1, answer


@pytest.mark.parametrize("path", ["/v1/jobs/..%2f..%2fetc", "/v1/jobs/%00", "/v1//jobs", "/v1/jobs/../version",
                                  "/v1/nothing", "//", "/v2/jobs", "/v1/jobs/%ff%fe"])
def test_paths_that_do_not_exist_are_problems(shared_daemon, path):
    response = shared_daemon.api.get(path)
    assert response.status in (400, 404), response
    assert response.headers["Content-Type"] == "application/problem+json"


def test_unknown_method_is_405(shared_daemon):
    response = shared_daemon.api.call("PUT", "/v1/jobs", {})
    assert response.status == 405 and response.json()["type"] == "urn:xptychod:problem:method-not-allowed"


def test_large_body_is_413(shared_daemon):
    response = shared_daemon.api.post("/v1/jobs", b" " * (2 << 20))
    assert response.status == 413, response


def test_body_of_another_type_is_415(shared_daemon):
    response = shared_daemon.api.post("/v1/jobs", b"scan=1", Content_Type="application/x-www-form-urlencoded")
    assert response.status == 415 and response.json()["type"] == "urn:xptychod:problem:unsupported-type"


def test_help_and_version_of_every_program():
    for name in ("xptychod", "xptycho-worker", "xptycho-reader", "xptycho-zmq", "xptycho"):
        shown = xptychod.run(name, "--help")
        assert shown.returncode == 0 and name in shown.stdout, (name, shown)
        assert xptychod.run(name, "--no-such-option").returncode == 2, name
