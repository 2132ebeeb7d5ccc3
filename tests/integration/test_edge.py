"""Who may do what, how much of it, and what happens at the limits."""

import os
import pathlib
import socket
import subprocess
import time
import uuid

import pytest

import callers
import conformance
import xptychod
from system_daemon import SystemDaemon

ADA, BOB, EVE = 4711, 4712, 4713


@pytest.fixture
def make_system(tmp_path, request):
    daemons = request.node.daemons = []

    def make(configuration="", *arguments, tokens=()):
        daemons.append(SystemDaemon(tmp_path / f"system{len(daemons)}", configuration, *arguments))
        for token in tokens:
            daemons[-1].add_token(*token)
        return daemons[-1].start()

    yield make
    for daemon in daemons:
        try:
            if daemon.process and daemon.process.poll() is None:
                daemon.stop()
        finally:
            daemon.clean_up()


def roots_of(*paths):
    return "[roots]\n" + "".join(f"data = {pathlib.Path(path).parent}\n" for path in paths)


def endless(path):
    return {"scan": {"path": path}, "recon": {"iterations": 100000}}


# ------------------------------------------------------------------------------------ who may


@pytest.fixture
def shop(make_system, scan_file):
    """Tokens of every kind, and a finished job of ada's."""
    daemon = make_system(roots_of(scan_file) + "[limits]\nrate = 0\n", tokens=(
        ("ada", ADA), ("ada-reads", ADA, "read"), ("bob", BOB), ("operator", EVE, "read,submit,admin"),
        ("old", ADA, "submit", "2020-01-01"), ("young", ADA, "submit", "2999-12-31T12:00:00Z")))
    daemon.job = daemon.api_of("ada").submit({"scan": {"path": scan_file}, "recon": {"iterations": 2}})["id"]
    daemon.api_of("ada").finish(daemon.job)
    return daemon


def operations(daemon):
    """(method, path with the job's id, whether it has one) of everything below /v1."""
    document = daemon.api_of("ada").get("/openapi.json").json()
    for path, item in document["paths"].items():
        for method in sorted(set(item) & {"get", "post", "put", "patch", "delete"}):
            if path.startswith("/v1/"):
                follow = "?follow=0" if path.endswith("/events") else ""
                yield method.upper(), path.replace("{id}", daemon.job).replace("{session}", "0" * 26) + follow, "{id}" in path


def ask(api, method, path, **headers):
    body = {} if method in ("POST", "PUT", "PATCH") else None
    return api.call(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})


def test_every_verb_asks_who_it_is(shop):
    url = shop.ready["http"]
    nobodies = {"no token": xptychod.Api(url), "unknown": xptychod.Api(url, "0" * 64), "expired": shop.api_of("old")}
    count = 0
    for method, path, _ in operations(shop):
        for name, api in nobodies.items():
            response = ask(api, method, path)
            assert response.status == 401 and response.headers["WWW-Authenticate"], (name, method, path, response)
        proxied = ask(xptychod.Api(url), method, path, X_Remote_User="ada", X_Forwarded_User="ada")
        assert proxied.status == 401, "the header of a proxy is no credential"
        for header, value in (("Origin", "http://evil.example"), ("Host", "evil.example")):
            response = ask(shop.api_of("ada"), method, path, **{header: value})
            assert response.status == 403, (header, method, path, response)
        count += 1
    assert count >= 15
    assert shop.api_of("ada").show(shop.job)["state"] == "succeeded", "nothing was deleted on the way"


def test_every_verb_by_every_kind_of_caller(make_system, scan_file):
    """The short form of reliability test 17; the long one measures the time that a comparison takes."""
    daemon = make_system(roots_of(scan_file) + "[limits]\nrate = 0\n", tokens=callers.TOKENS)
    job = daemon.api_of("ada").submit({"scan": {"path": scan_file}, "recon": {"iterations": 2}})["id"]
    daemon.api_of("ada").finish(job)
    assert callers.check_matrix(daemon, job) > 400


def test_a_token_that_reads_changes_nothing(shop):
    api = shop.api_of("ada-reads")
    for method, path, _ in operations(shop):
        response = ask(api, method, path)
        if method == "GET":
            assert response.status in (200, 204, 404), (method, path, response)
        elif path.startswith("/v1/session"):
            assert response.status in (201, 204, 404), "who reads may do so in a browser"
            assert response.status != 201 or response.json()["scopes"] == ["read"], (path, response)
        else:
            assert response.status == 403 and response.json()["type"].endswith(":forbidden"), (method, path, response)
    assert api.show(shop.job)["state"] == "succeeded"


