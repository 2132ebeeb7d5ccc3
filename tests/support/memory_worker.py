#!/usr/bin/python3
"""A worker whose machine has as much memory as a file says: the real one behind a relay, for tests of admission.

The broker starts it with --worker-program or --cuda-worker-program; $XP_MEMORY_PROGRAM is the real one, xptycho-worker unless
it is set.  $XP_MEMORY_FILE names a JSON file that is read again for each message:

    devices     {name: {"bytes_total": n, "bytes_free": n}}, put into `hello` and `pong` of the real worker
    refuse      so many times `start` is not passed on but answered as a worker does that finds too little memory
    required    the bytes that it then says are required

Everything else passes as it is, descriptors included.  Standard library only.
"""

import array
import json
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys

import xptychod

HEADER = struct.Struct("=IHHIHH")  # magic, version, type, length, descriptors, flags
TYPES = ["hello", "probe", "read", "scan", "refused", "start", "cancel", "events", "done", "ping", "pong", "quit"]


def receive(sock):
    """One packet and its descriptors; b"" at the end."""
    data, rights, _, _ = sock.recvmsg(1 << 20, socket.CMSG_SPACE(16 * 4), socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, content in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[:len(content) - len(content) % fds.itemsize])
    return data, list(fds)


def send(sock, data, fds=()):
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
    for fd in fds:
        os.close(fd)


def packed(data, body):
    """The packet with another body."""
    magic, version, kind, _, count, flags = HEADER.unpack_from(data)
    text = json.dumps(body).encode()
    return HEADER.pack(magic, version, kind, len(text), count, flags) + text


class Relay:
    def __init__(self, broker, worker, file):
        self.broker, self.worker, self.file = broker, worker, pathlib.Path(file)
        self.refused = 0

    def wishes(self):
        return json.loads(self.file.read_text())

    def from_worker(self, data, fds):
        if TYPES[HEADER.unpack_from(data)[2]] in ("hello", "pong"):
            body = json.loads(data[HEADER.size:])
            for device in body.get("devices", []):
                device.update(self.wishes().get("devices", {}).get(device["name"], {}))
            data = packed(data, body)
        send(self.broker, data, fds)

    def from_broker(self, data, fds):
        wishes = self.wishes()
        if TYPES[HEADER.unpack_from(data)[2]] != "start" or self.refused >= wishes.get("refuse", 0):
            send(self.worker, data, fds)
            return
        self.refused += 1
        # a large document travels in the first descriptor
        text = data[HEADER.size:] or os.pread(fds[0], os.fstat(fds[0]).st_size, 0)
        required, detail = wishes["required"], "no memory for the run"
        problem = {"type": "urn:xptychod:problem:insufficient-device-memory", "title": "", "status": 422, "detail": detail,
                   "required_bytes": required, "available_bytes": required - 1, "shortfall_bytes": 1}
        done = {"id": json.loads(text)["id"], "state": "failed", "reason": "no-device-memory", "detail": detail, "result": None,
                "problem": problem}
        magic, version = HEADER.unpack_from(data)[:2]
        answer = json.dumps(done).encode()
        send(self.broker, HEADER.pack(magic, version, TYPES.index("done"), len(answer), 0, 0) + answer)
        for fd in fds:
            os.close(fd)

    def run(self):
        while True:
            for sock in select.select([self.broker, self.worker], [], [])[0]:
                data, fds = receive(sock)
                if not data:
                    return
                (self.from_broker if sock is self.broker else self.from_worker)(data, fds)


def main():
    broker = socket.socket(fileno=3)
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = subprocess.Popen([xptychod.program(os.environ.get("XP_MEMORY_PROGRAM", "xptycho-worker")), *sys.argv[1:]], pass_fds=[3],
                              preexec_fn=lambda: os.dup2(its.fileno(), 3))
    its.close()
    try:
        Relay(broker, mine, os.environ["XP_MEMORY_FILE"]).run()
    except OSError:  # one of the two is gone
        pass
    mine.close()
    sys.exit(worker.wait())


if __name__ == "__main__":
    main()
