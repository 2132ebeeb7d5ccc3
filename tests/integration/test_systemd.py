"""The unit as installed, and what the daemon tells the service manager.

Nothing here needs a systemd that runs: its analyser reads the unit, a datagram socket plays the manager, and
the unit's list of system calls is held against those that the programs really make.
"""

import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

import staged
import xptychod

EXPOSURE = 2.5
# What a unit's filter lets through whatever it says, and what a process does on its way to be traced.
ALWAYS = {"execve", "exit", "exit_group", "rt_sigreturn", "sigreturn", "getrlimit", "restart_syscall"}


def systemd(name):
    path = shutil.which(name)
    if not path:
        pytest.skip(f"{name} is not installed (Debian: systemd)")
    return path


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tree = staged.Staged(tmp_path_factory.mktemp("stage"), "daemon")
    if not list(tree.folder.rglob("xptychod.service")):
        pytest.skip("built without libsystemd, so no unit is installed")
    return tree


@pytest.fixture(scope="module")
def unit(tree, tmp_path_factory):
    """The installed unit, its paths those of the staged tree."""
    path = tmp_path_factory.mktemp("unit") / "xptychod.service"
    prefix = staged.cache("CMAKE_INSTALL_PREFIX")
    path.write_text(tree.find("xptychod.service").read_text().replace(f"ExecStart={prefix}", f"ExecStart={tree.prefix}"))
    path.with_suffix(".socket").write_text(tree.find("xptychod.socket").read_text())
    return path


def settings(unit):
    """{name: [values]} of the unit."""
    found = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


# ------------------------------------------------------------------------------------------- files


def test_the_unit_is_valid(unit):
    assert run(systemd("systemd-analyze"), "verify", unit) == ""


def test_the_socket_unit_is_valid_and_has_the_name_that_the_daemon_knows(unit):
    socket_unit = unit.with_suffix(".socket")
    assert run(systemd("systemd-analyze"), "verify", socket_unit) == ""
    found = settings(socket_unit)
    assert found["FileDescriptorName"] == ["api"] and found["SocketMode"] == ["0660"] and found["SocketGroup"] == ["xptycho"]
    assert settings(unit)["RuntimeDirectoryPreserve"] == ["yes"], "else the socket would go with the service"


def test_a_reload_is_the_signal_that_the_daemon_knows(unit):
    assert settings(unit)["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert int(settings(unit)["TimeoutStopSec"][0]) >= 30 + 30, "drain_s, and the rest of a stop"


def test_a_wrong_unit_is_found_out(unit, tmp_path):
    """The analyser really looks: it is not silent about everything."""
    broken = tmp_path / "xptychod.service"
    broken.write_text(unit.read_text().replace("Type=notify", "Type=nonsense"))
    assert "nonsense" in run(systemd("systemd-analyze"), "verify", broken)


def test_the_exposure_is_low(unit, tmp_path):
    analyze = systemd("systemd-analyze")
    said = run(analyze, "security", "--offline=true", f"--threshold={EXPOSURE * 10:.0f}", unit)
    exposure = float(re.search(r"exposure level for \S+ ([0-9.]+)", said).group(1))
    assert 0 < exposure <= EXPOSURE
    open_ = tmp_path / "xptychod.service"
    open_.write_text("[Service]\nExecStart=" + settings(unit)["ExecStart"][0] + "\n")
    done = subprocess.run([analyze, "security", "--offline=true", f"--threshold={EXPOSURE * 10:.0f}", open_], capture_output=True)
    assert done.returncode != 0, "the threshold really refuses"


def test_the_unit_starts_what_is_installed_and_keeps_the_devices(tree, unit):
    found = settings(unit)
    program, option, config = found["ExecStart"][0].split()
    assert os.access(program, os.X_OK) and option == "--config"
    assert config == f"{'/etc' if staged.cache('CMAKE_INSTALL_PREFIX') == '/usr' else staged.cache('CMAKE_INSTALL_PREFIX') + '/etc'}/xptycho/xptychod.conf"
    assert found["Type"] == ["notify"] and found["NotifyAccess"] == ["main"] and "WatchdogSec" in found
    # CUDA: its devices, no private /dev, all of /proc, memory that it may execute.
    assert found["DeviceAllow"] == ["char-nvidia* rw"] and found["PrivateDevices"] == ["no"]
    assert "MemoryDenyWriteExecute" not in found and "ProcSubset" not in found
    # Exit codes after which a restart cannot help: those of the daemon's --help.
    assert "2 usage, 78 bad configuration" in run(program, "--help")
    assert found["RestartPreventExitStatus"] == ["2 78"]


def test_user_and_folders_can_be_made(tree, tmp_path):
    sysusers, tmpfiles = systemd("systemd-sysusers"), systemd("systemd-tmpfiles")
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    (tmp_path / "etc").mkdir()
    users = tree.prefix / "lib/sysusers.d/xptychod.conf"
    folders = tree.prefix / "lib/tmpfiles.d/xptychod.conf"
    run(sysusers, f"--root={tmp_path}", users)
    entry = [line for line in (tmp_path / "etc/passwd").read_text().splitlines() if line.startswith("xptycho:")][0].split(":")
    assert entry[5] == "/var/lib/xptycho" and entry[6].endswith("nologin")
    run(tmpfiles, f"--root={tmp_path}", "--create", folders)
    tokens = list(tmp_path.rglob("xptycho/tokens"))[0]
    assert tokens.stat().st_mode & 0o7777 == 0o640 and tokens.stat().st_gid == int(entry[3]) and tokens.stat().st_uid == 0
    tokens.write_text("as an administrator wrote it\n")
    run(tmpfiles, f"--root={tmp_path}", "--create", folders)
    assert tokens.read_text() == "as an administrator wrote it\n"


# ------------------------------------------------------------------------------------ system calls


def allowed_calls(unit):
    """The system calls that the unit's filter lets through; groups as systemd-analyze spells them out."""
    calls, groups = set(ALWAYS), settings(unit)["SystemCallFilter"][0].split()
    while groups:
        word = groups.pop()
        if not word.startswith("@"):
            calls.add(word)
            continue
        for line in run(systemd("systemd-analyze"), "syscall-filter", word).splitlines()[1:]:
            member = line.strip()
            if member and not member.startswith("#"):
                groups.append(member)
    return calls


def test_the_filter_allows_every_call_that_a_job_makes(unit, tmp_path, scan_file, slow_scan_file):
    """A job from submission to result, one that is cancelled, the bridge, and the end of all of them."""
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("strace is not installed")
    if subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True).returncode != 0:
        pytest.skip("processes cannot be traced here")
    trace = tmp_path / "trace"
    daemon = xptychod.Daemon(tmp_path / "daemon", "--zmq-router", "tcp://127.0.0.1:*", "--zmq-pub", "tcp://127.0.0.1:*")
    command = daemon.command()
    daemon.command = lambda: [strace, "-D", "-f", "-qq", "-e", "signal=none", "-o", str(trace), *command]
    try:
        daemon.start()
        job = daemon.unix.submit({"scan": {"path": scan_file}, "recon": {"iterations": 3}, "preview_every_s": 0.1})
        assert daemon.unix.finish(job["id"])["state"] == "succeeded"
        assert daemon.unix.get(f"/v1/jobs/{job['id']}/result/data").status == 200
        job = daemon.unix.submit({"scan": {"path": slow_scan_file}, "recon": {"iterations": 100000}})
        daemon.unix.wait_for_iteration(job["id"], 1)
        daemon.unix.post(f"/v1/jobs/{job['id']}/cancel")
        assert daemon.unix.finish(job["id"])["state"] == "cancelled"
        daemon.stop()
    finally:
        daemon.clean_up()
    text = trace.read_text(errors="replace")
    made = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", text, re.M))
    assert {"memfd_create", "sendmsg", "execve", "fsync", "landlock_create_ruleset"} <= made, "all the programs were traced"
    assert made - allowed_calls(unit) == set()


