"""Fixtures of the integration tests: a private daemon, a scan, and the log's tail when a test fails."""

import os
import pathlib
import re
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "support"))

import scans  # noqa: E402
import xptychod  # noqa: E402

try:
    import contract  # noqa: E402
except ImportError:  # without python3-jsonschema the answers are not judged; test_contract.py is skipped and says so
    contract = None
xptychod.Api.contract = contract

DATA = TESTS / "data"

# Real GPUs are hidden: what a test does not say runs on the CPU, as on a machine that has none.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
NO_GPU = re.compile("built without CUDA|no NVIDIA driver|has no CUDA device")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    item.failed_phase = getattr(item, "failed_phase", None) or (call.when if report.failed else None)
    if report.failed:
        for daemon in getattr(item, "daemons", []):
            report.sections.append((f"log of the daemon in {daemon.folder}", daemon.log_tail()))


@pytest.fixture
def make_daemon(request, tmp_path):
    """make_daemon(*options) starts a daemon of this test alone; all are stopped and checked at its end."""
    started = request.node.daemons = []

    def make(*arguments):
        daemon = xptychod.Daemon(tmp_path / f"daemon{len(started)}", *arguments)
        started.append(daemon)
        return daemon.start()

    yield make
    try:
        for daemon in started:
            if daemon.process.poll() is None:
                daemon.stop()
    finally:
        for daemon in started:
            daemon.clean_up()


@pytest.fixture
def daemon(make_daemon):
    """A daemon of this test alone."""
    return make_daemon()


@pytest.fixture(scope="module")
def shared_daemon(request, tmp_path_factory):
    """One daemon for the tests of a file that neither stop it nor look at its whole queue."""
    daemon = xptychod.Daemon(tmp_path_factory.mktemp("shared"))
    try:
        try:
            daemon.start()
        except AssertionError:
            print(daemon.log_tail())
            raise
        yield daemon
        daemon.stop()
    finally:
        daemon.clean_up()


@pytest.fixture(autouse=True)
def _show_shared_log(request):
    if "shared_daemon" in request.fixturenames:
        request.node.daemons = [*getattr(request.node, "daemons", []), request.getfixturevalue("shared_daemon")]
    yield


@pytest.fixture(scope="session")
def scan():
    """36 frames of 32 x 32."""
    return scans.make()


@pytest.fixture(scope="session")
def scan_file(scan, tmp_path_factory):
    return scan.write(tmp_path_factory.mktemp("scan") / "scan.h5")


@pytest.fixture(scope="session")
def slow_scan_file(tmp_path_factory):
    """144 frames of 64 x 64: an iteration takes long enough to be interrupted."""
    return scans.make(n=64, points=12, step=6, seed=2).write(tmp_path_factory.mktemp("slow") / "slow.h5")
