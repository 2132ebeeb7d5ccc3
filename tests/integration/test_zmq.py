"""The ZeroMQ front end, spoken to with pyzmq as a beamline program would."""

import json
import os
import signal
import subprocess

import pytest
import zmq

import xptychod


@pytest.fixture
def bridged(make_daemon):
    daemon = make_daemon("--zmq-router", "tcp://127.0.0.1:*", "--zmq-pub", "tcp://127.0.0.1:*")
    wait_for_bridge(daemon)
    return daemon


def wait_for_bridge(daemon, other_than=None):
    """The bridge's addresses in ready.json belong to a bridge that runs."""
    def addresses():
        ready = json.loads((daemon.runtime / "ready.json").read_text())
        pid = daemon.pid_of("xptycho-zmq")
        return pid and pid != other_than and ready.get("zmq_router") and ready.get("zmq_pub") and ready

    daemon.ready = xptychod.wait_until(addresses, "the bridge runs and ready.json has its addresses")


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


def connected(context, kind, address):
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVTIMEO, 30000)
    if kind == zmq.SUB:
        socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(address)
    return socket


class Dealer:
    """Requests with ids, answers matched by them."""

    def __init__(self, context, daemon):
        self.socket = connected(context, zmq.DEALER, daemon.ready["zmq_router"])
        self.token = daemon.api.token
        self.count = 0

    def ask(self, verb, **members):
        self.count += 1
        request_id = str(self.count).encode()
        members.setdefault("token", self.token)
        self.socket.send_multipart([b"XPT1", request_id, json.dumps({"verb": verb, **members}).encode()])
        magic, answered, answer = self.socket.recv_multipart()
        assert magic == b"XPT1" and answered == request_id
        answer = json.loads(answer)
        return answer["status"], answer["body"]


def subscribed(context, daemon):
    """A subscription to everything, proven by the welcome message."""
    socket = connected(context, zmq.SUB, daemon.ready["zmq_pub"])
    assert socket.recv_multipart() == [b"welcome"]
    return socket


def job_of(path, iterations=8):
    return {"name": "over zmq", "scan": {"path": path}, "recon": {"iterations": iterations}}


def test_every_verb_of_a_job(bridged, context, scan_file):
    dealer = Dealer(context, bridged)
    status, verdict = dealer.ask("dry_run", body=job_of(scan_file))
    assert status == 200 and verdict["admitted"] is True
    status, job = dealer.ask("submit", body=job_of(scan_file), idempotency_key="k1")
    assert status == 201 and job["name"] == "over zmq"
    assert dealer.ask("submit", body=job_of(scan_file), idempotency_key="k1")[1]["id"] == job["id"]
    over_http = bridged.api.finish(job["id"])
    assert dealer.ask("show", id=job["id"]) == (200, over_http)
    status, events = dealer.ask("events", id=job["id"], **{"from": 3})
    assert status == 200 and events == {"events": bridged.api.events(job["id"], start=3), "more": False}
    assert dealer.ask("result", id=job["id"]) == (200, bridged.api.get(f"/v1/jobs/{job['id']}/result").json())
    status, log = dealer.ask("log", id=job["id"])
    assert status == 200 and log["text"] == bridged.api.get(f"/v1/jobs/{job['id']}/log").text
    status, listed = dealer.ask("list", limit=5, state=["succeeded"])
    assert status == 200 and [j["id"] for j in listed["jobs"]] == [job["id"]]
    status, again = dealer.ask("rerun", id=job["id"], body={"recon": {"iterations": 2}})
    assert status == 201 and again["id"] != job["id"]
    assert bridged.api.finish(again["id"])["result"]["iterations"] == 2
    assert dealer.ask("queue")[1]["running"] == []
    assert "cpu" in [d["name"] for d in dealer.ask("devices")[1]["devices"]]
    assert dealer.ask("version")[1]["api"] == "v1"
    assert dealer.ask("delete", id=again["id"]) == (204, None)
    assert dealer.ask("show", id=again["id"])[0] == 404


def test_cancel_of_a_running_job(bridged, context, slow_scan_file):
    dealer = Dealer(context, bridged)
    _, job = dealer.ask("submit", body=job_of(slow_scan_file, 100000))
    bridged.api.wait_for_iteration(job["id"], 1)
    assert dealer.ask("delete", id=job["id"])[0] == 409
    assert dealer.ask("cancel", id=job["id"])[0] == 202
    assert bridged.api.finish(job["id"])["state"] == "cancelled"
    assert dealer.ask("cancel", id=job["id"])[0] == 200


