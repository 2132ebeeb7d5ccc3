"""The ZeroMQ front end, spoken to with pyzmq as a beamline program would."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest
import zmq

import bridge_kills
import xptychod
from zmq_client import Bridge, Dealer, connected, proof, subscribed, topics_of, wait_for_bridge


@pytest.fixture
def bridged(make_daemon):
    daemon = make_daemon("--zmq-router", "tcp://127.0.0.1:*", "--zmq-pub", "tcp://127.0.0.1:*")
    wait_for_bridge(daemon)
    return daemon


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


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
    holder = bridged.api.submit(job_of(slow_scan_file, 100000))
    job = bridged.api.submit(job_of(slow_scan_file, 40))
    progress = subscribed(context, bridged, job["id"], state=True)
    topic = f"job/{job['id']}/".encode()
    first = proof(progress, job["id"])
    assert first["state"] == "queued"
    bridged.api.post(f"/v1/jobs/{holder['id']}/cancel")
    events, states = [], []
    while not events or events[-1]["type"] != "end" or not states or states[-1]["type"] != "end":
        where, seq, kind, text = progress.recv_multipart()
        event = json.loads(text)
        assert event["type"] == kind.decode()
        if where == b"state/":
            if event["job"] == job["id"]:
                states.append(event)
        elif kind == b"beat":
            assert where == topic and event["last_seq"] == int(seq)
        else:
            assert where == topic and event["seq"] == int(seq)
            events.append(event)
    logged = bridged.api.events(job["id"])
    assert events == [e for e in logged if e["seq"] > first["last_seq"]]
    said = [e["state"] for e in events if e["type"] in ("state", "end")]
    if len(states) == len(said) - 1:
        said.remove("queued")   # told while the second subscription was still on its way
    assert [e["state"] for e in states] == said


def test_beats_tell_the_last_number(bridged, context, slow_scan_file):
    job = bridged.api.submit(job_of(slow_scan_file, 100000))
    bridged.api.wait_for_iteration(job["id"], 1)
    progress = subscribed(context, bridged, job["id"])
    last, beats = proof(progress, job["id"])["last_seq"], 0
    while beats < 2:
        where, seq, kind, text = progress.recv_multipart()
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


def test_a_topic_is_one_job_and_nothing_shorter(bridged, context, slow_scan_file):
    job = bridged.api.submit(job_of(slow_scan_file, 100000))
    bridged.api.wait_for_iteration(job["id"], 1)
    token, job_id = bridged.api.token, job["id"]
    shorter = ["", "j", "job/", f"job/{job_id}", f"job/{job_id[:20]}", f"job/{job_id[:-1]}", f"job//{token}", "state",
               f"job/{token}", "\x00", f"job/{job_id.lower()}/{token}", f"job/{job_id}/", f"job/{job_id}/wrong", "state/",
               "state/wrong", f"job/{job_id}/{token} ", f"job/{job_id}/" + "x" * 600]
    nothing = connected(context, zmq.XSUB, bridged.ready["zmq_pub"], RCVTIMEO=3000)  # filters nothing itself
    assert nothing.recv_multipart() == [b"welcome"]
    for topic in shorter:
        nothing.send(b"\x01" + topic.encode())
    for odd in (b"", b"\x02job/", b"\x01" + b"\xff" * 100, b"hello"):
        nothing.send(odd)
    with pytest.raises(zmq.Again):  # beats come every 2 s to whoever has the topic
        nothing.recv_multipart()
    nothing.send(b"\x01" + topics_of(job_id, token)[1].encode())
    assert proof(nothing, job_id)["state"] == "running", "and the connection still works"
    nothing.send(b"\x00" + topics_of(job_id, token)[1].encode())
    with pytest.raises(zmq.Again):
        while True:
            nothing.recv_multipart()
    bridged.api.post(f"/v1/jobs/{job_id}/cancel")
    bridged.api.finish(job_id)


def test_a_subscription_to_an_ended_job_says_so(bridged, context, scan_file):
    job = bridged.api.finish(bridged.api.submit(job_of(scan_file))["id"])
    beat = proof(subscribed(context, bridged, job["id"]), job["id"])
    assert beat["state"] == "succeeded" and "last_seq" not in beat


def drained(socket):
    """Everything until nothing came for a second."""
    socket.setsockopt(zmq.RCVTIMEO, 1000)
    found = []
    while True:
        try:
            found.append(socket.recv_multipart())
        except zmq.Again:
            return found


def test_a_stuck_subscriber_loses_the_newest_and_fills_the_hole(bridged, context, scan_file, slow_scan_file):
    holder = bridged.api.submit(job_of(slow_scan_file, 100000))
    job = bridged.api.submit({**job_of(scan_file, 8000), "preview_every_s": 60})
    stuck = subscribed(context, bridged, job["id"], RCVHWM=1, RCVBUF=4096)
    reader = subscribed(context, bridged, job["id"], RCVHWM=0)
    begin = proof(reader, job["id"])["last_seq"]
    bridged.api.post(f"/v1/jobs/{holder['id']}/cancel")
    read = []
    while not read or read[-1]["type"] != "end":
        event = json.loads(reader.recv_multipart()[3])
        if event["type"] != "beat" and event["seq"] > begin:
            read.append(event)
    assert read == bridged.api.events(job["id"], start=begin + 1), "a stuck subscriber costs the others nothing"
    late = [json.loads(parts[3]) for parts in drained(stuck)]
    late = [e for e in late if e["type"] != "beat" and e["seq"] > begin]
    assert late[0] == read[0] and len(late) < len(read), "the oldest is there, others are lost"
    have = {e["seq"] for e in late}
    assert late == [e for e in read if e["seq"] in have], "what came is in order and as it was"
    late = [e for e, wanted in zip(late, read) if e == wanted]  # to the first hole
    dealer, answer = Dealer(context, bridged), {"more": True}
    while answer["more"] or late[-1]["type"] != "end":
        status, answer = dealer.ask("events", id=job["id"], **{"from": late[-1]["seq"] + 1})
        assert status == 200 and answer["events"]
        late += answer["events"]
    assert late == read


def test_killed_bridge_comes_back_and_events_go_on(bridged, context, slow_scan_file):
    dealer = Dealer(context, bridged)
    _, job = dealer.ask("submit", body=job_of(slow_scan_file, 100000))
    bridged.api.wait_for_iteration(job["id"], 1)
    killed = bridged.pid_of("xptycho-zmq")
    os.kill(killed, signal.SIGKILL)
    wait_for_bridge(bridged, other_than=killed)
    progress = subscribed(context, bridged, job["id"])
    dealer = Dealer(context, bridged)
    status, shown = dealer.ask("show", id=job["id"])
    assert status == 200 and shown["state"] == "running" and shown["attempts"] == 0
    while progress.recv_multipart()[2] != b"iter":
        pass
    assert dealer.ask("cancel", id=job["id"])[0] == 202
    bridged.api.finish(job["id"])


# --------------------------------------------------------------------------- who may subscribe


@pytest.fixture
def running(daemon, slow_scan_file):
    job = daemon.api.submit(job_of(slow_scan_file, 100000))
    daemon.api.wait_for_iteration(job["id"], 1)
    yield job["id"]
    daemon.api.post(f"/v1/jobs/{job['id']}/cancel")
    daemon.api.finish(job["id"])


def test_a_bridge_killed_ten_times_loses_no_job(daemon, scan_file, tmp_path):
    assert bridge_kills.run(daemon, scan_file, tmp_path, 10)["jobs"] == 21


AS_OTHER = """
import os, sys, zmq
os.setgid(65534), os.setuid(65534)
socket = zmq.Context().socket(zmq.SUB)
socket.setsockopt(zmq.RCVTIMEO, 3000)
for topic in sys.argv[2:]:
    socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