def test_a_job_of_another_user_does_not_exist(shop):
    api = shop.api_of("bob")
    for method, path, of_job in operations(shop):
        response = ask(api, method, path)
        if of_job:
            assert response.status == 404 and shop.job not in response.json().get("job", ""), (method, path, response)
    assert api.get("/v1/jobs").json()["jobs"] == []
    assert shop.api_of("ada").show(shop.job)["state"] == "succeeded"


def test_an_operator_sees_and_deletes_everybodys_jobs(shop):
    api = shop.api_of("operator")
    assert [job["id"] for job in api.get("/v1/jobs").json()["jobs"]] == [shop.job]
    assert api.show(shop.job)["user"] == str(ADA)
    assert api.delete(f"/v1/jobs/{shop.job}").status == 204
    assert shop.api_of("ada").get(f"/v1/jobs/{shop.job}").status == 404


def test_whoami_says_who_and_what(shop):
    assert shop.api_of("young").get("/v1/whoami").json() == {
        "user": str(ADA), "uid": ADA, "scopes": ["read", "submit"], "token": "young", "expires": "2999-12-31T12:00:00.000Z", "session": None}
    assert shop.api_of("ada-reads").get("/v1/whoami").json()["scopes"] == ["read"]
    peer = shop.unix.get("/v1/whoami").json()
    assert peer["uid"] == os.geteuid() and peer["token"] is None and peer["scopes"] == ["read", "submit"]


def test_no_token_is_in_the_log(shop):
    for name in shop.secrets:
        shop.api_of(name).get("/v1/jobs")
    xptychod.Api(shop.ready["http"], "s3cr3t" * 8).get("/v1/jobs")
    for name, secret in shop.secrets.items():  # as somebody may who has misread the manual
        for path in (f"/{secret}", f"/v1/{secret}", f"/v1/jobs/{secret}", f"/v1/jobs?token={secret}", f"/v1/jobs?{secret}", f"/login?code={secret}",
                     f"/v1/jobs/{secret}/events", f"/v1/jobs?state={secret}", f"/v1/sessions/{secret}", f"/{secret}/x/y"):
            assert shop.api_of(name).get(path).status >= 400
            xptychod.Api(shop.ready["http"]).get(path)
        shop.api_of(name).get("/v1/jobs", Authorization=secret)
        shop.api_of(name).get("/v1/jobs", Authorization=f"Basic {secret}")
        shop.api_of(name).get("/v1/jobs", Cookie=f"xptycho-{shop.ready['http'].rpartition(':')[2]}={secret}")
        shop.api_of(name).post("/v1/jobs", {"scan": {"path": "/x"}}, Idempotency_Key=secret)
    for secret in (*shop.secrets.values(), "s3cr3t"):
        assert secret[:41] not in shop.log_text(), "what is left of it could be guessed"


def test_the_administrators_verbs_are_on_the_admin_socket_alone(shop):
    for verb in ("drain", "undrain", "reload", "dump"):
        assert shop.api_of("operator").post(f"/admin/{verb}").status == 404
        assert shop.unix.post(f"/admin/{verb}").status == 404
    assert shop.api_of("operator").get("/metrics").status == 404
    assert shop.admin.get("/v1/jobs").status == 404


def test_only_root_and_the_service_may_use_the_admin_socket(shop):
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    path = shop.ready["admin"]
    for folder in (shop.folder.parent, shop.folder, shop.runtime):
        folder.chmod(0o755)
    for parent in list(shop.folder.parents)[:-1]:
        parent.chmod(parent.stat().st_mode | 0o011)
    pathlib.Path(path).chmod(0o666)  # as a careless socket unit would
    done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", "--unix-socket", path, "http://localhost/admin/drain"],
                          user=65534, group=65534, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "403"


# ------------------------------------------------------------------------------------ odd HTTP


