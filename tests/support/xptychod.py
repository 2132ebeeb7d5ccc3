"""The real programs, driven from tests: start and stop a private daemon, speak HTTP to it, follow events.

Standard library only.  Nothing here sleeps for a fixed time: every wait has a condition and a deadline.
"""

import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import uuid

MARK = "XPTYCHOD_TEST_RUN"
DEADLINE_S = 60.0


def program(name):
    """Path of a built program; fails with the reason when it is not there."""
    folder = os.environ.get("XPTYCHOD_BIN")
    if not folder:
        raise RuntimeError("XPTYCHOD_BIN is not set; run the tests by ctest, or set it to the folder bin of a build")
    path = pathlib.Path(folder) / name
    if not path.exists():
        raise RuntimeError(f"'{path}' is not built")
    return str(path)


def wait_until(condition, what, deadline_s=DEADLINE_S):
    """The first true value of condition(), asked again and again."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        time.sleep(0.02)


# ------------------------------------------------------------------------------------ processes


def alive(pid):
    """Whether the process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_marked(mark):
    """(pid, program name) of every process that inherited the mark in its environment."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environ = pathlib.Path("/proc", entry, "environ").read_bytes()
            if wanted in environ.split(b"\0") and alive(int(entry)):
                command = pathlib.Path("/proc", entry, "cmdline").read_bytes().split(b"\0")[0].decode()
                found.append((int(entry), os.path.basename(command)))
        except OSError:
            continue
    return sorted(found)


# ----------------------------------------------------------------------------------------- HTTP


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()

    def __repr__(self):
        return f"{self.status} {self.body[:2000]!r}"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Api:
    """Calls over TCP with a token, or over the unix socket."""

    contract = None  # a module with check and check_event, which judge every answer; set by conftest.py

    def __init__(self, address, token=None, timeout=DEADLINE_S):
        self.address, self.token, self.timeout = address, token, timeout

    def connection(self):
        if self.address.startswith("http://"):
            return http.client.HTTPConnection(self.address.removeprefix("http://").rstrip("/"), timeout=self.timeout)
        return UnixConnection(self.address.removeprefix("unix:"), self.timeout)

    def _send(self, method, path, body, headers):
        connection = self.connection()
        headers = dict(headers or {})
        if self.token is not None:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body=body, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before all of the body was sent: the answer is there to be read
        return connection, connection.getresponse()

    def call(self, method, path, body=None, headers=None):
        connection, response = self._send(method, path, body, headers)
        try:
            answer = Response(response.status, response.headers, response.read())
        finally:
            connection.close()
        if self.contract:
            self.contract.check(method, path, answer)
        return answer

    def get(self, path, **headers):
        return self.call("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def post(self, path, body=None, **headers):
        return self.call("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})

    def delete(self, path):
        return self.call("DELETE", path)

    # ---- jobs

    def submit(self, job, **headers):
        response = self.post("/v1/jobs", job, **headers)
        assert response.status == 201, response
        return response.json()

    def show(self, job_id):
        response = self.get(f"/v1/jobs/{job_id}")
        assert response.status == 200, response
        return response.json()

    def events(self, job_id, **options):
        """Every event until `end`, as a list; `follow=0`, `start=SEQ` and `last=SEQ` as wanted."""
        with self.stream(job_id, **options) as stream:
            return list(stream)

    def stream(self, job_id, **options):
        return EventStream(self, f"/v1/jobs/{job_id}/events", **options)

    def finish(self, job_id):
        """Waits for the end of the job and returns its document."""
        last = self.events(job_id)[-1]
        assert last["type"] == "end", last
        return self.show(job_id)

    def wait_for_event(self, job_id, condition):
        """The first event for which condition(event) holds."""
        with self.stream(job_id) as stream:
            for event in stream:
                if condition(event):
                    return event
        raise AssertionError("the job ended without that event")

    def wait_for_iteration(self, job_id, at_least):
        return self.wait_for_event(job_id, lambda e: e["type"] == "iter" and e["iter"] >= at_least)


class EventStream:
    """Iterates over events as dictionaries, from application/x-ndjson or text/event-stream.

    Heartbeats keep a stream alive for ever, so the whole of it has a deadline."""

    def __init__(self, api, path, accept="application/x-ndjson", start=None, last=None, follow=None,
                 deadline_s=2 * DEADLINE_S):
        self.path, self.end = path, time.monotonic() + deadline_s
        query = [f"from={start}"] if start is not None else []
        query += [f"follow={follow}"] if follow is not None else []
        headers = {"Accept": accept}
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        self.sse = accept == "text/event-stream"
        self.connection, self.response = api._send("GET", path + ("?" + "&".join(query) if query else ""), None, headers)
        self.status = self.response.status
        if self.status not in (200, 204):
            body = self.response.read()
            self.connection.close()
            raise AssertionError(f"{self.status} {body!r}")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.connection.close()
        self.response.close()

    def lines(self):
        for line in self.response:
            if time.monotonic() > self.end:
                raise AssertionError(f"the stream {self.path} does not end in time")
            yield line.decode().rstrip("\n")

    def __iter__(self):
        return self._sse() if self.sse else self._ndjson()

    def _ndjson(self):
        for line in self.lines():
            if line:  # an empty line is a heartbeat
                event = json.loads(line)
                if Api.contract:
                    Api.contract.check_event(event)
                yield event

    def _sse(self):
        """Checks on the way that the fields of a message agree."""
        fields = {}
        for line in self.lines():
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            else:
                if "data" in fields:
                    event = json.loads(fields["data"])
                    assert fields["event"] == event["type"], fields
                    assert fields.get("id") == (None if event["type"] == "gap" else str(event["seq"])), fields
                    yield event
                fields = {}


# --------------------------------------------------------------------------------------- daemon


class Daemon:
    """A broker of its own in a private folder; start() may be called again after stop() or kill()."""

    def __init__(self, folder, *arguments):
        self.folder = pathlib.Path(folder)
        self.runtime, self.state = self.folder / "run", self.folder / "state"
        self.log = self.folder / "daemon.log"
        self.arguments = list(arguments)
        self.mark = uuid.uuid4().hex
        self.prefix = []  # a command that starts it in a place of its own
        self.environment = {}  # beside that of the test
        self.process = None
        self.ready = None

    def command(self):
        return [*self.prefix, program("xptychod"), "--user", "--port", "0", "--runtime-dir", str(self.runtime),
                "--state-dir", str(self.state), *self.arguments]

    def spawn(self):
        """Starts the program without waiting for it."""
        environment = dict(os.environ, **self.environment, **{MARK: self.mark})
        with open(self.log, "ab") as log:
            return subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = self.spawn()
        self.ready = wait_until(self._read_ready, "the daemon is ready")
        wait_until(lambda: self.process_of("xptycho-worker"), "the worker runs")
        return self

    def _read_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the daemon ended with {self.process.returncode}")
        try:
            ready = json.loads((self.runtime / "ready.json").read_text())
        except (OSError, ValueError):
            return None
        return ready if ready["pid"] == self.process.pid else None

    def pids_of(self, name):
        return [pid for pid, running in processes_marked(self.mark) if running == name]

    def pid_of(self, name):
        return next(iter(self.pids_of(name)), None)

    process_of = pid_of

    @property
    def api(self):
        """Over TCP with the daemon's own token."""
        token = pathlib.Path(self.ready["token_file"]).read_text().strip()
        return Api(self.ready["http"], token)

    @property
    def unix(self):
        return Api(self.ready["unix"])

    @property
    def admin(self):
        return Api(self.ready["admin"])

    def kill(self):
        """kill -9 of the broker; the others die with it."""
        self.process.kill()
        self.process.wait(DEADLINE_S)
        wait_until(lambda: not processes_marked(self.mark), "the children died with the broker")

    def kill_worker(self):
        pid = self.pid_of("xptycho-worker")
        assert pid, "no worker runs"
        os.kill(pid, signal.SIGKILL)
        return pid

    def stop(self):
        """SIGTERM; the exit status must be 0 and no process may be left."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError("the daemon does not stop") from None
        assert status == 0, f"the daemon ended with {status}"
        wait_until(lambda: not processes_marked(self.mark), "no process of the daemon is left", 10)
        assert not (self.runtime / "ready.json").exists(), "ready.json outlives the daemon"

    def clean_up(self):
        """Whatever is left, whatever happened."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid, _ in processes_marked(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def log_tail(self, lines=60):
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError as error:
            return f"no log: {error}"


def run(name, *arguments, timeout=300, **options):
    """Runs a program to its end and returns what subprocess.run returns, output as text."""
    return subprocess.run([program(name), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=timeout, check=False, **options)
