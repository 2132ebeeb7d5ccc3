"""Test 16: requests made from openapi.json, valid and mutated, against a running daemon.

Passes when no answer is a 5xx beyond the documented refusals, none is undocumented in status, type or body, and the
daemon still answers and stops with status 0.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

import xptychod  # noqa: E402

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"



def schemathesis():
    """Path of PyPI's program, fetched into an environment of its own where it is missing."""
    venv = pathlib.Path(os.environ.get("XPTYCHOD_SOAK_VENV", HERE.parents[1] / "build/soak-venv"))
    program = venv / "bin/st"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin/pip"), "install", "-q", "--disable-pip-version-check",
                        "schemathesis==3.39.16", "hypothesis==6.108.5"], check=True)
    return str(program)


# Documents of jobs cost schemathesis a third of a second each to make up, everything else next to nothing.
COSTLY = ("submit", "rerun")


def main():
    program, cases = schemathesis(), int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    costly_share = float(sys.argv[2]) if len(sys.argv) > 2 else 0.1
    document = json.loads((HERE.parents[1] / "protocol/openapi.json").read_text())
    operations = sum(method in ("get", "post", "patch", "put", "delete") for path, item in document["paths"].items()
                     if path.startswith("/v1/") for method in item)
    plain = operations - len(COSTLY)
    rounds = [("--exclude-operation-id", plain, cases * (1 - costly_share)), ("--include-operation-id", len(COSTLY), cases * costly_share)]
    with tempfile.TemporaryDirectory() as folder:
        daemon = xptychod.Daemon(pathlib.Path(folder) / "d", "--queue-max", "100000", "--queue-user-max", "100000")
        try:
            daemon.start()
            token = pathlib.Path(daemon.ready["token_file"]).read_text().strip()
            codes, begun, before = [], time.monotonic(), answered(daemon)
            for choice, count, share in rounds:
                each = max(1, round(share / count / 2))  # of valid and of mutated ones each
                codes.append(subprocess.run(
                    [program, "run", str(HERE.parents[1] / "protocol/openapi.json"), "--base-url", daemon.ready["http"],
                     "--header", f"Authorization: Bearer {token}", "--checks", CHECKS,
                     *(["--include-path-regex", "^/v1/"] if choice.startswith("--exclude") else []),  # two inclusions would add up
                     *(word for name in COSTLY for word in (choice, name)),
                     "--data-generation-method", "all", "--hypothesis-max-examples", str(each), "--experimental", "openapi-3.1",
                     "--hypothesis-suppress-health-check", "all", "--hypothesis-database", "none", "--request-timeout", "40000",
                     "--hypothesis-deadline", "60000"],
                    env={**os.environ, "SCHEMATHESIS_HOOKS": "openapi_hooks", "PYTHONPATH": str(HERE)}, cwd=folder, check=False).returncode)
            sent, seconds = answered(daemon) - before, time.monotonic() - begun
            assert daemon.admin.get("/livez").status == 200, "the daemon is gone"
            daemon.stop()
            print(f"soak 16: {'FAILED: see above' if any(codes) else 'passed'}: {sent} requests to {operations} operations in {seconds:.0f} s, {cases} cases asked for; "
                  f"schemathesis left with {codes}")
            return int(any(codes))
        finally:
            print(daemon.log_tail(5), file=sys.stderr)
            daemon.clean_up()


def answered(daemon):
    """Requests that the daemon has seen, by the number that it gives to each."""
    return int(daemon.admin.get("/livez").headers["X-Request-Id"])


sys.exit(main())
