"""What docs/operations.md tells an administrator, done: its configuration, its tokens, its backup.

A system daemon, not one of `--user`, in a private folder: paths of the manual are put below it.
"""

import hashlib
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess

import pytest

import xptychod

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANUAL = (ROOT / "docs/operations.md").read_text()


def block(language):
    """The one block of code of that language in the manual."""
    found = re.findall(rf"^```{language}\n(.*?)^```", MANUAL, re.S | re.M)
    assert len(found) == 1, (language, found)
    return found[0]


class SystemDaemon(xptychod.Daemon):
    """By a configuration file, with tokens of users."""

    def __init__(self, folder, configuration, *arguments):
        super().__init__(folder, *arguments)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.configuration = self.folder / "xptychod.conf"
        self.configuration.write_text(configuration)

    def command(self):
        return [xptychod.program("xptychod"), "--config", str(self.configuration), "--port", "0", "--runtime-dir", str(self.runtime),
                "--state-dir", str(self.state), *self.arguments]


@pytest.fixture
def site(tmp_path):
    """The folders that the manual speaks of, below a private one."""
    folders = {path: str(tmp_path / path.strip("/")) for path in ("/etc/xptycho", "/data/scans", "/data/results")}
    for folder in folders.values():
        os.makedirs(folder)
    pathlib.Path(folders["/etc/xptycho"], "tokens").touch()

    def moved(text):
        for path, folder in folders.items():
            assert path in text or path != "/etc/xptycho", text
            text = text.replace(path, folder)
        return text

    moved.folders = folders
    return moved


@pytest.fixture
def system(site, tmp_path, request):
    daemons = request.node.daemons = []

    def make(*arguments):
        daemons.append(SystemDaemon(tmp_path / "system", site(block("ini")), *arguments))
        return daemons[-1].start()

    yield make
    for daemon in daemons:
        try:
            if daemon.process.poll() is None:
                daemon.stop()
        finally:
            daemon.clean_up()


def make_token(site):
    """By the command of the manual; the token, as printed.  Its line goes where the manual says."""
    command = block("sh").replace("xptycho ", xptychod.program("xptycho") + " ", 1)
    done = subprocess.run(["sh", "-euc", command], capture_output=True, text=True, check=True, timeout=60)
    token, line = re.findall(r"^  (\S+)$", done.stdout, re.M)
    with open(os.path.join(site.folders["/etc/xptycho"], "tokens"), "a", encoding="ascii") as tokens:
        tokens.write(line + "\n")
    return token


def job_of(path, **more):
    return {"scan": {"path": str(path)}, "recon": {"iterations": 2}, **more}


def test_the_configuration_and_the_token_of_the_manual_work(site, system, scan_file):
    token, other = make_token(site), make_token(site)
    assert re.fullmatch("[0-9a-f]{64}", token) and token != other
    tokens = pathlib.Path(site.folders["/etc/xptycho"], "tokens").read_text()
    assert len(tokens.splitlines()) == 2 and token not in tokens
    scan = shutil.copy(scan_file, site.folders["/data/scans"])
    daemon = system()
    assert daemon.ready["token_file"] is None, "only --user writes a token down"
    api = xptychod.Api(daemon.ready["http"], token)
    result = pathlib.Path(site.folders["/data/results"], "r.h5")
    done = api.finish(api.submit(job_of(scan, output={"path": str(result)}))["id"])
    assert done["state"] == "succeeded" and done["user"] == "root" and result.exists()
    assert api.post("/v1/jobs", job_of(scan_file)).json()["type"].endswith(":dataset"), "outside the data roots"
    outside = api.post("/v1/jobs", job_of(scan, output={"path": str(daemon.folder / "r.h5")}))
    assert outside.json()["type"].endswith(":output"), "outside the write roots"
    assert xptychod.Api(daemon.ready["http"], "0" * 64).get("/v1/jobs").status == 401
    assert daemon.admin.get("/readyz").status == daemon.admin.get("/livez").status == 200
    assert daemon.runtime.joinpath("api.sock").stat().st_mode & 0o777 == 0o660
    assert daemon.runtime.joinpath("admin.sock").stat().st_mode & 0o777 == 0o600


