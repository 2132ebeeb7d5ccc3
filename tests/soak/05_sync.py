#!/usr/bin/python3
"""Test 5: the n-th sync or write of the database fails, for n = 1 .. --most, while jobs are submitted and run.

Passes when the service ends with status 1 at once, without a second sync, and the next start has every job that was acknowledged,
runs it to its one end, and the database is whole.  What a failed sync of a checkpoint does is in test 4.
"""

import faults
import fault_rounds
import soak
import test_faults


def round_of(daemon, scan, call, n):
    daemon.fault = f"{call}:{n}+:EIO:path=queue.db:when={daemon.armed}:in=xptychod"
    daemon.start()
    daemon.arm()
    known = []
    try:
        while len(known) < 40:
            answer = daemon.api.post("/v1/jobs", test_faults.job_of(scan, 2))
            if answer.status != 201:
                assert answer.status == 503, answer
                break
            known.append(answer.json()["id"])
    except OSError:
        pass
    assert daemon.ended() == 1
    assert len(daemon.faults()) == 1, "no second try"
    daemon.arm(False)
    test_faults.check_state(daemon)
    daemon.start()
    for job_id in known:
        soak.check_log(daemon.api.events(job_id))
        assert daemon.api.show(job_id)["state"] == "succeeded"
    return len(known)


def body(options):
    fault_rounds.needed()
    scan, _ = fault_rounds.scan_files(options.folder)
    jobs = rounds = 0
    for n in range(1, options.most + 1):
        for call in ("fdatasync", "pwrite"):
            with fault_rounds.daemon_of(faults.FaultyDaemon(options.folder / f"{call}{n}")) as daemon:
                jobs += round_of(daemon, scan, call, n)
                rounds += 1
    return f"{rounds} failures, each ended the service at once; {jobs} acknowledged jobs, none lost"


if __name__ == "__main__":
    soak.main(5, body, soak.arguments(__doc__, most=20))
