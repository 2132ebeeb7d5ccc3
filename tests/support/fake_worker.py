#!/usr/bin/python3
"""A worker that misbehaves by a script: for tests of the broker, which starts it with --worker-program.

It speaks the messages of docs/architecture.md, section 2, and reconstructs nothing.  $XP_FAKE_WORKER names a JSON
file: one object, or a list of them, of which the first worker that is started takes the first and so on, the last
one again and again.  Beside that file, FILE.started gets a line for each worker: its pid.

    hello       "ok"; "none", "late", "old" (another version of the messages), "garbage", "twice", "no-devices"
    late_s      seconds before a late hello
    devices     of the hello; else one CPU
    seconds     of an iteration (0.01)
    at          iteration before which it does `do` (1)
    do          a word of ACTIONS below, or null
    when        a file that must exist before; until then it goes on
    size        of what it does: MiB, events
    ignore      of "cancel", "ping", "quit", "term"
    jobs        it does `do` in the first so many jobs only (all)

Standard library only.
"""

import array
import ctypes
import fcntl
import json
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time

HEADER = struct.Struct("=IHHIHH")
MAGIC, VERSION, INLINE_MAX, FLAG_MEMFD = 0x43507458, 1, 60 * 1024, 1
TYPES = ["hello", "probe", "read", "scan", "refused", "start", "cancel", "events", "done", "ping", "pong", "quit"]
GIB = 1 << 30


def script_of_this_start():
    path = os.environ["XP_FAKE_WORKER"]
    fd = os.open(path + ".started", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, b"%d\n" % os.getpid())
    before = os.pread(fd, 1 << 20, 0).split().index(b"%d" % os.getpid())
    os.close(fd)
    with open(path, encoding="utf-8") as f:
        script = json.load(f)
    return script[min(before, len(script) - 1)] if isinstance(script, list) else script


