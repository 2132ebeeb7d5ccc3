"""deploy/nginx-xptychod.conf and deploy/Caddyfile with the real programs: TLS in front, the daemon behind.

Each recipe is used as it is in the tree, but for name, ports and certificate, in a private folder and as an
ordinary process.
"""

import contextlib
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid
import warnings

import pytest

import conformance
import xptychod

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client" / "python"))

from xptycho_client import Client, Refused  # noqa: E402

NAME = "beamline.example.org"  # as the recipes say


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", folder / "key.pem",
                    "-out", folder / "cert.pem"], check=True, capture_output=True, timeout=60)
    return folder


def changed(text, *changes):
    for old, new in changes:
        assert old in text, f"the recipe has no '{old}' any more"
        text = text.replace(old, new)
    return text


def nginx(folder, backend, port, certificate):
    """The recipe inside the least of a main configuration."""
    recipe = changed((ROOT / "deploy/nginx-xptychod.conf").read_text(), ("127.0.0.1:8270", backend),
                     ("listen 443 ", f"listen 127.0.0.1:{port} "), (f"/etc/ssl/certs/{NAME}.pem", str(certificate / "cert.pem")),
                     (f"/etc/ssl/private/{NAME}.key", str(certificate / "key.pem")))
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;\n" if os.geteuid() == 0 else ""  # who can enter the private folder
    (folder / "nginx.conf").write_text(f"{user}daemon off;\npid {folder}/pid;\nworker_processes 1;\n"
                                       f"events {{ worker_connections 512; }}\n"
                                       f"http {{\naccess_log {folder}/access.log;\n{temporary}{recipe}\n}}\n")
    return ["nginx", "-p", folder, "-e", folder / "error.log", "-c", folder / "nginx.conf"]


def caddy(folder, backend, port, certificate):
    recipe = changed((ROOT / "deploy/Caddyfile").read_text(), ("127.0.0.1:8270", backend),
                     (f"\n{NAME} {{", f"\nhttps://{NAME}:{port} {{\n\tbind 127.0.0.1\n"
                                      f"\ttls {certificate}/cert.pem {certificate}/key.pem"))
    (folder / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https off\n\tstorage file_system " + f"{folder}/storage\n}}\n" + recipe)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", folder / "Caddyfile"]


class Proxied:
    def __init__(self, daemon, port, certificate, folder, process):
        self.daemon, self.port, self.folder, self.process = daemon, port, folder, process
        self.context = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
        self.token = pathlib.Path(daemon.ready["token_file"]).read_text().strip()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def client(self, **options):
        """The Python client, for which the name leads to this machine."""
        client = Client(f"https://{NAME}:{self.port}", **{"token": self.token, "ssl_context": self.context, **options})
        make = client._connection

        def connection(timeout):
            made = make(timeout)
            made._create_connection = lambda address, timeout, source: socket.create_connection(("127.0.0.1", self.port), timeout)
            return made

        client._connection = connection
        return client

    def exchange(self, text):
        """Bytes over TLS, as they are; the whole of what comes back."""
        with self.context.wrap_socket(self.connect(), server_hostname=NAME) as line:
            line.sendall(text)
            answer = b""
            while data := line.recv(65536):
                answer += data
        return answer


@contextlib.contextmanager
def behind(recipe, folder, certificate):
    """A daemon with the proxy in front, both ended and checked."""
    daemon = xptychod.Daemon(folder / "daemon", "--host", NAME, "--origin", f"https://{NAME}")
    process = None
    try:
        daemon.start()
        port = free_port()
        command = recipe(folder, daemon.ready["http"].removeprefix("http://"), port, certificate)
        with open(folder / "output", "wb") as output:
            process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)})
        proxied = Proxied(daemon, port, certificate, folder, process)

        def listening():
            assert process.poll() is None, (folder / "output").read_text()
            try:
                proxied.connect().close()
            except OSError:
                return False
            return True

        xptychod.wait_until(listening, f"{recipe.__name__} listens")
        yield proxied
        assert process.poll() is None, (folder / "output").read_text()
        daemon.stop()
    finally:
        if process:
            process.terminate()
            process.wait(30)
        daemon.clean_up()


@pytest.fixture(scope="module", params=[nginx, caddy], ids=["nginx", "caddy"])
def proxied(request, tmp_path_factory, certificate):
    name = request.param.__name__
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    with behind(request.param, tmp_path_factory.mktemp(name), certificate) as proxied:
        yield proxied


def job_of(path, iterations=5):
    return {"scan": {"path": path}, "recon": {"iterations": iterations}}


