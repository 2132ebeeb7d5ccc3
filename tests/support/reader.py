"""Speaks to xptycho-reader as the broker does: one packet there, one packet and sealed memory files back."""

import array
import fcntl
import json
import mmap
import os
import socket
import struct
import subprocess

import h5py
import numpy as np

import xptychod

HEADER = struct.Struct("=IHHIHH")  # magic, version, type, bytes of JSON, descriptors, flags
MAGIC, VERSION = 0x43507458, 1
TYPES = {"hello": 0, "probe": 1, "read": 2, "scan": 3, "refused": 4}
SEALS = 0x1 | 0x2 | 0x4 | 0x8  # F_SEAL_SEAL, SHRINK, GROW, WRITE
F_GET_SEALS = 1034


class Answer:
    """`kind` is "scan" or "refused"; `body` what came; `arrays` name -> NumPy array."""

    def __init__(self, kind, body, arrays, sealed, status):
        self.kind, self.body, self.arrays, self.sealed, self.status = kind, body, arrays, sealed, status

    @property
    def problem(self):
        assert self.kind == "refused", self.body
        return self.body["problem"]

    @property
    def fault(self):
        return self.problem["type"].rsplit(":", 1)[1]

    @property
    def errors(self):
        return {e["pointer"]: e["detail"] for e in self.problem["errors"]}


def _arrays(body, fds):
    arrays, sealed = {}, True
    for fd, entry in zip(fds, body.get("arrays", ())):
        sealed = sealed and fcntl.fcntl(fd, F_GET_SEALS) & SEALS == SEALS
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
            arrays[entry["name"]] = np.frombuffer(mapped[:], entry["type"]).reshape(entry["shape"])
    return arrays, sealed


def send(message, env=None, timeout=60, program=None):
    """Starts a reader (or `program` in its place), sends one packet, returns (packet, descriptors, exit status)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = subprocess.Popen([program or xptychod.program("xptycho-reader"), "--socket", str(theirs.fileno())],
                                       pass_fds=[theirs.fileno()], env=env, stdin=subprocess.DEVNULL)
        try:
            ours.settimeout(timeout)
            ours.send(message)
            packet, ancillary, _, _ = ours.recvmsg(1 << 20, socket.CMSG_SPACE(16 * 4))
            fds = array.array("i")
            for _, _, data in ancillary:
                fds.frombytes(data[:len(data) - len(data) % fds.itemsize])
            return packet, list(fds), process.wait(timeout)
        finally:
            process.kill()
            process.wait()


def ask(kind, job, roots=None, write_roots=None, output_path=None, **options):
    """The reader's answer to a job, or to {"scan": {"path": job}} where job is a path."""
    if not isinstance(job, dict):
        job = {"scan": {"path": str(job)}}
    if roots is not None:
        roots = [str(r) for r in roots]
    if write_roots is not None:
        write_roots = [str(r) for r in write_roots]
    return exchange(kind, {"job": job, "roots": roots, "write_roots": write_roots, "output_path": output_path}, **options)


def exchange(kind, body, **options):
    """The reader's answer to a message with that body."""
    body = json.dumps(body).encode()
    packet, fds, status = send(HEADER.pack(MAGIC, VERSION, TYPES[kind], len(body), 0, 0) + body, **options)
    assert packet, f"the reader said nothing (exit status {status})"
    try:
        magic, version, answer, length, count, flags = HEADER.unpack_from(packet)
        assert (magic, version) == (MAGIC, VERSION)
        text = os.pread(fds[-1], length, 0) if flags & 1 else packet[HEADER.size:]
        assert len(text) == length
        body = json.loads(text)
        arrays, sealed = _arrays(body, fds[:count])
    finally:
        for fd in fds:
            os.close(fd)
    return Answer({number: name for name, number in TYPES.items()}[answer], body, arrays, sealed, status)


# ------------------------------------------------------------------------------- what tests say of an answer


def probe(job, **options):
    return ask("probe", job, **options)


def read(job, **options):
    return ask("read", job, **options)


def refused(job, *words, pointer="/scan/path", fault="dataset", kinds=("probe",), **options):
    """Refused with that fault and pointer, all words in the sentence; the sentence."""
    for kind in kinds:
        answer = ask(kind, job, **options)
        assert answer.kind == "refused" and answer.status == 0, answer.body
        assert answer.fault == fault, answer.problem
        assert pointer in answer.errors, answer.problem
        text = answer.errors[pointer]
        for word in words:
            assert str(word) in text, (word, text)
        assert "\n" not in text and not text.endswith("."), text
    return text


def rewrite(path, **datasets):
    """Replaces datasets of a scan file; None removes one."""
    with h5py.File(path, "r+") as f:
        for name, value in datasets.items():
            if name in f["scan"]:
                del f["scan"][name]
            if value is not None:
                f["scan"][name] = value
    return path


def inspect(path, *options):
    """Exit status and what `inspect --json` says."""
    done = xptychod.run("xptycho-reader", "inspect", path, "--json", *options)
    assert done.stdout, done
    return done.returncode, json.loads(done.stdout)