class Worker:
    def __init__(self, fd, script):
        self.socket = socket.socket(fileno=fd)
        self.script = script
        self.job = None  # the body of `start`
        self.cancelled = self.leaving = False
        self.begun = self.acted = 0  # jobs that were begun; the last in which it did what it does
        self.kept = []  # memory that is never given back

    # ------------------------------------------------------------------------------------ messages

    def send(self, kind, body):
        text = json.dumps(body).encode()
        fds, flags = [], 0
        if len(text) > INLINE_MAX:
            fd = os.memfd_create("fake", os.MFD_ALLOW_SEALING)
            os.write(fd, text)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0xF)  # all four
            fds, flags = [fd], FLAG_MEMFD
        head = HEADER.pack(MAGIC, VERSION, TYPES.index(kind), len(text), 0, flags)
        self.packet(head if fds else head + text, fds)
        for fd in fds:
            os.close(fd)

    def packet(self, data, fds=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([data], rights)

    def receive(self, timeout):
        """One message as (type, body), or None when none comes in time."""
        if not select.select([self.socket], [], [], timeout)[0]:
            return None
        data, rights, _, _ = self.socket.recvmsg(HEADER.size + INLINE_MAX, socket.CMSG_SPACE(16 * 4))
        if not data:
            os._exit(0)
        fds = array.array("i")
        for _, _, part in rights:
            fds.frombytes(part[:len(part) - len(part) % fds.itemsize])
        _, _, kind, length, _, flags = HEADER.unpack_from(data)
        text = os.pread(fds[-1], length, 0) if flags & FLAG_MEMFD else data[HEADER.size:]
        for fd in fds:
            os.close(fd)
        return TYPES[kind], json.loads(text)

    def ignores(self, what):
        return what in self.script.get("ignore", ())

    def serve(self, timeout):
        """What the control thread of a worker does, for so long or until one message was there."""
        message = self.receive(timeout)
        if message is None:
            return
        kind, body = message
        if kind == "ping" and not self.ignores("ping"):
            self.send("pong", {"t": body.get("t")})
        elif kind == "start":
            self.job, self.cancelled = body, False
            self.begun += 1
        elif kind == "cancel" and not self.ignores("cancel"):
            self.cancelled = True
        elif kind == "quit" and not self.ignores("quit"):
            self.leaving = True

    def serve_until(self, end):
        while (left := end - time.monotonic()) > 0 and not (self.cancelled or self.leaving):
            self.serve(left)

    # ---------------------------------------------------------------------------------------- life

    def hello(self):
        how = self.script.get("hello", "ok")
        body = {"program": "xptycho-worker", "version": "0.1.0", "build": "fake", "pid": os.getpid(),
                "devices": self.script.get("devices", [{"name": "cpu", "model": "fake", "absent": "",
                                                        "bytes_total": 64 * GIB, "bytes_free": 64 * GIB, "threads": 2}])}
        if how == "none":
            return
        if how == "late":
            time.sleep(self.script.get("late_s", 1))
        if how == "no-devices":
            del body["devices"]
        if how == "old":
            text = json.dumps(body).encode()
            self.packet(HEADER.pack(MAGIC, VERSION + 1, 0, len(text), 0, 0) + text)
            return
        if how == "garbage":
            self.packet(b"\xff" * 100)
            return
        for _ in range(2 if how == "twice" else 1):
            self.send("hello", body)

    def events(self, *events, job=None):
        self.send("events", {"id": job or self.job["id"], "events": list(events)})

    def done(self, state, reason="", detail="", result=None, job=None, **more):
        self.send("done", {"id": job or self.job["id"], "state": state, "reason": reason, "detail": detail,
                           "result": result, "problem": None, **more})
        self.job = None

    def turn_has_come(self, iteration):
        s = self.script
        return (s.get("do") and self.acted < self.begun <= s.get("jobs", 1 << 30) and iteration >= s.get("at", 1) and
                ("when" not in s or os.path.exists(s["when"])))

    def run(self):
        stages = self.job["job"]["recon"]
        stages = stages if isinstance(stages, list) else [stages]
        self.events({"type": "state", "state": "running", "reason": "", "detail": ""})
        for stage, what in enumerate(stages):
            for i in range(1, what.get("iterations", 1) + 1):
                if stage == 0 and self.turn_has_come(i):
                    self.acted = self.begun
                    if ACTIONS[self.script["do"]](self, self.script.get("size", 1)):
                        return
                self.serve_until(time.monotonic() + self.script.get("seconds", 0.01))
                if self.leaving:
                    return
                if self.cancelled:
                    return self.done("cancelled", "cancelled", "cancelled after an iteration")
                self.events({"type": "iter", "stage": stage, "iter": i, "data_error": 1.0 / i, "modes": 1, "seconds": 0.01})
        self.finish()

    def finish(self):
        path = self.job["output"]["path"]
        with open(path, "wb") as f:
            f.write(b"not a reconstruction\n")
        s = os.stat(path)
        self.done("succeeded", result={"path": path, "bytes": s.st_size, "sha256": "0" * 64, "inode": s.st_ino,
                                       "mtime_ns": s.st_mtime_ns, "iterations": 1, "data_error": 0.5,
                                       "object_shape": [1, 1], "probe_modes": 1, "object_pixel_m": 1e-8,
                                       "devices": ["cpu"], "cpu_threads": 1, "seconds": 0.1, "seconds_total": 0.1})

    def main(self):
        self.hello()
        while not self.leaving:
            self.serve(3600)
            if self.job:
                self.run()


# --------------------------------------------------------------------------------------- misbehaviour
# What returns True has ended the job.


def signal_self(number):
    def do(worker, size):
        signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), number)
        return False
    return do


def leave(worker, size):
    os._exit(size)


def hang(worker, size):
    """The engine stands still; the control thread lives and answers."""
    while not worker.leaving:
        worker.serve(3600)
        worker.cancelled = False
    return True


def deaf(worker, size):
    """Nothing is read any more, and only SIGKILL ends it."""
    while True:
        time.sleep(3600)


def sticky(worker, size):
    """What a worker says whose device is lost, and does after it."""
    worker.done("failed", "internal", "an illegal memory access was encountered (cudaErrorIllegalAddress)", lost="cpu")
    os._exit(70)


def grow(worker, size):
    block = mmap.mmap(-1, size << 20)
    for at in range(0, size << 20, 4096):
        block[at] = 1
    worker.kept.append(block)
    return False


