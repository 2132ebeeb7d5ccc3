"""Test 15: requests that bend HTTP, direct and behind nginx: each gets its one answer, and none hides another."""

import pathlib
import re
import shutil
import socket
import sys
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parent / "integration")]

import conformance  # noqa: E402
import soak  # noqa: E402
import test_proxy  # noqa: E402
import xptychod  # noqa: E402


def send_all(connect, host, token, tag, options, judge, half_close):
    """How many were sent; raises with the first that was answered wrongly."""
    fixed = conformance.whole_set(host, token, tag)
    wrong = [judge(case, conformance.exchange(connect(), case.data, case.closes and half_close, 5)) for case in fixed]
    for case in conformance.mutated(host, token, tag, options.mutations, options.seed):
        found = conformance.statuses_of(conformance.exchange(connect(), case.data, half_close, 5, 0.2))
        if bad := [status for status in found if status >= 500 and status not in (501, 505)]:
            wrong.append(f"{case.name}: {bad}: {case.data!r}")
    if wrong := [sentence for sentence in wrong if sentence]:
        raise AssertionError(f"{len(wrong)} wrong: {wrong[0]}")
    return len(fixed) + options.mutations


def unseen(daemon, tag, api):
    """The log names what reaches the router, and names no hidden request."""
    api.get(f"/v1/seen-{tag}")
    log = daemon.log.read_text(errors="replace")
    assert f"/v1/seen-{tag}" in log, "the log does not name a request that reached the router"
    served = sorted(set(re.findall(rf"{conformance.HIDDEN}-{tag}[-0-9]*", log)))
    assert not served, f"{len(served)} hidden requests reached the router, such as {served[0]}"


def direct(options):
    daemon, tag = xptychod.Daemon(options.folder / "direct"), uuid.uuid4().hex[:8]
    try:
        daemon.start()
        host = daemon.ready["http"].removeprefix("http://")
        address, _, port = host.rpartition(":")
        sent = send_all(lambda: socket.create_connection((address, int(port))), host, daemon.api.token, tag, options, conformance.judge, True)
        unseen(daemon, tag, daemon.api)
        daemon.stop()
    finally:
        daemon.clean_up()
    return sent


def behind_nginx(options):
    tag = uuid.uuid4().hex[:8]
    (options.folder / "certificate").mkdir()
    (options.folder / "nginx").mkdir()
    with test_proxy.behind(test_proxy.nginx, options.folder / "nginx", test_proxy.make_certificate(options.folder / "certificate")) as proxied:
        sent = send_all(lambda: proxied.context.wrap_socket(proxied.connect(), server_hostname=test_proxy.NAME), test_proxy.NAME, proxied.token, tag, options,
                        conformance.judge_behind_a_proxy, False)
        unseen(proxied.daemon, tag, proxied.daemon.api)
    return sent


def body(options):
    figures = f"{direct(options)} requests direct"
    if shutil.which("nginx"):
        return f"{figures}, {behind_nginx(options)} behind nginx, no hidden request reached the router"
    return f"{figures}; nginx is not installed"


if __name__ == "__main__":
    soak.main(15, body, soak.arguments(__doc__, mutations=5000, seed=15))