def test_a_result_of_another_user_is_replaced_under_none_of_its_names(site, system, scan_file):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    token = make_token(site)
    with open(pathlib.Path(site.folders["/etc/xptycho"], "tokens"), "a", encoding="ascii") as f:
        f.write(f"other:65534:{hashlib.sha256(b'of another user').hexdigest()}\n")
    scan = shutil.copy(scan_file, site.folders["/data/scans"])
    results = pathlib.Path(site.folders["/data/results"])
    (results / "link").symlink_to(".")
    daemon = system()
    mine, other = xptychod.Api(daemon.ready["http"], token), xptychod.Api(daemon.ready["http"], "of another user")
    job = mine.submit(job_of(scan, output={"path": str(results / "r.h5")}))
    assert mine.finish(job["id"])["state"] == "succeeded"
    before = (results / "r.h5").read_bytes()
    for name in ("r.h5", "./r.h5", "../results/r.h5", "link/r.h5"):
        again = job_of(scan, output={"path": f"{results}/{name}", "overwrite": True})
        response = other.post("/v1/jobs", again)
        assert (response.status, response.json()["type"]) == (422, "urn:xptychod:problem:output"), (name, response)
        assert [e["pointer"] for e in response.json()["errors"]] == ["/output/path"]
        response = other.post("/v1/jobs?probe=async", again)
        if response.status == 201:
            assert other.finish(response.json()["id"])["reason"] == "output"
        assert (results / "r.h5").read_bytes() == before
    response = mine.post("/v1/jobs?dry_run=true", job_of(scan, output={"path": f"{results}/link/r.h5", "overwrite": True}))
    assert response.status == 200 and "replaces" not in response.json()["scan"]


def test_a_folder_replaced_by_a_link_leads_no_result_out_of_the_write_roots(site, system, slow_scan_file):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    token = make_token(site)
    scan = shutil.copy(slow_scan_file, site.folders["/data/scans"])
    folder = pathlib.Path(site.folders["/data/results"], "mine")
    folder.mkdir()
    daemon = system()
    api = xptychod.Api(daemon.ready["http"], token)
    victim = daemon.state / "queue.db"
    before = victim.stat().st_ino
    job = job_of(scan, output={"path": str(folder / victim.name), "overwrite": True}) | {"recon": {"iterations": 30}}
    job_id = api.submit(job)["id"]
    api.wait_for_iteration(job_id, 1)
    folder.rename(folder.with_name("aside"))
    folder.symlink_to(daemon.state)
    done = api.finish(job_id)
    assert (done["state"], done["reason"]) == ("failed", "output") and "replaced" in done["detail"], done
    assert victim.stat().st_ino == before
    assert not list(folder.with_name("aside").iterdir())


def test_the_configuration_that_is_installed_starts_a_closed_service(tmp_path):
    daemon = SystemDaemon(tmp_path / "sample", (ROOT / "deploy/xptychod.conf").read_text())
    try:
        daemon.start()
        assert xptychod.Api(daemon.ready["http"]).get("/v1/jobs").status == 401
        assert daemon.unix.post("/v1/jobs", job_of("/etc/hostname")).json()["type"].endswith(":dataset")
        daemon.stop()
    finally:
        daemon.clean_up()


def test_a_token_that_is_deleted_ends_with_a_reload(site, system):
    token = make_token(site)
    daemon = system()
    assert xptychod.Api(daemon.ready["http"], token).get("/v1/jobs").status == 200
    pathlib.Path(site.folders["/etc/xptycho"], "tokens").write_text("# nobody\n")
    assert xptychod.run("xptycho", "admin", "reload", "--server", daemon.runtime).returncode == 0
    assert xptychod.Api(daemon.ready["http"], token).get("/v1/jobs").status == 401


def test_wrong_configurations_are_not_worth_a_restart(site, tmp_path):
    tokens = pathlib.Path(site.folders["/etc/xptycho"], "tokens")
    for text, line, said in (("[htp]\nport = 1\n", "", "the nearest is 'http.port'"), (block("ini"), "daq:nobody-of-that-name:00\n", "line 1"),
                             ("[http]\naddress = 192.0.2.1\n", "", "TLS proxy")):
        tokens.write_text(line)
        daemon = SystemDaemon(tmp_path / "wrong", site(text) if "token_file" in text else text)
        assert daemon.spawn().wait(60) == 78
        assert said in daemon.log.read_text()
        daemon.log.unlink()


