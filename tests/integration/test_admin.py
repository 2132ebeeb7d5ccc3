"""What an administrator does: reload, drain, stop, look; by signals and over the admin socket."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

import xptychod
from test_edge import ADA, BOB, endless, make_system, roots_of  # noqa: F401
from test_systemd import manager  # noqa: F401


DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def reload(daemon):
    daemon.process.send_signal(signal.SIGHUP)


def said(daemon, text, deadline_s=20):
    xptychod.wait_until(lambda: text in daemon.log_text(), f"the log says '{text}'", deadline_s)


# -------------------------------------------------------------------------------------- reload


def test_a_reload_takes_tokens_roots_limits_and_log(make_system, scan_file):  # noqa: F811
    daemon = make_system(tokens=[("ada", ADA)])
    ada = daemon.api_of("ada")
    job = {"scan": {"path": scan_file}, "recon": {"iterations": 2}}
    assert ada.post("/v1/jobs", job).json()["type"].endswith(":dataset")
    daemon.add_token("bob", BOB, "read")
    daemon.configure(roots_of(scan_file) + "[daemon]\nlog = json\nlow_disk_mib = 1\n[limits]\nqueue_user = 1\n")
    reload(daemon)
    xptychod.wait_until(lambda: daemon.api_of("bob").get("/v1/whoami").status == 200, "the new token is known")
    assert ada.finish(ada.submit(job)["id"])["state"] == "succeeded"
    lines = [json.loads(line) for line in daemon.log_text().splitlines() if line.startswith("{")]
    assert any("job" in line for line in lines) and all({"t", "level", "message"} <= set(line) for line in lines)
    daemon.tokens.write_text("".join(line for line in daemon.tokens.read_text().splitlines(True) if not line.startswith("ada:")))
    reload(daemon)
    xptychod.wait_until(lambda: ada.get("/v1/jobs").status == 401, "the token that was deleted is gone")


@pytest.mark.parametrize("broken, line", [("configuration", 4), ("tokens", 2)])
def test_a_broken_file_is_named_with_its_line_and_nothing_changes(make_system, scan_file, broken, line):  # noqa: F811
    daemon = make_system("[limits]\nqueue = 7\n", tokens=[("ada", ADA)])
    before = daemon.configuration.read_text()
    if broken == "configuration":
        daemon.add_token("bob", BOB)
        daemon.configure("[roots]\ndata = relative/path\n" + roots_of(scan_file))
    else:
        daemon.configure(roots_of(scan_file) + "[limits]\nqueue = 7\n")
        with daemon.tokens.open("a") as file:
            file.write("bob:nobody-of-that-name:00\n")
    answer = daemon.admin.post("/admin/reload")
    assert answer.status == 400 and f"line {line}" in answer.json()["detail"], answer
    said(daemon, "reload refused, all stays as it was: ")
    assert f"line {line}" in daemon.log_text()
    assert daemon.api_of("ada").get("/v1/jobs").status == 200
    if broken == "configuration":
        assert daemon.api_of("bob").get("/v1/jobs").status == 401, "the good half was not taken either"
    job = {"scan": {"path": scan_file}, "recon": {"iterations": 2}}
    assert daemon.api_of("ada").post("/v1/jobs", job).json()["type"].endswith(":dataset"), "nor were the roots"
    daemon.configuration.write_text(before)
    daemon.tokens.write_text(daemon.tokens.read_text().replace("bob:nobody-of-that-name:00\n", ""))
    assert daemon.admin.post("/admin/reload").json() == {"needs_restart": "", "warnings": []}


def test_roots_keep_apart_from_what_the_service_keeps(make_system, scan_file, tmp_path):  # noqa: F811
    daemon = make_system(roots_of(scan_file))
    (tmp_path / "link").symlink_to(daemon.state.parent)
    (tmp_path / "out").mkdir()
    before = daemon.configuration.read_text()
    for root, said_of_it in ((daemon.state, "is the state folder"), (f"{daemon.state}//jobs/../", "is the state folder"),
                             (daemon.state / "jobs", "lies in the state folder"), ("/", "contains the state folder"),
                             (f"@daemon:{tmp_path}/link", "contains the state folder"), (daemon.runtime, "is the runtime folder")):
        daemon.configure(f"[roots]\nwrite = {root}\n")
        answer = daemon.admin.post("/admin/reload")
        assert answer.status == 400 and f"roots.write '{root}' {said_of_it} '" in answer.json()["detail"], answer
        daemon.configure(f"[roots]\ndata = {root}\nwrite = {tmp_path}/out\nwrite = {daemon.state}/results\n")
        answer = daemon.admin.post("/admin/reload").json()
        assert len(answer["warnings"]) == 1 and f"roots.data '{root}' {said_of_it} '" in answer["warnings"][0], answer
        assert answer["warnings"][0] in daemon.log_text() and "name folders apart from it" in answer["warnings"][0]
    told = xptychod.run("xptycho", "admin", "reload", "--server", daemon.admin.address)
    assert told.stdout == "reloaded\n" and "xptycho: warning: roots.data" in told.stderr, told
    daemon.configure(f"[roots]\ndata = {tmp_path}/out\ndata = {daemon.state}/results\n")
    assert daemon.admin.post("/admin/reload").json()["warnings"] == []
    daemon.stop()
    daemon.configure(f"[roots]\nwrite = {tmp_path}\n")
    refused = subprocess.run(daemon.command(), capture_output=True, text=True, timeout=60)
    assert refused.returncode == 78 and f"roots.write '{tmp_path}' contains the state folder" in refused.stderr, refused
    daemon.configuration.write_text(before)
    daemon.start()


def test_what_needs_a_restart_is_said(make_system):  # noqa: F811
    daemon = make_system("[zmq]\nrouter = tcp://127.0.0.1:*\npub = tcp://127.0.0.1:*\n")
    daemon.configure("[worker]\nprogram = /bin/true\n")
    assert daemon.admin.post("/admin/reload").json() == {"needs_restart": "worker.program, zmq.router, zmq.pub", "warnings": []}
    assert "next start only: worker.program, zmq.router, zmq.pub" in daemon.log_text()


def test_the_manager_is_told_of_a_reload(manager, make_daemon):  # noqa: F811
    daemon = make_daemon()
    manager.wait_for("READY=1")
    reload(daemon)
    message = manager.wait_for("RELOADING=1")
    assert any(re.fullmatch(r"MONOTONIC_USEC=\d+", line) for line in message)
    assert "STATUS=serving" in manager.wait_for("READY=1")


def test_usr1_writes_the_state_to_the_log(daemon, slow_scan_file):
    job = daemon.unix.submit(endless(slow_scan_file))["id"]
    daemon.unix.wait_for_iteration(job, 2)
    daemon.process.send_signal(signal.SIGUSR1)
    xptychod.wait_until(lambda: f"job {job}: state: running" in daemon.log.read_text(), "the job is in the log")
    assert daemon.admin.post("/admin/dump").json()["lines"] >= 4
    daemon.unix.post(f"/v1/jobs/{job}/cancel")


# --------------------------------------------------------------------------- the command line


def xptycho(*arguments):
    return xptychod.run("xptycho", "admin", *arguments)


def test_a_token_of_the_command_works_after_a_reload_until_its_line_is_gone(make_system):  # noqa: F811
    daemon = make_system()
    done = xptycho("tokens", "new", "daq", "--user", str(ADA), "--scope", "read", "--expires", "2999-12-31")
    token, line = re.fullmatch(r"[^\n]*\n  ([0-9a-f]{64})\n[^\n]*\n  (\S+)\n", done.stdout).groups()
    assert done.returncode == 0 and token not in line and line.startswith(f"daq:{ADA}:") and line.endswith(":read:2999-12-31")
    daemon.secrets["daq"] = token
    daemon.tokens.write_text(line + "\n")
    assert daemon.api_of("daq").get("/v1/whoami").status == 401
    shown = xptycho("reload", "--server", daemon.runtime)
    assert (shown.returncode, shown.stdout) == (0, "reloaded\n"), shown
    assert daemon.api_of("daq").get("/v1/whoami").json()["scopes"] == ["read"]
    other = json.loads(xptycho("tokens", "new", "daq", "--json").stdout)
    assert other["token"] != token and other["line"].split(":")[3] == "submit"


@pytest.mark.parametrize("words, why", [
    (["tokens", "new"], "needs a name"), (["tokens", "new", "a:b"], "needs a name"), (["tokens", "list"], "new NAME"),
    (["tokens", "new", "x", "--scope", "write"], "read, submit or admin"), (["tokens", "new", "x", "--expires", "2020-01-01"], "to come"),
    (["tokens", "new", "x", "--expires", "2999-02-31"], "to come"), (["tokens", "new", "x", "--user", "a b"], "--user"),
    (["explode"], "is not drain"), (["dump", "now"], "one argument too many")])
def test_wrong_usage_of_admin_says_what_is_right(words, why):
    done = xptycho(*words)
    assert done.returncode == 2 and why in done.stderr and done.stdout == "", done


def test_the_verbs_of_the_command(make_system, slow_scan_file):  # noqa: F811
    daemon = make_system(roots_of(slow_scan_file), tokens=[("ada", ADA)])
    job = daemon.api_of("ada").submit({"scan": {"path": slow_scan_file}, "recon": {"iterations": 60}})["id"]
    daemon.api_of("ada").wait_for_iteration(job, 1)
    done = xptycho("drain", "--finish", "--server", daemon.runtime)
    assert (done.returncode, done.stdout) == (0, "drained: 0 running, 0 waiting\n") and "1 running" in done.stderr, done
    assert daemon.api_of("ada").show(job)["state"] == "succeeded"
    assert xptycho("undrain", "--server", daemon.ready["admin"]).stdout == "taking work: 0 running, 0 waiting\n"
    assert json.loads(xptycho("dump", "--json", "--server", daemon.runtime).stdout)["lines"] >= 3
    checked = xptycho("db-check", "--server", daemon.runtime)
    assert (checked.returncode, checked.stdout) == (0, "the state: ok\n")
    daemon.tokens.write_text("broken\n")
    refused = xptycho("reload", "--server", daemon.runtime)
    assert refused.returncode == 3 and "line 1" in refused.stderr
    daemon.stop()
    assert xptycho("dump", "--server", daemon.ready["admin"]).returncode == 6


# ------------------------------------------------------------------------------------- metrics


def samples(text):
    """{name with labels: value}"""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found, f"'{name}' stands twice"
            found[name] = float(value)
    return found


def test_metrics_count_what_happened_and_name_nobody(make_system, scan_file):  # noqa: F811
    daemon = make_system(roots_of(scan_file), tokens=[("ada", ADA)])
    ada = daemon.api_of("ada")
    job = ada.submit({"name": "secret name", "scan": {"path": scan_file}, "recon": {"iterations": 3}})["id"]
    ada.finish(job)
    assert ada.post("/v1/jobs", {"scan": {"path": scan_file + "x"}}).status == 422
    answer = daemon.admin.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = samples(answer.text)
    assert found['xptycho_jobs_submitted_total{class="normal"}'] == 1 and found['xptycho_jobs_submitted_total{class="live"}'] == 0
    assert found['xptycho_gpu_memory_bytes{gpu="cpu",kind="reserved"}'] == 0
    assert found["xptycho_job_memory_ratio_count"] == 1 and 0 < found["xptycho_job_memory_ratio_sum"] < 1.3
    assert found['xptycho_jobs_finished_total{state="succeeded",reason=""}'] == 1
    assert found['xptycho_jobs{state="succeeded"}'] == 1 and found['xptycho_jobs{state="queued"}'] == 0
    assert found["xptycho_iterations_total"] == 3
    assert found["xptycho_queue_wait_seconds_count"] == found["xptycho_job_run_seconds_count"] == 1
    assert found['xptycho_http_requests_total{route="/v1/jobs",method="POST",code="201"}'] == 1
    assert found['xptycho_http_requests_total{route="/v1/jobs",method="POST",code="422"}'] == 1
    assert found['xptycho_http_request_seconds_count{route="/v1/jobs",method="POST"}'] == 2
    assert found['xptycho_reader_failures_total{reason="dataset"}'] == 1
    assert found['xptycho_gpu_healthy{gpu="cpu"}'] == 1
    assert found['xptycho_gpu_memory_bytes{gpu="cpu",kind="total"}'] > 0
    assert found['xptycho_stream_closed_total{reason="end"}'] == 1
    restarts = {name: value for name, value in found.items() if name.startswith("xptycho_worker_restarts_total{reason=")}
    assert len(restarts) == 8 and not any(restarts.values()) and found["xptycho_event_subscribers"] == 0
    assert found["xptycho_db_commit_seconds_count"] >= 3, "submitted, started, ended"
    assert found["xptycho_state_disk_free_bytes"] > 0 and found["xptycho_loop_lag_seconds_count"] > 0
    build = next(name for name in found if name.startswith('xptycho_build_info{version="'))
    assert found[build] == 1 and re.search(r',commit="([0-9a-f]{12}|unknown)",', build), build
    for word in (job, "secret", str(ADA), "ada", scan_file):
        assert word not in answer.text, word
    families = set(re.findall("^# TYPE (xptycho_[a-z_]+) ", answer.text, re.M))
    told = {name for row in re.findall(r"^\| (`xptycho_.*?) \|.*\|$", (DOCS / "operations.md").read_text(), re.M)
            for name in re.findall("`(xptycho_[a-z_]+)`", row)}
    assert families == told, families ^ told


def test_metrics_are_as_prometheus_wants_them(make_daemon, scan_file):
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    daemon = make_daemon("--health-port", "0")
    daemon.api.finish(daemon.api.submit({"scan": {"path": scan_file}, "recon": {"iterations": 2}})["id"])
    daemon.api.get("/nothing")
    text = daemon.admin.get("/metrics").text
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run([promtool, "check", "metrics"], input=text + "xptycho_nonsense {\n", capture_output=True, text=True,
                          timeout=60).returncode != 0, "it really looks"


def test_health_has_a_port_of_its_own_without_the_verbs(make_daemon):
    daemon = make_daemon("--health-port", "0")
    health = xptychod.Api(daemon.ready["health"])
    for path in ("/livez", "/metrics"):
        assert health.get(path).status == 200, path
    for verb in ("drain", "reload", "dump"):
        assert health.post(f"/admin/{verb}").status == 404
    assert health.get("/v1/jobs").status == 404
    assert health.get("/livez", Host="evil.example").status == 403


# --------------------------------------------------------------------------------------- drain


def test_a_drained_service_takes_nothing_and_goes_on_later(daemon, slow_scan_file, scan_file):
    job = daemon.unix.submit(endless(slow_scan_file))["id"]
    daemon.unix.wait_for_iteration(job, 2)
    assert daemon.admin.post("/admin/drain").json()["draining"] is True
    xptychod.wait_until(lambda: daemon.admin.post("/admin/drain").json() == {"draining": True, "running": 0, "queued": 1}, "nothing runs")
    waits = daemon.unix.show(job)
    assert (waits["state"], waits["reason"], waits["detail"]) == ("queued", "shutdown", "the service was drained while the job ran")
    refused = daemon.unix.post("/v1/jobs", {"scan": {"path": scan_file}})
    assert refused.status == 503 and refused.json()["type"] == "urn:xptychod:problem:draining" and refused.headers["Retry-After"]
    assert daemon.admin.get("/readyz").status == 503 and daemon.admin.get("/livez").status == 200
    assert samples(daemon.admin.get("/metrics").text)["xptycho_draining"] == 1
    assert daemon.admin.post("/admin/undrain").json()["draining"] is False
    xptychod.wait_until(lambda: daemon.unix.show(job)["state"] == "running", "the job runs again")
    daemon.unix.post(f"/v1/jobs/{job}/cancel")


def test_drain_with_finish_lets_what_runs_end(daemon, slow_scan_file):
    job = daemon.unix.submit({"scan": {"path": slow_scan_file}, "recon": {"iterations": 60}})["id"]
    waiting = daemon.unix.submit({"scan": {"path": slow_scan_file}, "recon": {"iterations": 2}})["id"]
    daemon.unix.wait_for_iteration(job, 1)
    assert daemon.admin.post("/admin/drain?finish=true").json() == {"draining": True, "running": 1, "queued": 1}
    assert daemon.unix.finish(job)["state"] == "succeeded"
    assert daemon.unix.show(waiting)["state"] == "queued"
    daemon.admin.post("/admin/undrain")
    assert daemon.unix.finish(waiting)["state"] == "succeeded"


def test_a_stopping_service_answers_until_its_worker_is_gone(make_daemon, slow_scan_file, scan_file):
    daemon = make_daemon("--drain-s", "2")
    job = daemon.unix.submit(endless(slow_scan_file))["id"]
    daemon.unix.wait_for_iteration(job, 2)
    os.kill(daemon.pid_of("xptycho-worker"), signal.SIGSTOP)  # it will not leave by itself
    daemon.process.send_signal(signal.SIGTERM)
    xptychod.wait_until(lambda: daemon.admin.get("/readyz").status == 503, "readiness falls")
    assert daemon.unix.show(job)["id"] == job
    refused = daemon.unix.post("/v1/jobs", {"scan": {"path": scan_file}})
    assert refused.status == 503 and refused.json()["type"] == "urn:xptychod:problem:draining"
    assert daemon.process.wait(20) == 0
    assert pathlib.Path(daemon.state, "queue.db").exists()