socket.connect(sys.argv[1])
try:
    while True:
        parts = socket.recv_multipart()
        print(parts[0].decode(), flush=True)
        if parts[0] != b"welcome":
            break
except zmq.Again:
    pass
"""


def test_on_ipc_the_peers_user_decides(daemon, context, running):
    if os.geteuid() != 0:
        pytest.skip("two users need root")
    folder = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))  # where another user gets to
    folder.chmod(0o755)
    try:
        with Bridge(daemon, folder, f"ipc://{folder}/r", f"ipc://{folder}/p") as bridge:
            mine = connected(context, zmq.SUB, bridge.ready["zmq_pub"], [f"job/{running}/", "state/"])
            assert proof(mine, running)["state"] == "running"
            (folder / "p").chmod(0o666)

            def other(*topics):
                told = subprocess.run([sys.executable, "-c", AS_OTHER, bridge.ready["zmq_pub"], "welcome", *topics],
                                      capture_output=True, text=True, check=True, timeout=60)
                return told.stdout.split()

            assert other(f"job/{running}/", "state/") == ["welcome"], "another user's job is not shown"
            assert other(*topics_of(running, daemon.api.token)) == ["welcome", f"job/{running}/"], "but by its token"
    finally:
        shutil.rmtree(folder)


def keys_of(folder, name):
    """A key file made by the program, and the public key that it told."""
    made = xptychod.run("xptycho-zmq", "--make-curve-key", folder / name)
    assert made.returncode == 0, made.stderr
    assert (folder / name).stat().st_mode & 0o777 == 0o600
    return made.stdout.strip().encode()


def test_curve_lets_in_who_is_listed_and_shows_what_is_theirs(daemon, context, running, tmp_path):
    server = keys_of(tmp_path, "secret")
    (mine, mine_secret), (foreign, foreign_secret), (stranger, stranger_secret) = (zmq.curve_keypair() for _ in range(3))
    me = daemon.api.show(running)["user"]
    keys = tmp_path / "keys"
    keys.write_bytes(b"# keys and users\n" + mine + b" " + me.encode() + b"  the beamline\n" + foreign + b" nobody\n")
    with Bridge(daemon, tmp_path, "tcp://0.0.0.0:*", "tcp://0.0.0.0:*", "--curve-secret", tmp_path / "secret", "--curve-keys",
                keys) as bridge:
        assert bridge.ready["curve_public"].encode() == server
        pub, router = (bridge.ready[name].replace("0.0.0.0", "127.0.0.1") for name in ("zmq_pub", "zmq_router"))

        def curve(public, secret):
            return {"CURVE_SERVERKEY": server, "CURVE_PUBLICKEY": public, "CURVE_SECRETKEY": secret}

        wanted = ["welcome", f"job/{running}/"]
        sub = connected(context, zmq.SUB, pub, wanted, **curve(mine, mine_secret))
        assert sub.recv_multipart() == [b"welcome"] and proof(sub, running)["state"] == "running"
        sub = connected(context, zmq.SUB, pub, wanted, RCVTIMEO=3000, **curve(foreign, foreign_secret))
        assert [parts[0] for parts in drained(sub)] == [b"welcome"], "a listed key sees its own user's jobs only"
        sub = connected(context, zmq.SUB, pub, [*wanted, topics_of(running, daemon.api.token)[1]],
                        **curve(foreign, foreign_secret))
        assert sub.recv_multipart() == [b"welcome"] and proof(sub, running), "or what a token shows"
        ask = [b"XPT1", b"1", json.dumps({"verb": "version", "token": daemon.api.token}).encode()]
        for options in (curve(stranger, stranger_secret), {}, {**curve(mine, mine_secret), "CURVE_SERVERKEY": stranger}):
            sub = connected(context, zmq.SUB, pub, wanted, RCVTIMEO=1500, **options)
            dealer = connected(context, zmq.DEALER, router, RCVTIMEO=1500, **options)
            dealer.send_multipart(ask)
            for socket in (sub, dealer):
                with pytest.raises(zmq.Again):
                    socket.recv_multipart()
        dealer = connected(context, zmq.DEALER, router, **curve(mine, mine_secret))
        dealer.send_multipart(ask)
        assert json.loads(dealer.recv_multipart()[2])["status"] == 200
        keys.write_bytes(keys.read_bytes() + stranger + b" nobody\n")
        dealer = connected(context, zmq.DEALER, router, **curve(stranger, stranger_secret))
        dealer.send_multipart(ask)
        assert json.loads(dealer.recv_multipart()[2])["status"] == 200, "a new line of the list counts at once"


def test_the_daemon_hands_its_keys_to_the_bridge(make_daemon, context, tmp_path):
    server = keys_of(tmp_path, "secret")
    public, secret = zmq.curve_keypair()
    (tmp_path / "keys").write_bytes(public + b" nobody\n")
    daemon = make_daemon("--zmq-router", "tcp://0.0.0.0:*", "--zmq-pub", "tcp://0.0.0.0:*", "--zmq-curve-secret",
                         str(tmp_path / "secret"), "--zmq-curve-keys", str(tmp_path / "keys"))
    wait_for_bridge(daemon)
    assert daemon.ready["curve_public"].encode() == server
    router = daemon.ready["zmq_router"].replace("0.0.0.0", "127.0.0.1")
    dealer = connected(context, zmq.DEALER, router, CURVE_SERVERKEY=server, CURVE_PUBLICKEY=public, CURVE_SECRETKEY=secret)
    dealer.send_multipart([b"XPT1", b"1", json.dumps({"verb": "version", "token": daemon.api.token}).encode()])
    assert json.loads(dealer.recv_multipart()[2])["status"] == 200


# --------------------------------------------------------------------------- the program by itself


def test_remote_addresses_are_refused_without_curve(tmp_path):
    keys_of(tmp_path, "secret")
    (tmp_path / "keys").write_text("")
    start = ["--broker", "unix:/nowhere", "--router", "tcp://0.0.0.0:*", "--pub", "tcp://127.0.0.1:*"]
    shown = xptychod.run("xptycho-zmq", *start)
    assert shown.returncode == 3 and "loopback" in shown.stderr
    assert xptychod.run("xptycho-zmq", *start, "--curve-secret", tmp_path / "secret").returncode == 2, "a list is needed, too"
    assert xptychod.run("xptycho-zmq", *start, "--curve-keys", tmp_path / "keys").returncode == 2
    shown = xptychod.run("xptycho-zmq", *start, "--curve-secret", tmp_path / "secret", "--curve-keys", tmp_path / "none")
    assert shown.returncode == 3 and "list of keys" in shown.stderr
    (tmp_path / "secret").chmod(0o644)
    shown = xptychod.run("xptycho-zmq", *start, "--curve-secret", tmp_path / "secret", "--curve-keys", tmp_path / "keys")
    assert shown.returncode == 3 and "read by others" in shown.stderr
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "secret").write_text("short\n")
    shown = xptychod.run("xptycho-zmq", *start, "--curve-secret", tmp_path / "secret", "--curve-keys", tmp_path / "keys")
    assert shown.returncode == 3 and "40 characters" in shown.stderr
    again = xptychod.run("xptycho-zmq", "--make-curve-key", tmp_path / "secret")
    assert again.returncode == 1 and (tmp_path / "secret").read_text() == "short\n", "no key is replaced"


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