def test_a_job_from_submission_to_its_file(proxied, scan_file, tmp_path):
    client = proxied.client()
    job = client.wait(client.submit(job_of(scan_file))["id"], 60)
    assert job["state"] == "succeeded"
    client.download(job["id"], tmp_path / "r.h5")
    assert (tmp_path / "r.h5").read_bytes() == pathlib.Path(job["result"]["path"]).read_bytes()
    client.download(job["id"], tmp_path / "p.png", "preview.png?what=probe_phase")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_every_event_comes_when_it_happens(proxied, slow_scan_file):
    """Held against the daemon's own stream: an event is there within a second, while the job runs."""
    client = proxied.client()
    job = client.submit(job_of(slow_scan_file, 100000))["id"]
    direct, late = {}, []
    ended = threading.Event()

    def watch():
        with proxied.daemon.unix.stream(job) as stream:
            for event in stream:
                direct[event["seq"]] = time.monotonic()
                if ended.is_set():
                    return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    iterations = 0
    for event in client.events(job):
        now = time.monotonic()
        if event["type"] == "iter":
            iterations += 1
            late.append(now - direct.get(event["seq"], now))
            if iterations == 20:
                break
    assert client.show(job)["state"] == "running", "what was seen was seen in mid-run"
    ended.set()
    client.cancel(job)
    watcher.join(60)
    assert sorted(late)[len(late) // 2] < 1.0, late


def test_a_quiet_stream_stays_open(proxied, slow_scan_file, scan_file):
    """A job that waits behind another says nothing: the first event is there at once, alone."""
    client = proxied.client()
    first = client.submit(job_of(slow_scan_file, 100000))["id"]
    proxied.daemon.unix.wait_for_iteration(first, 1)
    waiting = client.submit(job_of(scan_file))["id"]
    begun = time.monotonic()
    events = client.events(waiting)
    assert next(events)["state"] == "queued" and time.monotonic() - begun < 5
    client.cancel(first)
    assert [event["type"] for event in events][-1] == "end"


def test_the_long_poll_goes_through(proxied, slow_scan_file):
    client = proxied.client()
    job = client.submit(job_of(slow_scan_file, 100000))["id"]
    canceller = threading.Timer(1.0, proxied.client().cancel, [job])
    canceller.start()
    assert client.wait(job, 60)["state"] == "cancelled"
    canceller.join()


def test_problems_stay_what_they_are(proxied, tmp_path):
    with pytest.raises(Refused) as refused:
        proxied.client().submit({"scan": {"path": str(tmp_path / "none.h5")}})
    assert (refused.value.status, refused.value.type) == (422, "dataset") and refused.value.errors
    with pytest.raises(Refused) as refused:
        proxied.client().submit({"scan": {"path": "/" + "x" * (1 << 20)}})
    assert refused.value.status == 413


def test_nobody_has_rights_of_the_proxy(proxied):
    """The proxy adds no credentials of its own."""
    for token in (None, "0" * 64):
        with pytest.raises(Refused) as refused:
            list(proxied.client(token=token).list(limit=1))
        assert (refused.value.status, refused.value.type) == (401, "unauthenticated")


def request(path, *headers, host=NAME):
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", ""]).encode()


def test_pages_of_the_name_may_call_and_others_not(proxied):
    token = f"Authorization: Bearer {proxied.token}"
    assert proxied.exchange(request("/v1/queue", token, f"Origin: https://{NAME}")).startswith(b"HTTP/1.1 200 ")
    assert proxied.exchange(request("/v1/queue", token, "Origin: https://elsewhere.example")).startswith(b"HTTP/1.1 403 ")


def test_paths_arrive_as_they_were_sent(proxied):
    """Neither decoded nor cleaned up on the way: the daemon judges the bytes."""
    token = f"Authorization: Bearer {proxied.token}"
    for path in ("/v1/jobs/..%2f..%2fetc", "/v1/jobs/%00", "//v1//queue"):
        status = int(proxied.exchange(request(path, token)).split()[1])
        assert status in (400, 404), (path, status)


def test_a_smuggled_request_never_reaches_the_daemon(proxied):
    hidden = f"GET /v1/limits-{proxied.port} HTTP/1.1\r\nHost: {NAME}\r\n\r\n"
    both = (f"POST /v1/jobs HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Bearer {proxied.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(hidden) + 5}\r\nTransfer-Encoding: chunked\r\n"
            f"Connection: close\r\n\r\n0\r\n\r\n{hidden}")
    answer = proxied.exchange(both.encode())
    assert answer.count(b"HTTP/1.1 ") == 1 and answer.split()[1] == b"400"
    assert f"limits-{proxied.port}" not in proxied.daemon.log.read_text()


def test_bent_requests_are_not_taken_apart_differently(proxied):
    """Reliability test 15 behind a proxy: what it passes on, the daemon reads as it does."""
    if (proxied.folder / "Caddyfile").exists():
        pytest.skip("Go takes a length beside chunks for chunks alone (RFC 9112 6.3), so by its reading some of these are two requests, and it passes them on as two")
    tag = uuid.uuid4().hex[:8]
    wrong = []
    for case in conformance.whole_set(NAME, proxied.token, tag):
        line = proxied.context.wrap_socket(proxied.connect(), server_hostname=NAME)
        wrong.append(conformance.judge_behind_a_proxy(case, conformance.exchange(line, case.data, wait_s=3)))
    assert not any(wrong), "\n".join(filter(None, wrong))
    list(proxied.client().list(limit=1))
    assert f"{conformance.HIDDEN}-{tag}" not in proxied.daemon.log.read_text()


def test_neither_tokens_nor_old_tls_are_there(proxied):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that it is old is the point
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(proxied.connect(), server_hostname=NAME)
    list(proxied.client().list(limit=1))
    for log in [*proxied.folder.glob("*.log"), proxied.folder / "output", proxied.daemon.log]:
        assert proxied.token not in log.read_text(errors="replace"), log


def test_an_untrusted_certificate_is_refused_by_the_client(proxied):
    from xptycho_client import Error

    with pytest.raises(Error, match="not trusted"):
        list(proxied.client(ssl_context=ssl.create_default_context()).list(limit=1))