def test_a_req_socket_gets_its_delimiter_back(bridged, context):
    socket = connected(context, zmq.REQ, bridged.ready["zmq_router"])
    socket.send_multipart([b"XPT1", b"", json.dumps({"verb": "version", "token": bridged.api.token}).encode()])
    magic, request_id, answer = socket.recv_multipart()
    assert (magic, request_id) == (b"XPT1", b"") and json.loads(answer)["status"] == 200


def test_problems_are_those_of_http(bridged, context, scan_file):
    dealer = Dealer(context, bridged)
    wrong = {"scan": {"path": scan_file}, "recon": {"interations": 3}}
    over_http = bridged.api.post("/v1/jobs", wrong).json()
    status, problem = dealer.ask("submit", body=wrong)
    problem.pop("instance", None), over_http.pop("instance", None)  # the number of the request
    assert status == 422 and problem == over_http


def test_the_bridge_has_no_rights_of_its_own(bridged, context):
    dealer = Dealer(context, bridged)
    for token in (None, "", "wrong", 7, "a\r\nb"):
        assert dealer.ask("queue", token=token)[0] == 401, token
    dealer.socket.send_multipart([b"XPT1", b"x", b'{"verb": "queue"}'])
    assert json.loads(dealer.socket.recv_multipart()[2])["status"] == 401


def test_malformed_messages_are_answered_and_shift_nothing(bridged, context):
    dealer = Dealer(context, bridged)
    malformed = [[b"hello"], [b"XPT2", b"1", b"{}"], [b"XPT1"], [b"XPT1", b"1"], [b"XPT1", b"i" * 33, b"{}"],
                 [b"XPT1", b"1", b"{}", b"more"], [b"XPT1", b"1", b"not json"], [b"XPT1", b"1", b"[" * 1000],
                 [b"", b"XPT1"], [b"x"] * 50, [b"XPT1", b"1", b"{}"], [b"XPT1", b"1", b'{"verb": "sing", "token": "t"}']]
    for parts in malformed:
        dealer.socket.send_multipart(parts)
        answer = dealer.socket.recv_multipart()
        if parts[0] == b"" and len(parts) > 1:
            assert answer.pop(0) == b""
        assert answer[0] == b"XPT1" and json.loads(answer[2])["status"] == 400, (parts, answer)
        assert dealer.ask("version")[0] == 200, "the next request is read from its own beginning"
    assert bridged.pid_of("xptycho-zmq")


def test_too_large_a_message_costs_only_its_sender(bridged, context):
    dealer = Dealer(context, bridged)
    other = connected(context, zmq.DEALER, bridged.ready["zmq_router"])
    other.send_multipart([b"XPT1", b"1", b" " * (2 << 20)])
    assert dealer.ask("version")[0] == 200
    assert bridged.pid_of("xptycho-zmq")


def test_progress_has_every_event_in_order(bridged, context, slow_scan_file):
    progress = subscribed(context, bridged)
    job = bridged.api.submit(job_of(slow_scan_file, 40))
    topic = f"job/{job['id']}/".encode()
    events, states, beats = [], [], []
    while not events or events[-1]["type"] != "end" or not states or states[-1]["type"] != "end":
        where, seq, kind, text = progress.recv_multipart()
        event = json.loads(text)
        assert event["type"] == kind.decode()
        if where == b"state/":
            assert event["job"] == job["id"]
            states.append(event)
        elif kind == b"beat":
            assert where == topic and event["last_seq"] == int(seq)
            beats.append(event)
        else:
            assert where == topic and event["seq"] == int(seq)
            events.append(event)
    assert events == bridged.api.events(job["id"])
    assert [e["state"] for e in states] == [e["state"] for e in events if e["type"] in ("state", "end")]