def test_bent_requests_get_one_answer_each_and_hide_no_other(shop):
    """The short form of reliability test 15; behind proxies: test_proxy.py."""
    host, tag = shop.ready["http"].removeprefix("http://"), uuid.uuid4().hex[:8]
    address, _, port = host.rpartition(":")
    connect = lambda: socket.create_connection((address, int(port)))  # noqa: E731
    wrong = [conformance.judge(case, conformance.exchange(connect(), case.data, case.closes, 5))
             for case in conformance.whole_set(host, shop.secrets["ada"], tag)]
    assert not any(wrong), "\n".join(filter(None, wrong))
    for case in conformance.mutated(host, shop.secrets["ada"], tag, 150, 15):
        found = conformance.statuses_of(conformance.exchange(connect(), case.data, case.closes, 5, 0.2))
        assert not [status for status in found if status >= 500 and status != 505], (case.data, found)
    shop.api_of("ada").get(f"/v1/seen-{tag}")
    assert f"/v1/seen-{tag}" in shop.log_text(), "a request that reaches the router is in the log"
    assert f"{conformance.HIDDEN}-{tag}" not in shop.log_text()


# ------------------------------------------------------------------------------------- how much


def test_a_user_who_changes_too_much_is_told_to_wait_and_others_are_not(make_system):
    daemon = make_system("[limits]\nrate = 2\nburst = 5\n", tokens=(("ada", ADA), ("bob", BOB)))
    ada, bob = daemon.api_of("ada"), daemon.api_of("bob")
    answers = [ada.post("/v1/jobs", {}) for _ in range(12)]
    assert [answer.status for answer in answers[:5]] == [422] * 5
    limited = [answer for answer in answers if answer.status == 429]
    assert len(limited) >= 4
    for answer in limited:
        assert answer.json()["type"] == "urn:xptychod:problem:rate-limited"
        assert int(answer.headers["Retry-After"]) == answer.json()["retry_after_s"] >= 1
    assert bob.post("/v1/jobs", {}).status == 422
    assert {ada.get("/v1/jobs").status for _ in range(20)} == {200}, "reading is free"
    xptychod.wait_until(lambda: ada.post("/v1/jobs", {}).status == 422, "time gives it back", 5)


def test_one_users_streams_do_not_use_up_anothers(make_system, slow_scan_file):
    daemon = make_system(roots_of(slow_scan_file) + "[limits]\nstreams_user = 3\n", tokens=(("ada", ADA), ("bob", BOB)))
    ada = daemon.api_of("ada")
    job = ada.submit(endless(slow_scan_file))["id"]
    streams = [ada.stream(job) for _ in range(3)]
    refused = ada.get(f"/v1/jobs/{job}/events")
    assert refused.status == 503 and refused.headers["Retry-After"], refused
    assert daemon.api_of("bob").get("/v1/events?follow=0").status == 200
    for stream in streams:
        stream.connection.close()
        stream.response.close()
    ada.post(f"/v1/jobs/{job}/cancel")
    ada_stream = xptychod.wait_until(lambda: ada.get(f"/v1/jobs/{job}/events").status == 200, "a place is free again", 40)
    assert ada_stream


def test_one_job_has_few_streams_of_one_user(make_system, slow_scan_file):
    daemon = make_system(roots_of(slow_scan_file), tokens=(("ada", ADA), ("root", 0, "admin")))
    ada = daemon.api_of("ada")
    job = ada.submit(endless(slow_scan_file))["id"]
    streams = [ada.stream(job) for _ in range(4)]
    try:
        refused = ada.get(f"/v1/jobs/{job}/events")
        assert refused.status == 503 and "on this job" in refused.json()["detail"] and refused.headers["Retry-After"], refused
        limits = ada.get("/v1/limits").json()
        assert limits["streams_job"] == 4 and limits["streams_user"] == {"limit": 64, "current": 4} == {**limits["streams"], "limit": 64}
        assert limits["class"] == "live" and limits["rate"]["limit"] == 10 and 45 <= limits["rate"]["left"] <= 50, limits
        assert ada.get("/v1/events?follow=0").status == 200, "all jobs are another matter"
        assert daemon.api_of("root").get(f"/v1/jobs/{job}/events?follow=0").status == 200, "and so is another user"
    finally:
        for stream in streams:
            stream.connection.close()
            stream.response.close()
    ada.post(f"/v1/jobs/{job}/cancel")