def test_a_copy_of_the_stopped_state_is_a_backup(site, system, scan_file, slow_scan_file, tmp_path):
    scan, slow = (shutil.copy(path, site.folders["/data/scans"]) for path in (scan_file, slow_scan_file))
    daemon = system()
    ended = daemon.unix.finish(daemon.unix.submit(job_of(scan))["id"])
    running = daemon.unix.submit({"scan": {"path": slow}, "recon": {"iterations": 100000}})["id"]
    daemon.unix.wait_for_iteration(running, 1)
    waiting = [daemon.unix.submit(job_of(scan))["id"] for _ in range(2)]
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        sqlite3.connect(f"file:{daemon.state}/queue.db?mode=ro", uri=True, timeout=0).execute("select * from jobs")
    daemon.stop()
    assert sqlite3.connect(daemon.state / "queue.db").execute("pragma integrity_check").fetchall() == [("ok",)]
    subprocess.run(["tar", "-C", daemon.state.parent, "-czf", tmp_path / "backup.tar.gz", daemon.state.name], check=True)
    shutil.rmtree(daemon.state)
    subprocess.run(["tar", "-C", daemon.state.parent, "-xzf", tmp_path / "backup.tar.gz"], check=True)
    daemon.start()
    assert daemon.unix.show(ended["id"]) == ended
    assert daemon.unix.get(f"/v1/jobs/{ended['id']}/result/data").status == 410, "as the manual says"
    assert pathlib.Path(ended["result"]["path"]).read_bytes()[:4] == b"\x89HDF"
    again = daemon.unix.wait_for_event(running, lambda event: event["type"] == "resumed")
    assert again["from_iter"] >= 1, "from the checkpoint that it left when it was stopped"
    assert [daemon.unix.show(job)["state"] for job in waiting] == ["queued", "queued"]
    daemon.unix.post(f"/v1/jobs/{running}/cancel")
    assert [daemon.unix.finish(job)["state"] for job in waiting] == ["succeeded", "succeeded"]


def test_the_log_says_what_the_manual_explains():
    """The unvarying words of its lines, in the manual and in the sources."""
    lines = ["ready: ", " jobs in the state, ", "is ready: ", "request ", "http.token_file is not set: nobody can use TCP, only the unix socket",
             "roots.data is not set: no scan can be read", "the worker ", "was ended by signal ", "does not answer; it is killed",
             "the worker did not stop the job within ", "it is replaced", "program ", "neither ", "it is started again in ",
             "another xptychod (pid ", "the event loop was busy for ", "event log '", "cannot be written",
             "configuration and tokens are read again", "reload refused, all stays as it was: ", "draining: no new work is taken; ",
             "new work is taken again", "clients that do not read are left behind", "the state cannot be trusted any more; stopping, ", "changes of jobs are kept in memory and tried again", "shutdown"]
    sources = "".join(path.read_text() for folder in ("daemon/broker", "protocol") for path in (ROOT / folder).glob("*.c"))
    sources = re.sub(r'"\s*\n\s*"', "", sources)
    assert [line for line in lines if line not in MANUAL] == []
    assert [line for line in lines if line not in sources] == []


def test_every_metric_that_the_manual_names_exists(system, scan_file):
    named = set(re.findall(r"xptycho_([a-z_]+?)(?:_bucket)?\b", MANUAL[MANUAL.index("## 9."):]))
    text = system().admin.get("/metrics").text
    known = set(re.findall(r"^# TYPE xptycho_(\w+)", text, re.M))
    assert len(named) >= 7 and named <= known, named - known


def test_every_option_that_the_manual_names_exists():
    help_text = subprocess.run([xptychod.program("xptychod"), "--help"], capture_output=True, text=True, check=True).stdout
    known = {f"{section}.{key}" for section, key in re.findall(r"in the file: \[(\w+)\] (\w+)", help_text)}
    named = set(re.findall(r"`((?:daemon|http|roots|worker|limits|zmq|reader)\.\w+)", MANUAL))
    assert len(named) >= 8 and named <= known, named - known
