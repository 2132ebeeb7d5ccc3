"""Reconstructions by a running xptychod, from Python: submit, follow, fetch.

One file, standard library only; copy it into a pipeline as it is.  Python 3.9 or later.

    import xptycho_client

    job = xptycho_client.submit({"scan": {"path": "/data/scan.h5"}, "recon": {"iterations": 100}})
    for event in xptycho_client.events(job["id"]):
        if event["type"] == "iter":
            print(event["iter"], event["data_error"])
    print(xptycho_client.result(job["id"])["path"])

The functions of this module find the daemon as the command `xptycho` does: XPTYCHO_SERVER, the
ready.json of a daemon of one's own, /run/xptycho/api.sock.  A `Client` takes address and token as
arguments, and has more calls.  Documents go in and come out as dictionaries; docs/protocol.md tells
their members.

A connection that breaks is tried again for `retry_s` seconds, and nothing happens twice by that: a
submission carries an Idempotency-Key, events go on after the last one that was seen.  What the daemon
refuses is raised as `Refused` with its problem document; where nobody answers, `Unreachable`.

A client keeps no connection between calls and may be used by several threads.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import ssl
import time
import urllib.parse
import uuid
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union

__all__ = ["Client", "Error", "Unreachable", "Refused", "WaitTimeout", "submit", "wait", "events", "result", "cancel"]

Json = Dict[str, Any]
Path = Union[str, "os.PathLike[str]"]

SYSTEM_SOCKET = "/run/xptycho/api.sock"
SILENCE_S = 45.0  # a stream says something every 15 s: three times nothing is a lost connection
PAUSE_FIRST_S, PAUSE_MOST_S = 0.25, 3.0
JOB_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}\Z")


class Error(Exception):
    """Everything that this module raises on its own account."""


class Unreachable(Error):
    """No answer: nobody is there, or the connection stayed lost for `retry_s`."""


class WaitTimeout(Error, TimeoutError):
    """The job did not end in the time that `wait` was given.  It goes on."""


class Refused(Error):
    """The daemon answered with an error.

    `problem` is its document (RFC 9457), `status` the HTTP status, `type` the short name as in docs/protocol.md,
    `errors` a list of {"pointer", "detail"}, `retry_after` seconds or None.

        try:
            client.submit({"scan": {"path": "/data/scan.h5"}, "recon": {"interations": 10}})
        except Refused as refused:
            refused.type                    # 'invalid-job'
            refused.errors[0]["pointer"]    # '/recon/interations'
    """

    def __init__(self, status: int, problem: Json, retry_after: Optional[int] = None) -> None:
        self.status, self.problem, self.retry_after = status, problem, retry_after
        self.type = str(problem.get("type", "")).rpartition(":")[2]
        self.errors: List[Dict[str, str]] = problem.get("errors") or []
        text = str(problem.get("detail") or problem.get("title") or f"the daemon answered {status}")
        super().__init__("\n  ".join([text, *(f"{e.get('pointer') or '(the document)'}: {e.get('detail')}"
                                              for e in self.errors)]))


class _Lost(Unreachable):
    """This attempt failed; `absent`: nobody was there, so nothing was sent."""

    def __init__(self, text: str, absent: bool = False) -> None:
        super().__init__(text)
        self.absent = absent


class _Patience:
    """How long to try again.  Nobody there at the very start is an answer, not an interruption."""

    def __init__(self, retry_s: float) -> None:
        self.retry_s, self.met = retry_s, False
        self.pause, self.end = PAUSE_FIRST_S, None  # type: float, Optional[float]

    def answered(self) -> None:
        self.met, self.pause, self.end = True, PAUSE_FIRST_S, None

    @contextlib.contextmanager
    def trying(self) -> Iterator[None]:
        """Around an attempt: sleeps after one that may be repeated, so that the caller's loop goes on."""
        try:
            yield
        except _Lost as error:
            self._again(error, self.met or self.end is not None or not error.absent)
        except Refused as error:
            self._again(error, error.status == 503 and (self.met or self.end is not None))  # it stops, to start again

    def _again(self, error: Error, may: bool) -> None:
        now = time.monotonic()
        self.end = now + self.retry_s if self.end is None else self.end
        if not may or now + self.pause > self.end:
            raise error
        time.sleep(self.pause)
        self.pause = min(2 * self.pause, PAUSE_MOST_S)


