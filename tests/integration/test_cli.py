"""The command line: against a stand-in that misbehaves on purpose, and against the real daemon."""

import errno
import json
import os
import pathlib
import pty
import re
import signal
import subprocess

import pytest

import xptychod
from conftest import NO_GPU
from fake_broker import JOB_ID, FakeBroker

USAGE, REFUSED, FAILED, CANCELLED, UNREACHABLE, INTERRUPTED = 2, 3, 4, 5, 6, 130
OWN = ("submit", "sweep", "watch", "list", "show", "cancel", "delete", "log", "rerun", "result", "preview", "queue", "devices",
       "hold", "release", "set", "dashboard", "admin", "version")
SIBLINGS = ("run", "simulate", "compare", "bench", "inspect", "import")


@pytest.fixture(autouse=True)
def no_settings_of_the_caller(monkeypatch, tmp_path):
    for name in ("XPTYCHO_SERVER", "XPTYCHO_TOKEN", "XPTYCHO_TOKEN_FILE", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def xptycho(*arguments, server=None, **options):
    extra = ["--server", str(server)] if server is not None else []
    return xptychod.run("xptycho", *arguments, *extra, **options)


def on_terminal(*arguments, **environment):
    """Exit status and what a terminal got."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(xptychod.program("xptycho"), ["xptycho", *arguments], {**os.environ, "TERM": "xterm", **environment})
    seen = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # what Linux says when the other side is closed
                raise
            break
        if not data:
            break
        seen += data
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode()


# ------------------------------------------------------------------------------- usage and help


def test_help_lists_every_command_and_tells_all_of_each():
    overview = xptycho("help")
    assert overview.returncode == 0
    for command in (*OWN, *SIBLINGS):
        assert re.search(rf"^  {command} ", overview.stdout, re.M), command
    for command in OWN:
        text = xptycho("help", command).stdout
        assert text == xptycho(command, "--help").stdout
        for part in (f"Usage: xptycho {command}", "--json", "Exit codes:", "  6  the daemon cannot be reached",
                     "Example:"):
            assert part in text, (command, part)


@pytest.mark.parametrize("command", SIBLINGS)
def test_commands_of_the_sibling_programs_have_help(command):
    for words in (("help", command), (command, "--help")):
        answer = xptycho(*words)
        assert answer.returncode == 0, answer.stderr
        assert command in answer.stdout


def test_wrong_usage_exits_2_and_names_the_nearest():
    for words, said in ((("submti",), "did you mean 'submit'?"),
                        (("submit", "x.h5", "--interations", "5"), "did you mean '--iterations'?"),
                        (("watch",), "usage: xptycho watch"),
                        (("submit",), "give a scan file"),
                        (("list", "--limit", "0"), "--limit: 0 is below 1"),
                        (("show", "17"), "'17' is no job id")):
        answer = xptycho(*words)
        assert answer.returncode == USAGE, words
        assert said in answer.stderr
        assert answer.stdout == ""
    assert xptycho().returncode == USAGE


def test_without_a_daemon_every_call_exits_6_and_says_where_it_looked(tmp_path):
    for words in (("list",), ("queue",), ("show", JOB_ID), ("watch", JOB_ID), ("submit", "x.h5")):
        answer = xptycho(*words, server=f"unix:{tmp_path}/none.sock")
        assert answer.returncode == UNREACHABLE, words
        assert f"no daemon answers at 'unix:{tmp_path}/none.sock'" in answer.stderr
    assert xptycho("list", server=tmp_path).returncode == UNREACHABLE, "a folder without ready.json"


def test_version_needs_no_daemon(tmp_path):
    answer = xptycho("version", "--json", server=f"unix:{tmp_path}/none.sock")
    assert answer.returncode == 0
    document = json.loads(answer.stdout)
    assert document["version"] and document["daemon"] is None and "no daemon" in document["daemon_fault"]


def test_output_that_cannot_be_written_is_a_failure():
    with open("/dev/full", "w", encoding="ascii") as full:
        answer = subprocess.run([xptychod.program("xptycho"), "help"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert answer.returncode == 1 and b"cannot be written" in answer.stderr


# ------------------------------------------------------------------------- a broker that misbehaves


def test_watch_takes_a_broken_stream_up_where_it_broke():
    with FakeBroker(break_after=3) as broker:
        answer = xptycho("watch", JOB_ID, "--json", server=broker.url)
        events = [json.loads(line) for line in answer.stdout.splitlines()]
        assert answer.returncode == 0
        assert [e["seq"] for e in events] == list(range(1, len(broker.events) + 1)), "each once, in order"
        assert broker.streams > 3
        assert [r[2].get("Last-Event-ID") for r in broker.requests] == [None, "3", "6", "9", "12"]
        assert "trying again" in answer.stderr


@pytest.mark.parametrize("garbage", [b"<html>\n", b"[1]\n", b'{"seq": 0, "type": "end"}\n', b'{"seq": 1}\n', b"\xff\n",
                                     b"x" * (5 << 20)], ids=["html", "array", "zero", "no type", "no UTF-8", "endless"])
def test_what_is_no_event_stream_is_said_to_be_none(garbage):
    with FakeBroker(garbage=garbage) as broker:
        answer = xptycho("watch", JOB_ID, server=broker.url)
        assert answer.returncode == 1 and "is no event stream" in answer.stderr
        assert answer.stdout == "" and broker.streams == 1, "asked again in vain"


def test_a_lost_submission_is_repeated_with_its_key():
    with FakeBroker(lose_submissions=2) as broker:
        answer = xptycho("submit", "x.h5", server=broker.url)
        assert answer.returncode == 0 and answer.stdout == JOB_ID + "\n"
        keys = [headers.get("Idempotency-Key") for _, _, headers, _ in broker.requests]
        assert len(keys) == 3 and len(set(keys)) == 1 and keys[0]
        assert xptycho("submit", "x.h5", server=broker.url).returncode == 0
        assert broker.requests[-1][2]["Idempotency-Key"] != keys[0], "another submission has another key"
        assert xptycho("submit", "x.h5", "--idempotency-key", "mine", server=broker.url).returncode == 0
        assert broker.requests[-1][2]["Idempotency-Key"] == "mine"


@pytest.mark.parametrize("state, reason, code", [("succeeded", "", 0), ("failed", "diverged", FAILED),
                                                 ("failed", "dataset", REFUSED), ("cancelled", "cancelled", CANCELLED)])
def test_the_exit_code_is_that_of_the_job(state, reason, code):
    with FakeBroker(end={"state": state, "reason": reason, "detail": "why"}) as broker:
        assert xptycho("watch", JOB_ID, server=broker.url).returncode == code
        answer = xptycho("submit", "x.h5", "--wait", server=broker.url)
        assert answer.returncode == code
        first, summary = answer.stdout.splitlines()
        assert first == JOB_ID and summary.startswith(f"{JOB_ID} {state}") and "why" in summary


def test_text_of_others_reaches_no_terminal_raw():
    with FakeBroker(name="evil \x1b]0;title\x07 \x9b31m name", end={"detail": "\x1b[2Jgone"}) as broker:
        for words in (("list",), ("show", JOB_ID), ("watch", JOB_ID), ("watch", JOB_ID, "--json"), ("list", "--json")):
            answer = xptycho(*words, server=broker.url)
            for sign in "\x1b\x07\r":
                assert sign not in answer.stdout + answer.stderr, words
        assert r"evil \x1b]0;title\x07 \xc2\x9b31m name" in xptycho("list", server=broker.url).stdout


def test_a_refusal_is_a_sentence_and_with_json_the_problem():
    with FakeBroker() as broker:
        answer = xptycho("queue", server=broker.url)
        assert answer.returncode == REFUSED and answer.stdout == ""
        assert answer.stderr == "xptycho: no /v1/queue here\n"
        answer = xptycho("queue", "--json", server=broker.url)
        assert answer.returncode == REFUSED
        assert json.loads(answer.stdout)["type"] == "urn:xptychod:problem:not-found"


def test_a_terminal_gets_a_bar_with_error_rate_and_time_left():
    with FakeBroker() as broker:
        status, seen = on_terminal("watch", JOB_ID, "--server", broker.url)
        assert status == 0
        assert re.search(r"\[#+\] 10/10  data error 0\.050000  100\.0 it/s  0 s left", seen), seen
        assert "iteration    1" not in seen, "no line an iteration"
        assert "\x1b[32msucceeded" in seen
        assert "\x1b[31m" not in seen, "the colour of the job's own text"
        status, seen = on_terminal("watch", JOB_ID, "--server", broker.url, NO_COLOR="1")
        assert "\x1b[32m" not in seen and "succeeded" in seen


def test_a_terminal_is_told_why_a_job_waits():
    with FakeBroker(pending={"position": 1, "reason": "order", "detail": "2 jobs before \x1b[31mit"}) as broker:
        status, seen = on_terminal("watch", JOB_ID, "--server", broker.url)
        assert status == 0 and "# waits for 2 jobs before \\x1b[31mit; position 1\r\n# state queued" in seen, seen


def test_a_log_is_told_why_a_job_waits_and_each_change_of_it():
    order = {"position": 3, "reason": "order", "detail": "2 jobs before \x1b[31mit", "estimated_start": "2999-01-31T10:15:02Z"}
    next_one = {"position": 1, "reason": "devices-busy", "detail": "its devices", "estimated_start": None}
    held = {"position": None, "reason": "held", "detail": "its release", "estimated_start": None}
    waits = [order, {**order, "position": 2}, {**order, "position": 2, "detail": "other numbers"}, next_one, held]
    with FakeBroker(pending=list(waits)) as broker:
        answer = xptycho("watch", JOB_ID, server=broker.url, env={**os.environ, "TZ": "UTC"})
        assert answer.returncode == 0, answer.stderr
        lines = [line for line in answer.stdout.splitlines() if line.startswith("# waits")]
        assert lines == ["# waits for 2 jobs before \\x1b[31mit; position 3, starts by 2999-01-31 10:15:02",
                         "# waits for 2 jobs before \\x1b[31mit; position 2, starts by 2999-01-31 10:15:02",
                         "# waits for its devices; position 1", "# waits for its release"], answer.stdout
        assert answer.stdout.startswith("# state queued\n# waits for ") and "\n# state running\n" in answer.stdout
    with FakeBroker(pending=[order]) as broker:
        broker.told.set()
        answer = xptycho("watch", JOB_ID, "--json", server=broker.url)
        seen = [json.loads(line) for line in answer.stdout.splitlines()]
        assert [e["seq"] for e in seen] == [e["seq"] for e in broker.events], "programs get the events alone"
        assert not [path for _, path, _, _ in broker.requests if not path.endswith("/events")]


# ---------------------------------------------------------------------------------- the real daemon


@pytest.fixture
def cli(shared_daemon):
    """Calls to the shared daemon through its runtime folder."""
    return lambda *arguments, **options: xptycho(*arguments, server=shared_daemon.runtime, **options)


@pytest.fixture(scope="module")
def finished(shared_daemon, scan_file):
    """Id of a job that has succeeded."""
    job = {"name": "cli", "scan": {"path": scan_file}, "recon": {"iterations": 6}}
    return shared_daemon.api.finish(shared_daemon.api.submit(job)["id"])["id"]


@pytest.fixture
def endless(cli, slow_scan_file):
    """Id of a job that runs until it is cancelled."""
    job_id = cli("submit", slow_scan_file, "--iterations", "100000").stdout.strip()
    yield job_id
    cli("cancel", job_id, "--wait")


def test_submit_with_flags_makes_the_job_they_say(cli, shared_daemon, scan_file, tmp_path):
    folder, name = os.path.split(scan_file)
    answer = cli("submit", name, "-n", "4", "--relaxation", "0.4", "--name", "5", "--label", "beamline=2-ID-D",
                 "--probe", f"{name}:/truth/probe", "--set", "recon.report_every=2", "--set", 'metadata={"a": [1]}',
                 "--cpu-threads", "1", "--output", str(tmp_path / "out.h5"), "--wait", "--json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert document["state"] == "succeeded" and document["name"] == "5"
    assert document["labels"] == {"beamline": "2-ID-D"} and document["metadata"] == {"a": [1]}
    job = document["job"]
    assert job["scan"]["path"] == scan_file and job["probe"] == {"path": scan_file, "dataset": "/truth/probe"}
    assert (job["recon"]["iterations"], job["recon"]["relaxation"], job["recon"]["report_every"]) == (4, 0.4, 2)
    assert job["devices"]["cpu_threads"] == 1
    assert document["result"]["path"] == str(tmp_path / "out.h5") and (tmp_path / "out.h5").exists()


def test_a_job_comes_from_a_file_or_stdin_and_options_change_it(cli, shared_daemon, scan_file, tmp_path):
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"name": "from a file", "scan": {"path": scan_file}, "recon": [{"iterations": 2}]}))
    answer = cli("submit", "--job", file, "--set", "recon.0.iterations=3", "--wait", "--json")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["result"]["iterations"] == 3
    with open(file, encoding="ascii") as text:
        answer = subprocess.run([xptychod.program("xptycho"), "submit", "--job", "-", "--dry-run", "--json", "--server",
                                 str(shared_daemon.runtime)], stdin=text, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["job"]["name"] == "from a file"


def test_dry_run_tells_the_verdict_and_makes_nothing(cli, scan_file):
    before = json.loads(cli("list", "--all", "--json").stdout)
    answer = cli("submit", scan_file, "--dry-run")
    assert answer.returncode == 0
    assert "the job would be admitted" in answer.stdout and "36 frames of 32 x 32" in answer.stdout
    assert json.loads(cli("list", "--all", "--json").stdout) == before


def test_every_fault_of_a_job_is_a_line_with_its_pointer(cli, scan_file):
    answer = cli("submit", scan_file, "--set", "recon.interations=5", "--relaxation", "7", "--priority", "1000")
    assert answer.returncode == REFUSED and answer.stdout == ""
    lines = answer.stderr.splitlines()
    for pointer, said in (("/recon/interations", "iterations"), ("/recon/relaxation", "7"), ("/priority", "1000")):
        assert any(line.startswith(f"  {pointer}: ") and said in line for line in lines), answer.stderr
    answer = cli("submit", "/nowhere/scan.h5", "--json")
    assert answer.returncode == REFUSED
    assert json.loads(answer.stdout)["status"] == 422


def test_watch_prints_the_daemons_lines_and_sums_up(cli, shared_daemon, finished):
    answer = cli("watch", finished.lower())
    assert answer.returncode == 0
    *lines, summary = answer.stdout.splitlines()
    assert lines == shared_daemon.api.get(f"/v1/jobs/{finished}/events").text.splitlines()
    assert re.fullmatch(r"iteration    1   data error \d\.\d{6}   modes 1", next(x for x in lines if x[0] == "i"))
    assert re.fullmatch(rf"# {finished} succeeded: 6 iterations in .* m?s, data error \d\.\d+, result '/.*'", summary)


def test_submit_with_watch_prints_id_events_and_exit_code(cli, scan_file):
    answer = cli("submit", scan_file, "-n", "3", "--watch", "--json")
    job, *events = map(json.loads, answer.stdout.splitlines())
    assert answer.returncode == 0
    assert events[-1]["type"] == "end" and [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert re.fullmatch("[0-7][0-9A-HJKMNP-TV-Z]{25}", job["id"])


def test_cancel_ends_a_job_and_may_be_repeated(cli, endless):
    assert cli("cancel", endless, "--wait").returncode == 0
    assert cli("watch", endless, "--wait").returncode == CANCELLED
    again = cli("cancel", endless)
    assert again.returncode == 0 and again.stdout == f"{endless} cancelled\n"


def test_ctrl_c_leaves_the_job_running(cli, shared_daemon, endless):
    watch = subprocess.Popen([xptychod.program("xptycho"), "watch", endless, "--server", str(shared_daemon.runtime)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in watch.stdout:
        if line.startswith("iteration"):
            break
    watch.send_signal(signal.SIGINT)
    _, told = watch.communicate(timeout=30)
    assert watch.returncode == INTERRUPTED
    assert f"xptycho watch {endless}" in told
    assert shared_daemon.api.show(endless)["state"] == "running"


def test_a_waiting_job_is_watched_into_a_pipe(cli, shared_daemon, endless, scan_file):
    waiting = cli("submit", scan_file, "-n", "1").stdout.strip()
    watch = subprocess.Popen([xptychod.program("xptycho"), "watch", waiting, "--server", str(shared_daemon.runtime)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = iter(watch.stdout.readline, "")
    assert next(lines) == "# state queued\n"
    assert next(lines).startswith("# waits for its devices, which run other jobs; it is the next to get them; position 1")
    assert cli("hold", waiting).returncode == 0
    assert next(line for line in lines if "# waits" in line) == "# waits for its release, by xptycho release\n"
    assert cli("cancel", waiting).returncode == 0
    rest, told = watch.communicate(timeout=60)
    assert watch.returncode == CANCELLED and "# waits" not in rest and told == ""


def test_list_shows_jobs_and_pages_through_them(cli, finished, scan_file):
    ids = [cli("submit", scan_file, "-n", "1", "--wait", "--name", f"page {i}").stdout.split()[0] for i in range(3)]
    table = cli("list", "--state", "succeeded")
    assert table.returncode == 0
    head, *rows = table.stdout.splitlines()
    assert head.split()[:2] == ["ID", "STATE"]
    assert [row.split()[0] for row in rows[:3]] == ids[::-1], "newest first"
    assert finished in table.stdout
    few = cli("list", "--limit", "2", "--json")
    document = json.loads(few.stdout)
    assert len(document["jobs"]) == 2 and document["next"]
    assert "there are more jobs" in cli("list", "--limit", "2").stderr
    assert cli("list", "--state", "sleeping").returncode == REFUSED


def test_show_queue_devices_and_version_speak_to_people_and_programs(cli, finished, endless):
    shown = cli("show", finished)
    assert shown.returncode == 0 and re.search(r"^state +succeeded$", shown.stdout, re.M)
    assert json.loads(cli("show", finished, "--json").stdout)["id"] == finished
    queue = cli("queue")
    assert queue.returncode == 0 and endless in queue.stdout
    assert json.loads(cli("queue", "--json").stdout)["hidden"] == 0
    devices = xptychod.wait_until(lambda: (lambda d: NO_GPU.search(d.stdout) and d)(cli("devices")), "both kinds are listed")
    assert re.search(r"^cpu +", devices.stdout, re.M)
    assert json.loads(cli("devices", "--json").stdout)["devices"][0]["name"] == "cpu"
    assert "xptychod " in cli("version").stdout


def test_show_says_why_a_job_does_not_run_yet(cli, endless, scan_file):
    waits = cli("submit", scan_file).stdout.split()[0]
    shown = cli("show", waits).stdout
    pending = json.loads(cli("show", waits, "--json").stdout)["pending"]
    assert re.search(rf"^waits for +{re.escape(pending['detail'])}$", shown, re.M), shown
    assert re.search(rf"^blocked by +{endless}$", shown, re.M), shown
    assert cli("cancel", waits).returncode == 0
    assert "waits for" not in cli("show", waits).stdout


def test_a_result_is_told_and_downloaded_whole(cli, shared_daemon, finished, tmp_path):
    told = cli("result", finished)
    document = json.loads(cli("result", finished, "--json").stdout)
    assert told.returncode == 0 and document["path"] in told.stdout and document["sha256"] in told.stdout
    file = tmp_path / "copy.h5"
    assert cli("result", finished, "--output", file).returncode == 0
    assert file.read_bytes() == pathlib.Path(document["path"]).read_bytes()
    again = cli("result", finished, "--output", file)
    assert again.returncode == USAGE and "exists" in again.stderr
    assert cli("result", finished, "--output", file, "--overwrite").returncode == 0
    assert os.listdir(tmp_path) == ["copy.h5"], "nothing is left beside it"
    piped = subprocess.run([xptychod.program("xptycho"), "result", finished, "-o", "-", "--server",
                            str(shared_daemon.runtime)], capture_output=True, check=False)
    assert piped.returncode == 0 and piped.stdout == file.read_bytes()


def test_a_failed_download_leaves_no_file(cli, endless, tmp_path):
    answer = cli("result", endless, "--output", tmp_path / "none.h5")
    assert answer.returncode == REFUSED
    assert os.listdir(tmp_path) == []
    assert cli("result", JOB_ID, "--output", "/nowhere/x.h5").returncode == 1


@pytest.mark.parametrize("what", ["object_phase", "object_magnitude", "probe_phase", "probe_magnitude"])
def test_a_preview_is_a_png(cli, finished, tmp_path, what):
    file = tmp_path / "p.png"
    for _ in range(2):  # replaced without asking
        assert cli("preview", finished, "--what", what, "--output", file).returncode == 0
    assert file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert cli("preview", finished).returncode == USAGE
    assert cli("preview", finished, "--what", "sample", "--output", tmp_path / "q").returncode == REFUSED
    assert os.listdir(tmp_path) == ["p.png"]


def test_log_is_text_and_tail_its_end(cli, finished):
    whole = cli("log", finished)
    assert whole.returncode == 0 and whole.stdout
    lines = whole.stdout.splitlines()
    assert cli("log", finished, "--tail", "1").stdout.splitlines() == lines[-1:]
    assert [json.loads(line) for line in cli("log", finished, "--json").stdout.splitlines()] == lines


def test_delete_takes_an_ended_job_and_no_other(cli, scan_file, request):
    job_id = cli("submit", scan_file, "-n", "1", "--wait").stdout.split()[0]
    assert cli("delete", job_id).returncode == 0
    assert cli("show", job_id).returncode == REFUSED
    refused = cli("delete", request.getfixturevalue("endless"))
    assert refused.returncode == REFUSED and refused.stderr.startswith("xptycho: ")


def test_a_job_that_waits_is_held_changed_and_released(cli, endless, scan_file):
    job = cli("submit", scan_file, "-n", "1", "--label", "draft=yes").stdout.strip()
    assert cli("hold", job).stdout == f"{job} is held\n"
    answer = cli("set", job, "--priority", "20", "--class", "batch", "--label", "by=ada", "--remove-label", "draft")
    assert (answer.returncode, answer.stdout) == (0, f"{job}: class batch, priority 20\n"), answer
    document = json.loads(cli("show", job, "--json").stdout)
    assert (document["state"], document["priority"], document["class"], document["labels"]) == ("held", 20, "batch", {"by": "ada"})
    answer = cli("set", job, "--name", "tile 12 \x1b")
    assert answer.stdout == f"{job}: class batch, priority 20, name 'tile 12 \\x1b'\n" and json.loads(cli("show", job, "--json").stdout)["name"] == "tile 12 \x1b"
    assert cli("release", job).stdout == f"{job} is queued\n"
    for words, said in ((("set", job), "--priority"), (("set", job, "--priority", "x"), "whole number"), (("set", job, "--label", "x"), "KEY=VALUE")):
        wrong = cli(*words)
        assert wrong.returncode == USAGE and said in wrong.stderr, wrong
    assert cli("set", job, "--priority", "101").returncode == REFUSED
    refused = cli("hold", endless)
    assert refused.returncode == REFUSED and "cancel" in refused.stderr, refused
    assert cli("cancel", job, "--wait").returncode == 0
    assert cli("release", job).returncode == REFUSED


def test_a_link_for_a_browser_is_printed_listed_and_revoked(cli, shared_daemon):
    made = cli("dashboard", "--scope", "submit")
    assert made.returncode == 0 and made.stdout.startswith(shared_daemon.ready["http"] + "/login?code=") and "once" in made.stderr, made
    listed = json.loads(cli("dashboard", "--list", "--json").stdout)["sessions"]
    assert [s["kind"] for s in listed] == ["link"] and listed[0]["scopes"] == ["read", "submit"]
    assert listed[0]["id"] in cli("dashboard", "--list").stdout
    assert cli("dashboard", "--revoke", listed[0]["id"]).stdout == f"{listed[0]['id']} ended\n"
    path = made.stdout.strip().removeprefix(shared_daemon.ready["http"])
    assert xptychod.Api(shared_daemon.ready["http"]).get(path).status == 401
    assert cli("dashboard", "--revoke", listed[0]["id"]).returncode == REFUSED
    assert cli("dashboard", "--scope", "everything").returncode == REFUSED


def test_other_names_of_an_option_are_taken(cli, scan_file):
    answers = [json.loads(cli("submit", scan_file, name, "0.5", "--dry-run", "--json").stdout) for name in ("--detector-distance-m", "--distance-m")]
    assert answers[0]["job"] == answers[1]["job"]


def test_rerun_changes_what_it_is_told(cli, finished, scan_file):
    answer = cli("rerun", finished, "-n", "2", "--wait", "--json")
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert document["id"] != finished and document["name"] == "cli" and document["result"]["iterations"] == 2
    stages = cli("submit", scan_file, "--set", 'recon=[{"iterations": 1}, {"iterations": 1}]', "--wait", "--json")
    several = json.loads(stages.stdout)["id"]
    answer = cli("rerun", several, "-n", "2")
    assert answer.returncode == USAGE and "several stages" in answer.stderr, "no stage is dropped in silence"


def test_tcp_needs_a_token_and_finds_it(shared_daemon, tmp_path):
    url = shared_daemon.ready["http"]
    answer = xptycho("list", server=url)
    assert answer.returncode == REFUSED and "--token-file" in answer.stderr
    assert xptycho("list", "--token-file", shared_daemon.ready["token_file"], server=url).returncode == 0
    token = pathlib.Path(shared_daemon.ready["token_file"]).read_text().strip()
    environment = {**os.environ, "XPTYCHO_SERVER": url}
    assert xptycho("list", env={**environment, "XPTYCHO_TOKEN": token}).returncode == 0
    assert xptycho("list", env={**environment, "XPTYCHO_TOKEN": "wrong"}).returncode == REFUSED
    assert xptycho("list", env={**environment, "XPTYCHO_TOKEN_FILE": shared_daemon.ready["token_file"]}).returncode == 0
    wrong = tmp_path / "two"
    wrong.write_text("two words\n")
    answer = xptycho("list", "--token-file", wrong, server=url)
    assert answer.returncode == USAGE and str(wrong) in answer.stderr


def test_proxies_of_the_environment_are_not_used(shared_daemon):
    environment = {**os.environ, "http_proxy": "http://127.0.0.1:1", "all_proxy": "http://127.0.0.1:1"}
    assert xptycho("list", "--token-file", shared_daemon.ready["token_file"], server=shared_daemon.ready["http"],
                   env=environment).returncode == 0


@pytest.mark.parametrize("variable, place", [("XDG_RUNTIME_DIR", "xptycho"), ("XDG_STATE_HOME", "xptycho/run"),
                                             ("HOME", ".local/state/xptycho/run")])
def test_a_daemon_of_ones_own_is_found(shared_daemon, tmp_path, variable, place):
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).symlink_to(shared_daemon.runtime)
    answer = xptycho("version", "--json", env={**os.environ, variable: str(tmp_path)})
    document = json.loads(answer.stdout)
    assert document["server"] == f"unix:{shared_daemon.ready['unix']}" and document["daemon"]["api"] == "v1"


def test_a_watch_outlives_a_restart_of_the_daemon(daemon, slow_scan_file):
    job_id = xptycho("submit", slow_scan_file, "-n", "60", server=daemon.runtime).stdout.strip()
    watch = subprocess.Popen([xptychod.program("xptycho"), "watch", job_id, "--json", "--server",
                              f"unix:{daemon.ready['unix']}"], stdout=subprocess.PIPE, text=True)
    first = [json.loads(watch.stdout.readline()) for _ in range(5)]
    daemon.kill()
    daemon.start()
    events = first + [json.loads(line) for line in watch.stdout]
    assert watch.wait(60) == 0
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))


def test_simulate_inspect_submit_and_compare_fit_together(cli, tmp_path):
    scan = tmp_path / "scan.h5"
    made = xptycho("simulate", "--output", scan, "--object", "star", "--frames-side", "32", "--grid", "6x6", "--step",
                     "5", "--photons", "1e4", "--seed", "3")
    assert made.returncode == 0, made.stderr
    seen = xptycho("inspect", scan)
    assert seen.returncode == 0 and "36" in seen.stdout and "32" in seen.stdout
    assert cli("submit", scan, "-n", "30", "--probe", f"{scan}:/truth/probe", "--output", tmp_path / "r.h5",
               "--wait").returncode == 0
    compared = xptycho("compare", tmp_path / "r.h5", f"{scan}:/truth/object", "--json")
    assert compared.returncode == 0, compared.stderr
    assert 0 < json.loads(compared.stdout)["nrmse"] < 0.5

