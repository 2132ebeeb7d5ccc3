#!/usr/bin/python3
"""Test 3: the disk of the state folder (a tmpfs of 2 MiB) becomes full and free again, --rounds times, with one process.

Passes when submissions are answered 201 or 507 with bytes, reads are answered, the running job comes to its end in memory, and
the service takes work again without a restart; at the end every job that was acknowledged is there and the database is whole.
"""

import subprocess

import faults
import fault_rounds
import soak
import test_faults
import xptychod


def round_of(daemon, folder, scan, slow, number):
    api, known = daemon.api, []
    running = api.submit(test_faults.job_of(slow, 100000, output={"path": str(folder / f"running{number}.h5")}, checkpoint="off"))["id"]
    api.wait_for_iteration(running, 2)
    filler = test_faults.fill(daemon.state)
    answers = [api.post("/v1/jobs", test_faults.job_of(scan, 2, name="x" * 200, output={"path": str(folder / f"{number}-{i}.h5")}, checkpoint="off"))
               for i in range(30)]
    assert {a.status for a in answers} <= {201, 507}, answers
    full = [a.json() for a in answers if a.status == 507]
    assert full and all(a["free_bytes"] >= 0 and "required_bytes" in a for a in full), full
    known += [a.json()["id"] for a in answers if a.status == 201]
    for path in ("/v1/jobs", f"/v1/jobs/{running}", "/v1/queue", "/v1/limits"):
        assert api.get(path).status == 200
    assert api.post(f"/v1/jobs/{running}/cancel").status in (202, 507)
    xptychod.wait_until(lambda: api.show(running)["terminal"], "the running job ends")
    filler.unlink()
    xptychod.wait_until(lambda: api.get("/readyz").status == 200, "ready again")
    known.append(api.submit(test_faults.job_of(scan, 2, output={"path": str(folder / f"{number}-after.h5")}, checkpoint="off"))["id"])
    for job_id in known:
        assert api.finish(job_id)["state"] == "succeeded"
    assert api.finish(running)["state"] == "cancelled"  # tried again until it was on disk
    for job_id in [*known, running]:  # the small disk holds few of them
        assert api.delete(f"/v1/jobs/{job_id}").status == 204
    return len(full), len(known) + 1


def body(options):
    fault_rounds.needed()
    scan, slow = fault_rounds.scan_files(options.folder)
    refused = jobs = 0
    daemon = faults.FaultyDaemon(options.folder / "daemon", "--low-disk-mib", "0", "--ballast-mib", "0")
    daemon.state.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0755", "none", daemon.state], check=True)
    try:
        with fault_rounds.daemon_of(daemon):
            daemon.start()
            pid = daemon.process.pid
            for number in range(options.rounds):
                a, b = round_of(daemon, options.folder, scan, slow, number)
                refused, jobs = refused + a, jobs + b
            assert daemon.process.pid == pid and daemon.process.poll() is None
            daemon.stop()
            test_faults.check_state(daemon)
    finally:
        subprocess.run(["umount", "-l", daemon.state], check=True)
    return f"{options.rounds} times full and free, {refused} submissions answered 507 with bytes, {jobs} jobs at their ends, one process"


if __name__ == "__main__":
    soak.main(3, body, soak.arguments(__doc__, rounds=20))
