"""The ZeroMQ front end as a program of a beamline speaks to it."""

import json
import subprocess

import zmq

import xptychod


def wait_for_bridge(daemon, other_than=None):
    """The bridge's addresses in ready.json belong to a bridge that runs."""
    def addresses():
        ready = json.loads((daemon.runtime / "ready.json").read_text())
        pid = daemon.pid_of("xptycho-zmq")
        return pid and pid != other_than and ready.get("zmq_router") and ready.get("zmq_pub") and ready

    daemon.ready = xptychod.wait_until(addresses, "the bridge runs and ready.json has its addresses")


def connected(context, kind, address, topics=(), **options):
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVTIMEO, 30000)
    for name, value in options.items():
        socket.setsockopt(getattr(zmq, name), value)
    for topic in topics:
        socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
    socket.connect(address)
    return socket


class Dealer:
    """Requests with ids, answers matched by them."""

    def __init__(self, context, daemon, address=None):
        self.socket = connected(context, zmq.DEALER, address or daemon.ready["zmq_router"])
        self.token = daemon.api.token
        self.count = 0

    def send(self, verb, **members):
        """Sends a request and returns its id without waiting for the answer."""
        self.count += 1
        request_id = str(self.count).encode()
        members.setdefault("token", self.token)
        self.socket.send_multipart([b"XPT1", request_id, json.dumps({"verb": verb, **members}).encode()])
        return request_id

    def ask(self, verb, **members):
        request_id = self.send(verb, **members)
        magic, answered, answer = self.socket.recv_multipart()
        assert magic == b"XPT1" and answered == request_id
        answer = json.loads(answer)
        return answer["status"], answer["body"]


def topics_of(job_id, token):
    """The topic as a subscriber filters by it, and what shows the bridge the right to it."""
    return f"job/{job_id}/", f"job/{job_id}/{token}"


def subscribed(context, daemon, *jobs, state=False, address=None, **options):
    """A subscription to jobs by the daemon's token; each is proven by a beat, which is left to be read."""
    token = daemon.api.token
    wanted = [topic for job in jobs for topic in topics_of(job, token)]
    wanted += ["state/", f"state/{token}"] if state else []
    socket = connected(context, zmq.SUB, address or daemon.ready["zmq_pub"], ["welcome", *wanted], **options)
    assert socket.recv_multipart() == [b"welcome"]
    return socket


def proof(socket, job_id):
    """The beat that answers a subscription."""
    where, _, kind, text = socket.recv_multipart()
    assert where == f"job/{job_id}/".encode() and kind == b"beat", (where, kind)
    return json.loads(text)


class Bridge:
    """A bridge of a test's own beside the daemon; in a `with` block."""

    def __init__(self, daemon, folder, router, pub, *options, uid=None):
        self.ready_file = folder / "zmq.json"
        self.process = subprocess.Popen([xptychod.program("xptycho-zmq"), "--broker", f"unix:{daemon.ready['unix']}",
                                         "--router", router, "--pub", pub, "--ready-file", self.ready_file, "--token-file",
                                         daemon.ready["token_file"], *options], stderr=subprocess.PIPE, text=True)
        self.ready = json.loads(xptychod.wait_until(lambda: self.ready_file.exists() and self.ready_file.read_text(),
                                                    "the bridge is ready"))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.terminate()
        self.process.communicate(timeout=20)
