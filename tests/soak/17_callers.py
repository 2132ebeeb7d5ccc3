"""Test 17: every verb by every kind of caller, the time of a token's comparison, and no token in any log."""

import hashlib
import itertools
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

import callers  # noqa: E402
import scans  # noqa: E402
import soak  # noqa: E402
from system_daemon import SystemDaemon  # noqa: E402

T_MOST = 4.5  # as in dudect: above it a difference is no chance


def near(secret, bits):
    """A token that is not known, whose hash begins like that of the secret."""
    wanted = int.from_bytes(hashlib.sha256(secret.encode()).digest()[:8], "big") >> (64 - bits)
    for number in itertools.count():
        token = f"{number:064x}"
        if int.from_bytes(hashlib.sha256(token.encode()).digest()[:8], "big") >> (64 - bits) == wanted:
            return token


def check_times(daemon, options):
    """Refused: far from every hash, near to one, and one digit off; let in: the first and the last of a long file."""
    refused = {"far": "0" * 64, "near": near(daemon.secrets["ada"], 20), "one digit off": daemon.secrets["ada"][:-1] + ("0" if daemon.secrets["ada"][-1] != "0" else "1")}
    let_in = {"first": daemon.secrets["ada"], "last": daemon.secrets[f"filler{options.tokens - 1}"]}
    said = []
    for tokens in (refused, let_in):
        times = callers.time_tokens(daemon.ready["http"], tokens, options.rounds)
        first = next(iter(tokens))
        for name in list(tokens)[1:]:
            t, microseconds = callers.compare(times[first], times[name])
            said.append(f"{first} and {name}: t = {t:.1f}, {microseconds:+.2f} us")
            assert abs(t) < T_MOST, said[-1]
    return "; ".join(said)


def body(options):
    scan = scans.make().write(options.folder / "scan.h5")
    daemon = SystemDaemon(options.folder / "d", f"[limits]\nrate = 0\n[roots]\ndata = {options.folder}\n", "--log-level", "debug")
    for token in callers.TOKENS:
        daemon.add_token(*token)
    for number in range(options.tokens):
        daemon.add_token(f"filler{number}", callers.BOB, "read")
    try:
        daemon.start()
        job = daemon.api_of("ada").submit({"scan": {"path": str(scan)}, "recon": {"iterations": 2}})["id"]
        daemon.api_of("ada").finish(job)
        calls = callers.check_matrix(daemon, job)
        flat = check_times(daemon, options)
        for secret in daemon.secrets.values():
            daemon.api_of("ada").get(f"/v1/jobs/{secret}")
        log = daemon.log_text()
        found = [name for name, secret in daemon.secrets.items() if secret[:41] in log]
        assert not found, f"tokens in the log: {found}"
        daemon.stop()
    finally:
        daemon.clean_up()
    return f"{calls} calls by {len(list(callers.TOKENS)) + 1} users and kinds as due; {flat} ({options.rounds} rounds, {options.tokens} tokens); no token in {len(log.splitlines())} lines at level debug"


if __name__ == "__main__":
    soak.main(17, body, soak.arguments(__doc__, rounds=20000, tokens=1000))
