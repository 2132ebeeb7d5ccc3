#!/usr/bin/python3
"""Test 2: kill -9 of the worker, the broker, or both between the name of a result and the commit (--rounds of each).

Passes when every such job has succeeded with the file that has the name, was not run again, and nothing half written is left.
"""

import faults
import fault_rounds
import soak
import test_faults


def body(options):
    fault_rounds.needed()
    scan, _ = fault_rounds.scan_files(options.folder)
    for number in range(options.rounds):
        for who in (["worker"], ["broker"], ["worker", "broker"]):
            place = options.folder / f"{number}-{'-'.join(who)}"
            out = place / "out" / "result.h5"
            out.parent.mkdir(parents=True)
            with fault_rounds.daemon_of(faults.FaultyDaemon(place / "daemon")) as daemon:
                done, events = test_faults.die_between(daemon, scan, out, who)
                soak.check_log(events)
                assert done["state"] == "succeeded" and done["result"]["bytes"] == out.stat().st_size, done
                assert [e.get("state") for e in events].count("starting") == 1, "it ran again"
                assert [p.name for p in out.parent.iterdir()] == ["result.h5"], "something is left beside the result"
    return f"{3 * options.rounds} kills, every job succeeded with the file that was there, none ran again, nothing left"


if __name__ == "__main__":
    soak.main(2, body, soak.arguments(__doc__, rounds=30))