# ---------------------------------------------------------------------------------- notifications


class Manager:
    """Plays the service manager: the socket of NOTIFY_SOCKET and what came in."""

    def __init__(self, folder):
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(xptychod.DEADLINE_S)
        self.lines = []

    def wait_for(self, wanted):
        """Everything up to the first message with that line, which is part of it."""
        while True:
            message = self.socket.recv(4096).decode().splitlines()
            self.lines += message
            if wanted in message:
                return message


@pytest.fixture
def manager(tmp_path, monkeypatch):
    manager = Manager(tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", manager.path)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    if staged.cache("XPTYCHOD_SYSTEMD") == "OFF":
        pytest.skip("built without libsystemd")
    yield manager
    manager.socket.close()


def test_ready_is_told_when_it_is_and_stopping_when_it_begins(manager, make_daemon):
    daemon = make_daemon()
    message = manager.wait_for("READY=1")
    assert any(line.startswith("STATUS=") for line in message)
    assert daemon.unix.get("/v1/version").status == 200
    daemon.stop()
    manager.wait_for("STOPPING=1")
    assert manager.lines.index("READY=1") < manager.lines.index("STOPPING=1")
    assert "WATCHDOG=1" not in manager.lines, "nobody asked for it"


def test_a_start_that_fails_is_never_ready(manager, tmp_path):
    daemon = xptychod.Daemon(tmp_path / "daemon", "--log-level", "nonsense")
    daemon.folder.mkdir()
    assert daemon.spawn().wait(60) == 78
    manager.socket.settimeout(0)
    with pytest.raises(BlockingIOError):
        manager.socket.recv(4096)


def test_the_watchdog_is_fed_while_jobs_run(manager, make_daemon, slow_scan_file, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    daemon = make_daemon()
    manager.wait_for("READY=1")
    job = daemon.unix.submit({"scan": {"path": slow_scan_file}, "recon": {"iterations": 100000}})
    daemon.unix.wait_for_iteration(job["id"], 1)
    manager.socket.settimeout(4)  # later than that, and the manager would have killed the daemon
    for _ in range(2):
        manager.wait_for("WATCHDOG=1")
    daemon.unix.post(f"/v1/jobs/{job['id']}/cancel")


def test_the_watchdog_of_another_process_is_not_fed(manager, make_daemon, monkeypatch):
    """WATCHDOG_PID names the process that is meant."""
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    daemon = make_daemon()
    manager.wait_for("READY=1")
    daemon.stop()
    manager.wait_for("STOPPING=1")
    assert "WATCHDOG=1" not in manager.lines
