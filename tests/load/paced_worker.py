#!/usr/bin/python3
"""A worker that computes nothing: it tells twenty iterations a second, at even times, until it is cancelled.

Started by the broker in place of xptycho-worker (--worker-program), so that the load on the event streams is
the same on every machine and takes no processor time.  docs/architecture.md has the messages.
"""

import json
import select
import socket
import struct
import time

RATE = 20.0
HEADER = struct.Struct("=IHHIHH")  # magic, version, type, length, descriptors, flags
MAGIC, VERSION = 0x43507458, 1
TYPES = ("hello", "probe", "read", "scan", "refused", "start", "cancel", "events", "done", "ping", "pong", "quit")


class Worker:
    def __init__(self):
        self.socket = socket.socket(fileno=3)
        self.job, self.iteration, self.next = None, 0, 0.0

    def send(self, kind, body):
        text = json.dumps(body).encode()
        self.socket.send(HEADER.pack(MAGIC, VERSION, TYPES.index(kind), len(text), 0, 0) + text)

    def hello(self):
        self.send("hello", {"program": "xptycho-worker", "version": "0", "build": "paced", "pid": 1, "devices": [
            {"name": "cpu", "model": "paced", "absent": "", "bytes_total": 1 << 34, "bytes_free": 1 << 34, "threads": 1}]})

    def tell(self, *events):
        self.send("events", {"id": self.job, "events": list(events)})

    def end(self, state):
        self.send("done", {"id": self.job, "state": state, "reason": state, "detail": "", "result": None, "problem": None})
        self.job = None

    def take(self):
        """One message; False when there will be none any more."""
        packet, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 17, 16)
        for descriptor in descriptors:
            socket.close(descriptor)
        if not packet:
            return False
        _, _, kind, length, _, _ = HEADER.unpack_from(packet)
        body = json.loads(packet[HEADER.size:HEADER.size + length] or "{}")
        if TYPES[kind] == "start":
            self.job, self.iteration, self.next = body["id"], 0, time.monotonic()
            self.tell({"type": "state", "state": "running"})
        elif TYPES[kind] == "cancel" and self.job:
            self.end("cancelled")
        elif TYPES[kind] == "ping":
            self.send("pong", body)
        return TYPES[kind] != "quit"

    def iterate(self):
        self.iteration += 1
        self.next += 1 / RATE
        self.tell({"type": "iter", "stage": 0, "iter": self.iteration, "data_error": 0.5 / self.iteration, "modes": 1,
                   "seconds": 1 / RATE})

    def run(self):
        self.hello()
        while True:
            wait = max(0.0, self.next - time.monotonic()) if self.job else None
            readable, _, _ = select.select([self.socket], [], [], wait)
            if readable and not self.take():
                return
            if self.job and time.monotonic() >= self.next:
                self.iterate()


Worker().run()
