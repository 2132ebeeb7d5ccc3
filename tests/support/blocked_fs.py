"""A file system that answers only while it is told to, for tests: FUSE spoken by hand, one folder with plain files.

Reads of a file hang from block() on until unblock(), as on a network file system whose server is away; names and sizes
are still answered, from the kernel's cache where it has them.  A process that waits so does not die of SIGKILL."""

import ctypes
import errno
import os
import pathlib
import struct
import threading

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS, INTERRUPT, BATCH_FORGET = (
    1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 28, 29, 34, 36, 42)
ROOT, FIRST = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


def missing():
    """Why it cannot be had here; "" where it can."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse: {error.strerror}"
    return ""


class BlockedFolder:
    """Mounts `files` (name -> bytes) at `path`; may raise OSError where mounting is not allowed."""

    def __init__(self, path, files):
        self.path = pathlib.Path(path)
        self.path.mkdir()
        self.names = sorted(files)
        self.data = [files[name] for name in self.names]
        self.reads = 0
        self._answers = threading.Event()
        self._answers.set()
        self._opens = threading.Event()
        self._opens.set()
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.fd},rootmode=40755,user_id=0,group_id=0,allow_other"
        if _libc.mount(b"blocked", os.fsencode(self.path), b"fuse", 6, options.encode()) != 0:  # nosuid, nodev
            code = ctypes.get_errno()
            os.close(self.fd)
            raise OSError(code, os.strerror(code))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def block(self, opens=False):
        """Reads hang from now on, and with opens so does opening a file or the folder."""
        self._answers.clear()
        if opens:
            self._opens.clear()

    def unblock(self):
        self._answers.set()
        self._opens.set()

    def close(self):
        self.unblock()
        _libc.umount2(os.fsencode(self.path), 2)  # MNT_DETACH
        self.thread.join(10)

    # ---- the protocol of linux/fuse.h, version 7.31

    def _reply(self, unique, body=b"", error=0):
        try:
            os.write(self.fd, struct.pack("=IiQ", 16 + len(body), -error, unique) + body)
        except OSError:
            pass  # the caller is gone

    def _attributes(self, node):
        folder = node == ROOT
        size = 4096 if folder else len(self.data[node - FIRST])
        return struct.pack("=6Q10I", node, size, -(-size // 512), 1, 1, 1, 0, 0, 0, 0o40755 if folder else 0o100644, 1, 0, 0, 0,
                           4096, 0)

    def _read(self, unique, node, body):
        offset, size = struct.unpack_from("=QI", body, 8)
        self.reads += 1
        self._answers.wait()
        self._reply(unique, self.data[node - FIRST][offset:offset + size])

    def _open(self, unique):
        self._opens.wait()
        self._reply(unique, struct.pack("=QII", 1, 1, 0))  # FOPEN_DIRECT_IO: every read comes here

    def _serve(self):
        while True:
            try:
                request = os.read(self.fd, 1 << 17)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                os.close(self.fd)  # ENODEV: it was unmounted
                return
            _, code, unique, node = struct.unpack_from("=IIQQ", request)
            body = request[40:]
            if code == INIT:
                self._reply(unique, struct.pack("=4I2H2I2H8I", 7, 31, 1 << 16, 0, 12, 9, 1 << 16, 1, 32, 0, *[0] * 8))
            elif code == LOOKUP:
                name = body.split(b"\0")[0].decode()
                if name in self.names:
                    found = FIRST + self.names.index(name)
                    self._reply(unique, struct.pack("=4Q2I", found, 0, 1, 1, 0, 0) + self._attributes(found))
                else:
                    self._reply(unique, error=errno.ENOENT)
            elif code == GETATTR:
                self._reply(unique, struct.pack("=QII", 1, 0, 0) + self._attributes(node))
            elif code == OPEN:
                threading.Thread(target=self._open, args=(unique,), daemon=True).start()
            elif code == OPENDIR:
                threading.Thread(target=self._open, args=(unique,), daemon=True).start()
            elif code == READ:
                threading.Thread(target=self._read, args=(unique, node, body), daemon=True).start()
            elif code == READDIR:
                self._reply(unique)
            elif code == STATFS:
                self._reply(unique, struct.pack("=5Q10I", 1 << 20, 1 << 20, 1 << 20, 1000, 1000, 4096, 255, 4096, *[0] * 7))
            elif code in (RELEASE, FLUSH, RELEASEDIR, ACCESS):
                self._reply(unique)
            elif code not in (FORGET, INTERRUPT, BATCH_FORGET):
                self._reply(unique, error=errno.ENOSYS)
