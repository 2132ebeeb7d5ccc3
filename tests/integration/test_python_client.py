"""client/python/xptycho_client.py and its examples, against the real daemon."""

import ast
import builtins
import inspect
import json
import os
import pathlib
import socket
import socketserver
import subprocess
import sys
import threading

import pytest

import xptychod

PYTHON = pathlib.Path(__file__).resolve().parents[2] / "client" / "python"
sys.path.insert(0, str(PYTHON))

import xptycho_client  # noqa: E402
from xptycho_client import Client, Error, Refused, Unreachable, WaitTimeout  # noqa: E402

ID = "01KG7Q3N6W8Y2M4T6V8X0Z1A3C"


@pytest.fixture(autouse=True)
def _no_daemon_of_the_caller(monkeypatch, tmp_path):
    for name in ("XPTYCHO_SERVER", "XPTYCHO_TOKEN", "XPTYCHO_TOKEN_FILE", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def client(shared_daemon):
    return Client(str(shared_daemon.runtime))


def job_of(path, iterations=4, **more):
    return {"scan": {"path": path}, "recon": {"iterations": iterations}, **more}


# ------------------------------------------------------------------------------------------ calls


def test_a_job_from_submission_to_its_file(client, shared_daemon, scan_file, tmp_path):
    job = client.submit(job_of(scan_file, name="from python"))
    ended = client.wait(job["id"], timeout=60)
    assert (ended["state"], ended["name"], ended["terminal"]) == ("succeeded", "from python", True)
    assert client.show(job["id"]) == ended
    result = client.result(job["id"])
    assert result == ended["result"] and result["iterations"] == 4
    client.download(job["id"], tmp_path / "recon.h5")
    assert (tmp_path / "recon.h5").read_bytes() == pathlib.Path(result["path"]).read_bytes()
    client.download(job["id"], tmp_path / "phase.png", "preview.png?what=object_phase")
    assert (tmp_path / "phase.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["phase.png", "recon.h5"]


def test_a_key_makes_one_job_of_two_submissions(client, scan_file):
    first = client.submit(job_of(scan_file), "proposal-1-tile-2")
    assert client.submit(job_of(scan_file), idempotency_key="proposal-1-tile-2")["id"] == first["id"]
    assert client.submit(job_of(scan_file))["id"] != client.submit(job_of(scan_file))["id"]
    with pytest.raises(Refused) as refused:
        client.submit(job_of(scan_file, iterations=5), "proposal-1-tile-2")
    assert refused.value.type == "idempotency-conflict"


def test_events_come_once_in_order_and_from_any_number(client, shared_daemon, scan_file):
    job = client.submit(job_of(scan_file))["id"]
    events = list(client.events(job))
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert events == shared_daemon.api.events(job)
    assert list(client.events(job, from_seq=4)) == events[3:]
    assert list(client.events(job, from_seq=len(events) + 1)) == []


def test_what_is_refused_carries_the_problem_document(client, scan_file, tmp_path):
    with pytest.raises(Refused) as refused:
        client.submit({"scan": {"path": scan_file}, "recon": {"interations": 3, "relaxation": 2}})
    assert (refused.value.status, refused.value.type) == (422, "invalid-job")
    assert [e["pointer"] for e in refused.value.errors] == ["/recon/interations", "/recon/relaxation"]
    assert refused.value.problem["type"] == "urn:xptychod:problem:invalid-job"
    assert "/recon/interations: " in str(refused.value) and "'iterations'" in str(refused.value)
    with pytest.raises(Refused) as refused:
        client.dry_run(job_of(str(tmp_path / "none.h5")))
    assert refused.value.type == "dataset"
    for call in (client.show, client.result, client.cancel, client.wait, lambda id: next(client.events(id))):
        with pytest.raises(Refused) as refused:
            call(ID)
        assert (refused.value.status, refused.value.type) == (404, "not-found")


def test_a_document_that_is_too_large_is_refused_and_not_tried_again(client, scan_file):
    for size in (1 << 20, 8 << 20):
        with pytest.raises(Refused) as refused:
            client.submit({"scan": {"path": scan_file}, "name": "x" * size})
        assert (refused.value.status, refused.value.type) == (413, "too-large")


def test_a_result_is_refused_before_it_exists(client, slow_scan_file):
    job = client.submit(job_of(slow_scan_file, 100000))["id"]
    with pytest.raises(Refused) as refused:
        client.result(job)
    assert refused.value.type == "result-not-ready" and refused.value.retry_after > 0
    with pytest.raises(WaitTimeout) as late:
        client.wait(job, timeout=0.3)
    assert isinstance(late.value, TimeoutError) and job in str(late.value) and "0.3 s" in str(late.value)
    client.cancel(job)
    assert client.wait(job, 60)["state"] == "cancelled"
    assert client.cancel(job)["state"] == "cancelled"


def test_lists_are_paged_without_the_caller_noticing(client, scan_file, monkeypatch):
    made = [client.submit(job_of(scan_file, 1, name=f"page {i}"))["id"] for i in range(5)]
    for job in made:
        client.wait(job, 60)
    assert [job["id"] for job in client.list(limit=3)] == made[:1:-1]
    call, pages = client._call, []

    def small_pages(method, path, *rest):
        pages.append(path)
        return call(method, path.replace("limit=200", "limit=2"), *rest)

    monkeypatch.setattr(client, "_call", small_pages)
    everything = [job["id"] for job in client.list()]
    assert everything[:5] == made[::-1] and len(pages) >= 3 and len(set(everything)) == len(everything)
    assert made[0] not in [job["id"] for job in client.list(["queued", "running"])]


def test_an_id_that_is_none_never_becomes_a_path(client):
    for call in (client.show, client.result, client.cancel, client.wait, lambda id: next(client.events(id))):
        for wrong in ("", "../limits", ID.lower(), ID + "\n"):
            with pytest.raises(Error, match="no job id"):
                call(wrong)


def test_numbers_that_are_none_are_not_sent(client, scan_file):
    with pytest.raises(ValueError):
        client.submit({"scan": {"path": scan_file}, "recon": {"relaxation": float("nan")}})


# ------------------------------------------------------------------------------------- the daemon


def test_the_daemon_is_found_as_the_command_finds_it(shared_daemon, monkeypatch, tmp_path):
    ready = shared_daemon.ready
    unix = f"unix:{ready['unix']}"
    assert Client().server == "unix:/run/xptycho/api.sock"
    for place, name in ((tmp_path / "s/xptycho/run", "XDG_STATE_HOME"), (tmp_path / "r/xptycho", "XDG_RUNTIME_DIR")):
        place.mkdir(parents=True)
        (place / "ready.json").write_text(json.dumps({**ready, "unix": f"/{name}.sock"}))
        monkeypatch.setenv(name, str(place.parents[1] if name == "XDG_STATE_HOME" else place.parent))
        assert Client().server == f"unix:/{name}.sock"
    monkeypatch.setenv("XPTYCHO_SERVER", str(shared_daemon.runtime))
    assert Client().server == unix
    for server in (unix, ready["unix"], str(shared_daemon.runtime / "ready.json")):
        assert Client(server).server == unix
    ours = subprocess.run([xptychod.program("xptycho"), "version", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(ours.stdout)["server"] == Client().server


def test_tcp_takes_the_token_of_the_ready_file_that_lists_it(shared_daemon, monkeypatch, tmp_path):
    ready = shared_daemon.ready
    token = pathlib.Path(ready["token_file"]).read_text()
    with pytest.raises(Refused) as refused:
        list(Client(ready["http"]).list(limit=1))
    assert refused.value.type == "unauthenticated"
    (tmp_path / "xptycho").mkdir()
    (tmp_path / "xptycho/ready.json").write_text(json.dumps(ready))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    list(Client(ready["http"]).list(limit=1))
    with pytest.raises(Refused):  # another address: the token of this daemon is not for it
        list(Client(ready["http"].replace("127.0.0.1", "localhost")).list(limit=1))
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    list(Client(ready["http"], token=token).list(limit=1))
    list(Client(ready["http"], token_file=ready["token_file"]).list(limit=1))
    monkeypatch.setenv("XPTYCHO_TOKEN_FILE", ready["token_file"])
    list(Client(ready["http"]).list(limit=1))
    monkeypatch.setenv("XPTYCHO_TOKEN", "wrong")
    with pytest.raises(Refused):
        list(Client(ready["http"]).list(limit=1))


def test_what_cannot_be_an_address_or_a_token_says_so(tmp_path):
    for server in ("ftp://somewhere", "unix:relative", "http://", "http://host/path"):
        with pytest.raises(Error, match="give http://HOST:PORT"):
            Client(server)
    with pytest.raises(Unreachable, match="ready.json"):
        Client(str(tmp_path))
    (tmp_path / "ready.json").write_text("{}")
    with pytest.raises(Error, match="neither 'unix' nor 'http'"):
        Client(str(tmp_path))
    with pytest.raises(Error, match="one word"):
        Client("http://127.0.0.1:1", token="two\r\nlines: yes")
    with pytest.raises(Error, match="token file"):
        Client("http://127.0.0.1:1", token_file=tmp_path / "none")


# ------------------------------------------------------------------------------ lost connections


def test_nobody_there_is_told_at_once(tmp_path):
    client = Client(f"unix:{tmp_path}/none.sock", retry_s=3600)
    for call in (lambda: client.submit({}), lambda: client.wait(ID), lambda: next(client.events(ID)),
                 lambda: client.download(ID, tmp_path / "x")):
        with pytest.raises(Unreachable, match="none.sock"):
            call()


class BreakingServer(socketserver.ThreadingTCPServer):
    """Hands each connection on to the daemon, but cuts what comes back after so many bytes: one number a connection."""

    daemon_threads = allow_reuse_address = True

    def __init__(self, target, cuts):
        self.target, self.cuts, self.seen = target, list(cuts), []
        super().__init__(("127.0.0.1", 0), Relay)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Relay(socketserver.BaseRequestHandler):
    def handle(self):
        left = self.server.cuts.pop(0) if self.server.cuts else 1 << 60
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
            daemon.connect(self.server.target)
            threading.Thread(target=self.forward, args=(daemon,), daemon=True).start()
            while True:  # also where nothing is to come back, the daemon has answered before the line is cut
                data = daemon.recv(65536)
                self.request.sendall(data[:left])
                left -= len(data)
                if not data or left <= 0:
                    break
            daemon.shutdown(socket.SHUT_RDWR)

    def forward(self, daemon):
        try:
            while data := self.request.recv(65536):
                self.server.seen.append(data)
                daemon.sendall(data)
        except OSError:
            pass


@pytest.fixture
def breaking(shared_daemon):
    servers = []

    def make(*cuts):
        servers.append(BreakingServer(shared_daemon.ready["unix"], cuts))
        token = pathlib.Path(shared_daemon.ready["token_file"]).read_text()
        return servers[-1], Client(f"http://127.0.0.1:{servers[-1].server_address[1]}", token=token)

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_submission_whose_answer_is_lost_makes_one_job(breaking, client, scan_file):
    server, through = breaking(0, 100)  # nothing of the answer, then a part of its head
    job = through.submit(job_of(scan_file, name="said three times"))
    assert len(server.cuts) == 0 and b"".join(server.seen).count(b"POST /v1/jobs ") == 3
    assert [j["id"] for j in client.list() if j["name"] == "said three times"] == [job["id"]]


def test_without_patience_a_lost_answer_is_an_error(breaking, scan_file):
    _, through = breaking(0)
    through.retry_s = 0
    with pytest.raises(Unreachable, match="was lost"):
        through.submit(job_of(scan_file))


def test_events_cut_anywhere_have_no_hole_and_no_duplicate(breaking, client, scan_file):
    job = client.submit(job_of(scan_file, 30))["id"]
    whole = list(client.events(job))
    server, through = breaking(0, 260, 700, 701, 1500, 2222)  # in the head, in the middle of lines
    assert list(through.events(job)) == whole
    assert server.cuts == []


def test_a_download_cut_in_the_middle_is_whole_in_the_end(breaking, client, scan_file, tmp_path):
    job = client.submit(job_of(scan_file))["id"]
    size = client.wait(job, 60)["result"]["bytes"]
    server, through = breaking(100, size // 2)
    through.download(job, tmp_path / "r.h5")
    assert server.cuts == [] and (tmp_path / "r.h5").stat().st_size == size
    _, through = breaking(size // 2)
    through.retry_s = 0
    (tmp_path / "r.h5").write_text("as it was")
    with pytest.raises(Unreachable):
        through.download(job, tmp_path / "r.h5")
    assert (tmp_path / "r.h5").read_text() == "as it was" and len(list(tmp_path.glob("r.h5*"))) == 1


def test_events_and_wait_live_through_a_restart_of_the_daemon(make_daemon, slow_scan_file):
    daemon = make_daemon()
    client = Client(str(daemon.runtime), retry_s=60)
    job = client.submit(job_of(slow_scan_file, 200))["id"]
    seen, ended, restarted = [], [], threading.Event()
    waiter = threading.Thread(target=lambda: ended.append(client.wait(job)), daemon=True)
    waiter.start()

    def restart():
        daemon.kill()
        daemon.start()
        restarted.set()

    for event in client.events(job):
        seen.append(event)
        if event["type"] == "iter" and event["iter"] == 3 and not restarted.is_set():
            restart()
    waiter.join(60)
    assert restarted.is_set() and [e["seq"] for e in seen] == list(range(1, len(seen) + 1))
    assert seen[-1]["type"] == "end" and seen[-1]["state"] == "succeeded" == ended[0]["state"]


@pytest.mark.parametrize("status, expected", [("502 Bad Gateway", "502 Bad Gateway"), ("301 Moved Permanently", "301 Moved"),
                                              ("200 OK", "does not answer like xptychod")])
def test_what_is_no_daemon_is_told_as_what_it_says(status, expected):
    class Other(socketserver.StreamRequestHandler):
        def handle(self):
            while self.rfile.readline().strip():
                pass
            self.wfile.write(f"HTTP/1.1 {status}\r\nContent-Length: 9\r\n\r\n<html>no!".encode())

    with socketserver.TCPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(Error, match=expected) as error:
            Client(f"http://127.0.0.1:{server.server_address[1]}").show(ID)
        assert getattr(error.value, "status", 200) == int(status[:3])
        server.shutdown()


# ----------------------------------------------------------------------------------------- ZeroMQ


@pytest.fixture
def bridged(make_daemon):
    pytest.importorskip("zmq", reason="pyzmq is not installed")
    daemon = make_daemon("--zmq-router", "tcp://127.0.0.1:*", "--zmq-pub", "tcp://127.0.0.1:*")

    def addresses():
        ready = json.loads((daemon.runtime / "ready.json").read_text())
        return ready.get("zmq_pub") and ready

    daemon.ready = xptychod.wait_until(addresses, "ready.json has the bridge's addresses")
    return daemon


def test_progress_over_zeromq_is_that_over_http(bridged, scan_file):
    client = Client(str(bridged.runtime))
    job = client.submit(job_of(scan_file, 40))["id"]
    sockets = []
    events = list(client.progress(job, configure=sockets.append))
    assert events == list(client.events(job)) and len(sockets) == 1 and sockets[0].closed
    assert list(client.progress(job, from_seq=5)) == events[4:], "after the end it comes from the log"


def test_progress_fills_the_holes_of_a_slow_subscriber(bridged, slow_scan_file):
    import zmq

    client = Client(str(bridged.runtime))
    job = client.submit(job_of(slow_scan_file, 150))["id"]
    fetched, stream = [], client._stream
    client._stream = lambda *arguments: fetched.append(arguments) or stream(*arguments)
    seen = []
    for event in client.progress(job, configure=lambda socket: socket.setsockopt(zmq.RCVHWM, 1)):
        if not seen:
            client.wait(job, 120)  # reads nothing meanwhile: the bridge drops
        seen.append(event)
    assert [e["seq"] for e in seen] == list(range(1, len(seen) + 1)) and seen[-1]["type"] == "end"
    assert len(fetched) >= 1


def test_progress_without_pyzmq_says_what_to_do(client, monkeypatch):
    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", lambda name, *rest: real("no_such_module" if name == "zmq" else name, *rest))
    with pytest.raises(Error, match="python3-zmq"):
        next(client.progress(ID))


# ----------------------------------------------------------------------------------------- module


def test_the_functions_of_the_module_find_the_daemon(shared_daemon, scan_file, slow_scan_file, monkeypatch):
    monkeypatch.setenv("XPTYCHO_SERVER", str(shared_daemon.runtime))
    job = xptycho_client.submit(job_of(scan_file), "module")
    assert xptycho_client.wait(job["id"], 60)["state"] == "succeeded"
    assert [e["type"] for e in xptycho_client.events(job["id"], 1)][-1] == "end"
    assert xptycho_client.result(job["id"])["iterations"] == 4
    slow = xptycho_client.submit(job_of(slow_scan_file, 100000))["id"]
    xptycho_client.cancel(slow)
    assert xptycho_client.wait(slow, 60)["state"] == "cancelled"


def test_it_is_one_typed_and_documented_file_for_python_3_9():
    source = (PYTHON / "xptycho_client.py").read_text()
    tree = ast.parse(source, feature_version=(3, 9))
    imported = {name.name.partition(".")[0] for node in tree.body if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert imported <= set(sys.stdlib_module_names), imported
    for name in xptycho_client.__all__:
        thing = getattr(xptycho_client, name)
        assert thing.__doc__, name
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            arguments = [a for a in node.args.args + node.args.kwonlyargs if a.arg != "self"]
            assert node.returns is not None and all(a.annotation for a in arguments), node.name
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        assert name.startswith("_") or method.__doc__, name


# --------------------------------------------------------------------------------------- examples


def example(name, *arguments, server):
    return subprocess.run([sys.executable, PYTHON / "examples" / name, *map(str, arguments)], capture_output=True,
                          text=True, timeout=120, env=dict(os.environ, XPTYCHO_SERVER=str(server)))


def test_the_bluesky_example_submits_once_and_follows(client, shared_daemon, scan_file):
    before = {job["id"] for job in client.list()}
    done = example("bluesky_callback.py", scan_file, 20, server=shared_daemon.runtime)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("succeeded") and "iteration 20 data error 0." in done.stdout
    new = [job for job in client.list() if job["id"] not in before]
    assert [job["id"] for job in new] == [lines[0].partition(" ")[2]], "the replayed documents make no second job"
    assert new[0]["labels"]["bluesky_uid"] and new[0]["name"] == "scan 4711"


def test_the_bluesky_example_keeps_the_scan_going_without_a_daemon(scan_file, tmp_path):
    done = example("bluesky_callback.py", scan_file, server=f"unix:{tmp_path}/none.sock")
    assert done.returncode == 1 and "is not reconstructed" in done.stderr and "Traceback" not in done.stderr


def test_the_bluesky_example_leaves_aborted_runs_alone(client, scan_file):
    sys.path.insert(0, str(PYTHON / "examples"))
    import bluesky_callback

    callback = bluesky_callback.ReconstructOnStop(lambda start: scan_file, {"iterations": 2}, client)
    for uid, status in (("aborted-run", "abort"), ("failed-run", "fail")):
        callback("start", {"uid": uid, "scan_id": 1})
        callback("event", {"data": {}})
        callback("stop", {"run_start": uid, "exit_status": status})
    callback("stop", {"run_start": "begun before the subscription", "exit_status": "success"})
    assert callback.jobs == {}


def test_the_prefect_example_fetches_the_result(shared_daemon, scan_file, tmp_path):
    target = tmp_path / "recon.h5"
    done = example("prefect_flow.py", scan_file, target, 5, server=shared_daemon.runtime)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"result {target}" and "data error 0." in done.stdout
    assert target.read_bytes().startswith(b"\x89HDF")


def test_the_prefect_example_fails_with_the_reason(shared_daemon, tmp_path):
    done = example("prefect_flow.py", tmp_path / "none.h5", tmp_path / "r.h5", server=shared_daemon.runtime)
    assert done.returncode == 1 and "none.h5" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "r.h5").exists()


def test_a_retried_task_of_the_prefect_example_submits_no_second_job(client, shared_daemon, scan_file, monkeypatch):
    sys.path.insert(0, str(PYTHON / "examples"))
    import prefect_flow

    monkeypatch.setenv("XPTYCHO_SERVER", str(shared_daemon.runtime))
    before = {job["id"] for job in client.list()}
    submit, calls = xptycho_client.submit, []

    def dies_after_the_submission(*arguments, **keywords):
        calls.append(submit(*arguments, **keywords))
        if len(calls) == 1:
            raise RuntimeError("the machine of the task went away")
        return calls[-1]

    monkeypatch.setattr(xptycho_client, "submit", dies_after_the_submission)
    job = prefect_flow.submit(scan_file, 2)
    assert len(calls) == 2 and calls[0]["id"] == calls[1]["id"] == job
    assert {j["id"] for j in client.list()} - before == {job}