def test_beats_tell_the_last_number(bridged, context, slow_scan_file):
    progress = subscribed(context, bridged)
    job = bridged.api.submit(job_of(slow_scan_file, 100000))
    last = beats = 0
    while beats < 2:
        where, seq, kind, text = progress.recv_multipart()
        if where == b"state/":
            continue
        if kind == b"beat":
            beat = json.loads(text)
            assert beat["last_seq"] == last and beat["id"] == job["id"]
            assert beat["state"] in ("starting", "running")
            beats += 1
        else:
            assert int(seq) == last + 1
            last = int(seq)
    bridged.api.post(f"/v1/jobs/{job['id']}/cancel")
    bridged.api.finish(job["id"])


def test_a_topic_is_one_job_and_queued_jobs_are_seen(bridged, context, slow_scan_file, scan_file):
    holder = bridged.api.submit(job_of(slow_scan_file, 100000))
    waiting = bridged.api.submit(job_of(scan_file))
    progress = context.socket(zmq.SUB)
    progress.setsockopt(zmq.RCVTIMEO, 30000)
    for topic in ("welcome", f"job/{waiting['id']}/"):
        progress.setsockopt(zmq.SUBSCRIBE, topic.encode())
    progress.connect(bridged.ready["zmq_pub"])
    assert progress.recv_multipart() == [b"welcome"]
    bridged.api.post(f"/v1/jobs/{holder['id']}/cancel")
    seen = []
    while not seen or seen[-1] != b"end":
        where, _, kind, _ = progress.recv_multipart()
        assert where == f"job/{waiting['id']}/".encode()
        seen.append(kind)
    assert b"iter" in seen


def test_killed_bridge_comes_back_and_loses_no_job(bridged, context, slow_scan_file):
    dealer = Dealer(context, bridged)
    _, job = dealer.ask("submit", body=job_of(slow_scan_file, 100000))
    bridged.api.wait_for_iteration(job["id"], 1)
    killed = bridged.pid_of("xptycho-zmq")
    os.kill(killed, signal.SIGKILL)
    wait_for_bridge(bridged, other_than=killed)
    assert bridged.api.show(job["id"])["state"] == "running"
    progress = subscribed(context, bridged)
    dealer = Dealer(context, bridged)
    status, shown = dealer.ask("show", id=job["id"])
    assert status == 200 and shown["state"] == "running" and shown["attempts"] == 0
    while True:  # events of the job that ran before the bridge came back
        where, _, kind, _ = progress.recv_multipart()
        if where == f"job/{job['id']}/".encode() and kind == b"iter":
            break
    assert dealer.ask("cancel", id=job["id"])[0] == 202
    bridged.api.finish(job["id"])


# --------------------------------------------------------------------------- the program by itself


def test_remote_addresses_are_refused():
    shown = xptychod.run("xptycho-zmq", "--broker", "unix:/nowhere", "--router", "tcp://0.0.0.0:*", "--pub", "tcp://127.0.0.1:*")
    assert shown.returncode == 3 and "loopback" in shown.stderr


def test_an_address_in_use_is_refused(bridged):
    shown = xptychod.run("xptycho-zmq", "--broker", "unix:/nowhere", "--router", bridged.ready["zmq_router"],
                         "--pub", "tcp://127.0.0.1:*")
    assert shown.returncode == 3 and bridged.ready["zmq_router"] in shown.stderr


def test_wrong_use_is_2():
    for arguments in ([], ["--broker", "/no/scheme", "--router", "ipc://a", "--pub", "ipc://b"], ["--nothing"]):
        assert xptychod.run("xptycho-zmq", *arguments).returncode == 2


def test_without_a_broker_requests_are_503(context, tmp_path):
    """The bridge by itself: it starts, says that nobody answers, and stops on a signal."""
    ready = tmp_path / "zmq.json"
    process = subprocess.Popen([xptychod.program("xptycho-zmq"), "--broker", f"unix:{tmp_path}/none.sock", "--router",
                                f"ipc://{tmp_path}/r", "--pub", f"ipc://{tmp_path}/p", "--ready-file", ready],
                               stderr=subprocess.DEVNULL)
    try:
        addresses = json.loads(xptychod.wait_until(lambda: ready.exists() and ready.read_text(), "the ready file"))
        assert addresses["pid"] == process.pid
        socket = connected(context, zmq.DEALER, addresses["zmq_router"])
        socket.send_multipart([b"XPT1", b"1", b'{"verb": "version", "token": "t"}'])
        answer = json.loads(socket.recv_multipart()[2])
        assert answer["status"] == 503 and answer["body"]["type"] == "urn:xptychod:problem:unavailable"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