def test_a_root_of_a_group_is_for_that_group(make_system, scan_file, tmp_path):
    """By root and daemon, who have a group of their own name in every Debian."""
    (tmp_path / "out").mkdir()
    folder = pathlib.Path(scan_file).parent
    daemon = make_system(f"[roots]\ndata = @daemon:{folder}\nwrite = {tmp_path}/out\n[limits]\nclass_for = @daemon:batch\n",
                         tokens=(("member", "daemon"), ("stranger", ADA), ("operator", "root", "admin")))
    job = daemon.api_of("member").submit({"scan": {"path": scan_file}, "class": "batch", "recon": {"iterations": 2}})
    assert daemon.api_of("member").finish(job["id"])["state"] == "succeeded"
    assert daemon.api_of("member").get("/v1/limits").json()["class"] == "batch"
    for name in ("stranger", "operator"):
        refused = daemon.api_of(name).post("/v1/jobs", {"scan": {"path": scan_file}})
        assert refused.status == 422 and "outside" in refused.text, refused
    daemon.configure(f"[roots]\ndata = {folder}\nwrite = @daemon:{tmp_path}/out\n")
    assert daemon.admin.post("/admin/reload").status == 200
    for name, status in (("member", 201), ("stranger", 422)):
        answer = daemon.api_of(name).post("/v1/jobs", {"scan": {"path": scan_file}, "recon": {"iterations": 2}, "output": {"path": f"{tmp_path}/out/{name}.h5"}})
        assert answer.status == status, answer


def test_a_class_above_ones_own_is_refused_with_the_one_that_is_taken(make_system, scan_file):
    daemon = make_system(roots_of(scan_file) + "[limits]\nclass = normal\nclass_for = root:live\n",
                         tokens=(("ada", ADA), ("nightly", ADA, "submit,class=batch"), ("root", "root")))
    for name, most, refused in (("ada", "normal", ("live",)), ("nightly", "batch", ("live", "normal")), ("root", "live", ())):
        api = daemon.api_of(name)
        assert api.get("/v1/limits").json()["class"] == most
        job = {"scan": {"path": scan_file}, "recon": {"iterations": 1}}
        assert api.submit({**job, "class": most})["class"] == most
        for wanted in refused:
            answer = api.post("/v1/jobs", {**job, "class": wanted})
            assert answer.status == 403 and answer.json()["errors"][0]["pointer"] == "/class", answer
            assert f'"class": "{most}"' in answer.json()["detail"], "the way out"
            assert api.post("/v1/jobs?dry_run=true", {**job, "class": wanted}).status == 403


def test_a_job_that_waits_loses_the_root_of_a_group_with_the_group(make_system, scan_file, slow_scan_file):
    folder = pathlib.Path(scan_file).parent
    daemon = make_system(f"[roots]\ndata = {pathlib.Path(slow_scan_file).parent}\ndata = @daemon:{folder}\n", tokens=(("member", "daemon"),))
    api = daemon.api_of("member")
    first = api.submit(endless(slow_scan_file))["id"]
    waiting = api.submit({"scan": {"path": scan_file}, "recon": {"iterations": 2}})["id"]
    daemon.configure(f"[roots]\ndata = {pathlib.Path(slow_scan_file).parent}\ndata = @root:{folder}\n")
    assert daemon.admin.post("/admin/reload").status == 200
    api.post(f"/v1/jobs/{first}/cancel")
    ended = api.finish(waiting)
    assert (ended["state"], ended["reason"]) == ("failed", "dataset") and "outside" in ended["detail"], ended


def timed(call):
    begin = time.monotonic()
    return call(), time.monotonic() - begin


def test_at_the_limit_of_connections_health_answers_at_once_and_the_api_with_503(make_daemon, slow_scan_file):
    daemon = make_daemon("--connections-max", "12")
    job = daemon.unix.submit(endless(slow_scan_file))["id"]
    streams = [daemon.unix.stream(job) for _ in range(12)]
    try:
        refused, seconds = timed(lambda: daemon.unix.get("/v1/jobs"))
        assert refused.status == 503 and refused.headers["Retry-After"] and refused.headers["Connection"] == "close"
        assert seconds < 1
        for path in ("/livez", "/readyz", "/metrics"):
            best = min((timed(lambda: daemon.admin.get(path)) for _ in range(5)), key=lambda pair: pair[1])
            assert best[0].status == 200 and best[1] < 0.05, (path, best)
        assert daemon.api.get("/v1/jobs").status == 200, "TCP has places of its own"
    finally:
        for stream in streams:
            stream.connection.close()
            stream.response.close()
    xptychod.wait_until(lambda: daemon.unix.get("/v1/jobs").status == 200, "places are free again", 40)
    daemon.unix.post(f"/v1/jobs/{job}/cancel")