# ------------------------------------------------------------------------------- where it is


def _ready_files() -> Iterator[pathlib.Path]:
    """Of a daemon of one's own (`xptychod --user`)."""
    runtime, state, home = (os.environ.get(name) for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME"))
    if runtime:
        yield pathlib.Path(runtime, "xptycho/ready.json")
    if state:
        yield pathlib.Path(state, "xptycho/run/ready.json")
    elif home:
        yield pathlib.Path(home, ".local/state/xptycho/run/ready.json")


def _read_ready(path: Path) -> Json:
    try:
        ready = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Unreachable(f"no daemon is running there: '{path}' does not exist") from None
    except (OSError, ValueError) as error:
        raise Error(f"the ready file '{path}' cannot be used: {error}") from error
    if not isinstance(ready, dict) or not (ready.get("unix") or ready.get("http")):
        raise Error(f"the ready file '{path}' names neither 'unix' nor 'http'")
    return ready


def _read_token(path: Path) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise Error(f"the token file '{path}' cannot be read: {error}") from error


def _job_path(id: str, rest: str = "") -> str:
    if not JOB_ID.match(id):
        raise Error(f"'{id}' is no job id: an id has 26 letters and digits")
    return f"/v1/jobs/{id}{rest}"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


# ------------------------------------------------------------------------------------ client


class Client:
    """Calls to one daemon.

    server       "http://HOST:PORT", "https://HOST", "unix:/PATH", a runtime folder or its ready.json; None looks in
                 the places that the module's text names, in that order: the first that exists decides
    token        for TCP; a unix socket needs none.  None takes `token_file`, XPTYCHO_TOKEN, the file named by
                 XPTYCHO_TOKEN_FILE, or that of a ready.json which lists the same address
    timeout      seconds without an answer after which a call counts as lost
    retry_s      how long a lost connection is tried again; 0 = not at all
    ssl_context  for https; None trusts what the system trusts

        client = Client("https://beamline.example.org", token_file="token")
        job = client.wait(client.submit({"scan": {"path": "/data/scan.h5"}})["id"])
        print(job["state"], job["reason"], job["detail"])
    """

    def __init__(self, server: Optional[str] = None, token: Optional[str] = None, token_file: Optional[Path] = None,
                 timeout: float = 60.0, retry_s: float = 30.0, ssl_context: Optional[ssl.SSLContext] = None) -> None:
        self.timeout, self.retry_s, self._ssl = timeout, retry_s, ssl_context
        self.ready: Json = {}  # the ready.json that led here
        self.server = self._find_server(server)
        self._url = urllib.parse.urlsplit(self.server)
        if not (self._url.scheme == "unix" and self._url.path.startswith("/")) and \
                not (self._url.scheme in ("http", "https") and self._url.hostname and not self._url.path.strip("/")):
            raise Error(f"server '{self.server}': give http://HOST:PORT, unix:/PATH or the daemon's runtime folder")
        self._token = self._find_token(token, token_file)
        if self._token is not None and not re.match(r"[\x21-\x7e]+\Z", self._token):
            raise Error("a token is one word of printable ASCII")

    def _find_server(self, server: Optional[str]) -> str:
        server = server or os.environ.get("XPTYCHO_SERVER")
        if server and ("://" in server or server.startswith("unix:")):
            return server
        if server and pathlib.Path(server).is_socket():
            return f"unix:{os.path.abspath(server)}"
        if server:
            self.ready = _read_ready(pathlib.Path(server, "ready.json") if os.path.isdir(server) else server)
        else:
            found = next((path for path in _ready_files() if path.exists()), None)
            if found is None:
                return f"unix:{SYSTEM_SOCKET}"
            self.ready = _read_ready(found)
        return f"unix:{self.ready['unix']}" if self.ready.get("unix") else str(self.ready["http"])

    def _find_token(self, token: Optional[str], token_file: Optional[Path]) -> Optional[str]:
        if token is None and token_file is None:
            token = os.environ.get("XPTYCHO_TOKEN") or None
            token_file = os.environ.get("XPTYCHO_TOKEN_FILE") or None
        if token is None and token_file is None and self._url.scheme != "unix":
            token_file = self.ready.get("token_file")
            for path in () if self.ready else _ready_files():
                with contextlib.suppress(Error):
                    ready = _read_ready(path)
                    if ready.get("http") == self.server.rstrip("/"):
                        token_file = token_file or ready.get("token_file")
        if token is None and token_file is not None:
            token = _read_token(token_file)
        return None if token is None else token.strip()

    # ---- one request

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._url.scheme == "unix":
            return _UnixConnection(self._url.path, timeout)
        host, port = str(self._url.hostname), self._url.port
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._ssl)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    @contextlib.contextmanager
    def _lose(self, absent: bool = False) -> Iterator[None]:
        """What can go wrong on a line becomes _Lost; the block does nothing else that could fail so."""
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise Error(f"the certificate of '{self.server}' is not trusted: {error.verify_message}") from error
        except (OSError, http.client.HTTPException) as error:
            what = "failed" if absent else "was lost"
            raise _Lost(f"the connection to '{self.server}' {what}: {error!r}", absent) from error

    @contextlib.contextmanager
    def _request(self, method: str, path: str, body: Optional[Mapping[str, Any]] = None,
                 headers: Optional[Dict[str, str]] = None, timeout: Optional[float] = None
                 ) -> Iterator[http.client.HTTPResponse]:
        """The open response of one attempt; anything but success, and "not modified", raises Refused."""
        headers = {"Accept": "application/json, application/problem+json", **(headers or {})}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            data = json.dumps(body, allow_nan=False).encode()
            headers["Content-Type"] = "application/json"
        connection = self._connection(self.timeout if timeout is None else timeout)
        try:
            with self._lose(absent=True):
                connection.connect()
            with self._lose():
                # What is refused before all of it was sent has its answer nevertheless.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.request(method, path, body=data, headers=headers)
                response = connection.getresponse()
                # http.client takes a head that was cut off for a whole one; what frames the body is missing then.
                if response.length is None and not response.chunked:
                    raise http.client.IncompleteRead(b"")
            if response.status >= 300 and response.status != 304:
                raise self._refused(response)
            yield response
        finally:
            connection.close()

    def _refused(self, response: http.client.HTTPResponse) -> Refused:
        with self._lose():
            data = response.read()
        try:
            problem = json.loads(data)
        except ValueError:
            problem = None  # of a proxy, or of the HTTP library
        if not isinstance(problem, dict):
            problem = {"status": response.status, "detail": f"{response.status} {response.reason}"}
        after = response.headers.get("Retry-After", "")
        return Refused(response.status, problem, int(after) if after.isdecimal() else None)

    def _call(self, method: str, path: str, body: Optional[Mapping[str, Any]] = None,
              headers: Optional[Dict[str, str]] = None) -> Any:
        """The JSON of the answer, or None.  Only for calls that may be repeated."""
        patience = _Patience(self.retry_s)
        while True:
            with patience.trying():
                with self._request(method, path, body, headers) as response, self._lose():
                    data = response.read()
                try:
                    return json.loads(data) if data else None
                except ValueError as error:
                    raise Error(f"'{self.server}' does not answer like xptychod: {data[:80]!r}") from error

    # ---- calls

    def submit(self, job: Mapping[str, Any], idempotency_key: Optional[str] = None) -> Json:
        """Hands in a job document and returns the job; its "id" is what the other calls take.

        Two submissions of the same document with the same key (at most 255 letters, digits and signs, no blanks)
        are one job, also hours apart: give a key where a pipeline may run a step twice.  Without one, a fresh key
        protects this call alone.

            job = client.submit({"name": "tile 12", "scan": {"path": "/data/scan.h5"}}, "proposal-4711-tile-12")
        """
        answer: Json = self._call("POST", "/v1/jobs", job, {"Idempotency-Key": idempotency_key or str(uuid.uuid4())})
        return answer

    def dry_run(self, job: Mapping[str, Any]) -> Json:
        """What the daemon would say to this job; nothing is created."""
        answer: Json = self._call("POST", "/v1/jobs?dry_run=true", job)
        return answer

    def show(self, id: str) -> Json:
        """The job as it is now."""
        answer: Json = self._call("GET", _job_path(id))
        return answer

    def list(self, states: Sequence[str] = (), limit: Optional[int] = None) -> Iterator[Json]:
        """Jobs, newest first, without their documents.

            for job in client.list(["queued", "running"]):
                print(job["id"], job["name"], job["state"])
        """
        query = [("state", state) for state in states]
        cursor: Optional[str] = None
        left = 1 << 62 if limit is None else limit
        while left > 0:
            size = [("limit", str(min(left, 200)))] + ([("cursor", cursor)] if cursor else [])
            page = self._call("GET", "/v1/jobs?" + urllib.parse.urlencode(query + size))
            yield from page["jobs"]
            left, cursor = left - len(page["jobs"]), page.get("next")
            if not cursor:
                return

    def cancel(self, id: str) -> Json:
        """Asks for the end of a job and returns it; one that has ended is left as it is."""
        answer: Json = self._call("POST", _job_path(id, "/cancel"))
        return answer

    def result(self, id: str) -> Json:
        """Path, size, hash and figures; before there is a result, Refused with type "result-not-ready"."""
        answer: Json = self._call("GET", _job_path(id, "/result"))
        return answer

    def download(self, id: str, path: Path, what: str = "result/data") -> None:
        """Fetches the result file, "preview.png?what=object_phase" or "log" into a file, which is replaced as a whole.

            client.download(job["id"], "recon.h5")
        """
        target = pathlib.Path(path)
        part = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.part")
        patience = _Patience(self.retry_s)
        try:
            while True:
                with patience.trying():
                    self._download(_job_path(id, "/" + what), part)
                    os.replace(part, target)
                    return
        finally:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()

    def _download(self, path: str, part: pathlib.Path) -> None:
        with self._request("GET", path, headers={"Accept": "*/*"}) as response, open(part, "wb") as file:
            while True:
                with self._lose():
                    block = response.read(1 << 20)
                    if not block and response.length:
                        raise http.client.IncompleteRead(b"", response.length)
                if not block:
                    break
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    def wait(self, id: str, timeout: Optional[float] = None) -> Json:
        """Waits until the job has ended and returns it.  Look at "state": it may have failed.

        Raises WaitTimeout after `timeout` seconds; None waits as long as it takes.
        """
        end = time.monotonic() + (1e9 if timeout is None else timeout)
        patience, path = _Patience(self.retry_s), _job_path(id)
        job: Json = {}
        headers: Dict[str, str] = {}
        while True:
            left = max(0.0, min(30.0, end - time.monotonic()))
            if headers:
                headers["Prefer"] = f"wait={max(1, round(left))}"
            with patience.trying(), self._request("GET", path, None, headers, self.timeout + left) as response:
                if response.status != 304:  # it has changed
                    with self._lose():
                        job = json.loads(response.read())
                    headers = {"If-None-Match": response.headers["ETag"]}
                patience.answered()
            if job.get("terminal"):
                return job
            if time.monotonic() >= end:
                raise WaitTimeout(f"job {id} is still {job.get('state', 'out of reach')} after {timeout:g} s")

    def events(self, id: str, from_seq: int = 1) -> Iterator[Json]:
        """The events of a job as they happen, each once and in order, from number `from_seq` to the event "end".

        Goes on by itself after a lost connection and after a restart of the daemon.  To go on in another
        process, remember the last "seq" and start one above it.

            for event in client.events(job["id"]):
                if event["type"] == "iter":
                    print(event["iter"], event["data_error"])
                elif event["type"] == "end":
                    print(event["state"], event["reason"])
        """
        last, patience = max(from_seq, 1) - 1, _Patience(self.retry_s)
        while True:
            with patience.trying():
                for event in self._stream(id, last, patience):
                    last = event.get("seq", last)
                    yield event
                    if event["type"] == "end":
                        return
                return  # nothing comes after the last one

    def _stream(self, id: str, last: int, patience: Optional[_Patience] = None) -> Iterator[Json]:
        """What comes after `last` on one connection; without patience, what there is now."""
        path = _job_path(id, "/events" if patience else "/events?follow=0")
        headers = {"Accept": "application/x-ndjson"}
        if last > 0:
            headers["Last-Event-ID"] = str(last)
        with self._request("GET", path, None, headers, SILENCE_S) as response:
            if patience:
                patience.answered()
            while response.status == 200:
                with self._lose():
                    line = response.readline()
                    if not line.endswith(b"\n") and (line or patience):
                        raise http.client.IncompleteRead(line)  # what is torn comes again
                if not line:
                    return
                event = json.loads(line) if line.strip() else {}  # an empty line is a heartbeat
                if event.get("seq", last + 1) > last and event:
                    last = event.get("seq", last)
                    yield event

    # ---- ZeroMQ, where pyzmq is installed

    def progress(self, id: str, from_seq: int = 1, pub: Optional[str] = None,
                 configure: Optional[Callable[[Any], None]] = None) -> Iterator[Json]:
        """As `events`, but what is new comes over ZeroMQ from `pub` (None: as ready.json says).  Needs pyzmq.

        A subscriber that is late or slow misses messages without being told, so everything is counted, and
        what is missing is fetched over HTTP.  `configure` gets the SUB socket before it connects, for instance
        to set CURVE keys.
        """
        try:
            import zmq
        except ImportError as error:
            raise Error("progress() needs pyzmq (python3-zmq); events() needs nothing") from error
        address = pub or self.ready.get("zmq_pub")
        if not address:
            raise Error("the address of progress is not known: give pub='tcp://HOST:PORT'")
        topic, last = _job_path(id).replace("/v1/jobs", "job").encode() + b"/", max(from_seq, 1) - 1
        with zmq.Context() as context, context.socket(zmq.SUB) as sub:
            sub.setsockopt(zmq.LINGER, 0)
            sub.setsockopt(zmq.RCVTIMEO, 5000)  # a running job says something every 2 s
            # The second topic shows the right to the first; the token goes no further than the bridge.
            for wanted in (b"welcome", topic, *([topic + self._token.encode()] if self._token else [])):
                sub.setsockopt(zmq.SUBSCRIBE, wanted)
            if configure:
                configure(sub)
            sub.connect(address)
            patience, ended = _Patience(self.retry_s), False
            while not ended:
                # First the subscription, then what was before it: in the other order there is a hole.
                try:
                    parts = sub.recv_multipart()
                except zmq.Again:
                    parts = []
                event = json.loads(parts[3]) if len(parts) == 4 and parts[0] == topic else {}
                if event.get("seq", 0) == last + 1:
                    news: Iterator[Json] = iter([event])
                elif event.get("seq", event.get("last_seq", last + 1)) > last:  # a hole, a beat, welcome, silence
                    news = self._stream(id, last)
                else:
                    continue
                with patience.trying():
                    for event in news:
                        last = event.get("seq", last)
                        ended = event["type"] == "end"
                        yield event
                    patience.answered()


# -------------------------------------------------------------------------- without a client


def submit(job: Mapping[str, Any], idempotency_key: Optional[str] = None) -> Json:
    """Client().submit"""
    return Client().submit(job, idempotency_key)


def wait(id: str, timeout: Optional[float] = None) -> Json:
    """Client().wait"""
    return Client().wait(id, timeout)


def events(id: str, from_seq: int = 1) -> Iterator[Json]:
    """Client().events"""
    return Client().events(id, from_seq)


def result(id: str) -> Json:
    """Client().result"""
    return Client().result(id)


def cancel(id: str) -> Json:
    """Client().cancel"""
    return Client().cancel(id)