def oversized(worker, size):
    worker.packet(HEADER.pack(MAGIC, VERSION, TYPES.index("events"), INLINE_MAX + 4096, 0, 0) + b" " * (INLINE_MAX + 4096))


def malformed(worker, size):
    text = b'{"id":"' + worker.job["id"].encode() + b'","events":[{"type":"iter",'
    worker.packet(HEADER.pack(MAGIC, VERSION, TYPES.index("events"), len(text), 0, 0) + text)


def wrong_length(worker, size):
    worker.packet(HEADER.pack(MAGIC, VERSION, TYPES.index("events"), 0xFFFFFFFF, 0, 0) + b"{}")


def unknown_type(worker, size):
    worker.packet(HEADER.pack(MAGIC, VERSION, 200, 2, 0, 0) + b"{}")


def not_its_message(worker, size):
    worker.send("start", {"id": worker.job["id"]})


def many_descriptors(worker, size):
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]
    worker.packet(HEADER.pack(MAGIC, VERSION, TYPES.index("events"), 2, 12, 0) + b"{}", fds)


def deep(worker, size):
    text = b'{"id":' + b"[" * 20000 + b"]" * 20000 + b"}"
    worker.packet(HEADER.pack(MAGIC, VERSION, TYPES.index("events"), len(text), 0, 0) + text)


def unknown_id(worker, size):
    other = "01KG7Q3N6W8Y2M4T6V8X0Z1A3C"
    worker.events({"type": "iter", "stage": 0, "iter": 99, "data_error": 0.1, "modes": 1, "seconds": 1.0}, job=other)
    job = worker.job
    worker.done("succeeded", result={"path": "/nowhere"}, job=other)
    worker.job = job


def no_type(worker, size):
    worker.events({"stage": 0})


def no_events(worker, size):
    worker.send("events", {"id": worker.job["id"], "events": "none"})


def lie_state(worker, size):
    worker.events({"type": "state", "state": "succeeded"})


def lie_done(worker, size):
    worker.send("done", {"id": worker.job["id"], "state": "succeeded", "reason": "", "detail": "", "result": {}})


def lie_running(worker, size):
    worker.send("done", {"id": worker.job["id"], "state": "running", "reason": "", "detail": "", "result": None})


def lie_end(worker, size):
    """Events that only the broker writes, and members that are its own."""
    worker.events({"type": "end", "state": "failed", "reason": "made up", "seq": 1},
                  {"type": "log", "text": "numbered by the worker", "seq": 1, "t": "1970-01-01T00:00:00.000Z"})


def reason(worker, size):
    worker.done("failed", "a reason\n\x1b[31m of its own", "x" * 100000)
    return True


def twice(worker, size):
    body = {"id": worker.job["id"], "state": "failed", "reason": "output", "detail": "said twice", "result": None}
    worker.send("done", body)
    worker.send("done", body)
    worker.job = None
    return True


def flood(worker, size):
    for i in range(0, size, 500):
        worker.events(*({"type": "log", "text": f"line {k} " + "y" * 60} for k in range(i, min(size, i + 500))))


ACTIONS = {"segv": signal_self(signal.SIGSEGV), "kill": signal_self(signal.SIGKILL), "abort": signal_self(signal.SIGABRT),
           "freeze": signal_self(signal.SIGSTOP), "leave": leave, "hang": hang, "deaf": deaf, "sticky": sticky, "grow": grow,
           "oversized": oversized, "malformed": malformed, "wrong-length": wrong_length, "unknown-type": unknown_type,
           "not-its-message": not_its_message, "many-descriptors": many_descriptors, "deep": deep, "unknown-id": unknown_id,
           "no-type": no_type, "no-events": no_events, "lie-state": lie_state, "lie-done": lie_done,
           "lie-running": lie_running, "lie-end": lie_end, "reason": reason, "twice": twice, "flood": flood}


def main():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: as every worker, it ends with the broker
    script = script_of_this_start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = Worker(int(sys.argv[sys.argv.index("--socket") + 1]), script)

    def term(*_):
        if not worker.ignores("term"):
            os._exit(0)

    signal.signal(signal.SIGTERM, term)
    worker.main()


if __name__ == "__main__":
    main()