def test_connections_that_ask_nothing_make_room(make_daemon):
    daemon = make_daemon("--connections-max", "8")
    idle = []
    for _ in range(60):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(daemon.ready["unix"])
        idle.append(sock)
    _, seconds = timed(lambda: xptychod.wait_until(lambda: daemon.unix.get("/v1/version").status == 200, "the idle made room", 10))
    assert seconds < 8, "those that have just come are spared for a moment, as they are about to ask"
    for sock in idle:
        sock.close()


def test_a_part_of_the_log_can_be_asked_for(daemon, scan_file):
    job = daemon.api.submit({"scan": {"path": scan_file}, "recon": {"iterations": 2}})["id"]
    daemon.api.finish(job)
    whole = daemon.api.get(f"/v1/jobs/{job}/log").body
    part = daemon.api.get(f"/v1/jobs/{job}/log", Range="bytes=5-14")
    assert part.status == 206 and part.body == whole[5:15]
    assert part.headers["Content-Range"] == f"bytes 5-14/{len(whole)}"
    for bent in ("bytes=5-1", "bytes=99-9x", "bytes=1-2,4-5"):  # no ranges: all of it
        answer = daemon.api.get(f"/v1/jobs/{job}/log", Range=bent)
        assert answer.status == 200 and answer.body == whole, (bent, answer)
    for path, size in ((f"/v1/jobs/{job}/log", len(whole)), (f"/v1/jobs/{job}/result/data", daemon.api.show(job)["result"]["bytes"])):
        beyond = daemon.api.get(path, Range=f"bytes={size}-")
        assert beyond.status == 416 and beyond.headers["Content-Range"] == f"bytes */{size}", beyond
        assert beyond.json()["type"] == "urn:xptychod:problem:range-not-satisfiable"
        assert len(daemon.api.get(path, Range="bytes=-1").body) == 1


# ------------------------------------------------------------------------------ socket activation


class Activated(xptychod.Daemon):
    """Started with sockets of the manager's, as a socket unit does it."""

    def __init__(self, folder, sockets, *arguments):
        super().__init__(folder, *arguments)
        self.sockets = sockets

    def spawn(self):
        numbers = [sock.fileno() for _, sock in self.sockets]

        def hand_over():
            spare = [os.dup(number) for number in numbers]  # away from the places that they are to take
            spare = [number if number > 30 else os.dup2(number, 40 + i) for i, number in enumerate(spare)]
            for place, number in enumerate(spare):
                os.dup2(number, 3 + place)

        names = ":".join(name for name, _ in self.sockets)
        environment = dict(os.environ, LISTEN_FDS=str(len(numbers)), LISTEN_FDNAMES=names, **{xptychod.MARK: self.mark})
        with open(self.log, "ab") as log:
            return subprocess.Popen(["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *self.command()], stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=log, env=environment, close_fds=False, preexec_fn=hand_over)


def test_sockets_of_the_service_manager_are_used_and_outlive_the_service(tmp_path):
    path = tmp_path / "given.sock"
    local, tcp, other = socket.socket(socket.AF_UNIX), socket.socket(), socket.socket()
    local.bind(str(path))
    tcp.bind(("127.0.0.1", 0))
    other.bind(("127.0.0.1", 0))
    for sock in (local, tcp, other):
        sock.listen(16)
    daemon = Activated(tmp_path / "daemon", [("api", local), ("api-tcp", tcp), ("nonsense", other)])
    try:
        try:
            daemon.start()
        except AssertionError:
            if "libsystemd" in daemon.log_tail():
                pytest.skip("built without libsystemd")
            raise
        assert daemon.ready["unix"] == str(path)
        assert daemon.ready["http"] == f"http://127.0.0.1:{tcp.getsockname()[1]}"
        assert daemon.unix.get("/v1/version").status == daemon.api.get("/v1/version").status == 200
        assert "socket 'nonsense' of the service manager is not used" in daemon.log.read_text()
        daemon.stop()
        assert path.exists(), "the socket is the manager's"
        waiting = socket.socket(socket.AF_UNIX)  # while the service is away
        waiting.settimeout(xptychod.DEADLINE_S)
        waiting.connect(str(path))
        waiting.sendall(b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        daemon.start()
        assert waiting.recv(12) == b"HTTP/1.1 200"
        waiting.close()
        daemon.stop()
    finally:
        daemon.clean_up()
        for sock in (local, tcp, other):
            sock.close()
