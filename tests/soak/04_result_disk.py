#!/usr/bin/python3
"""Test 4: no room, a quota, an error of the disk, at each step of writing a checkpoint and a result (--rounds times all).

Passes when a checkpoint that fails leaves the one before, from which the job goes on to the same bits; when a result that fails
fails its job with the path and the system's words, leaves nothing, and the same worker writes the next one.
"""

import faults
import fault_rounds
import soak
import test_faults


def body(options):
    fault_rounds.needed()
    scan, slow = fault_rounds.scan_files(options.folder)
    checkpoints = {**test_faults.CHECKPOINT_FAULTS, **test_faults.CHECKPOINT_FAULTS_MORE}
    results = {**test_faults.RESULT_FAULTS, **test_faults.RESULT_FAULTS_MORE}
    for number in range(options.rounds):
        for k, (fault, words) in enumerate(checkpoints.items()):
            with fault_rounds.daemon_of(faults.FaultyDaemon(options.folder / f"c{number}-{k}")) as daemon:
                test_faults.check_checkpoint_fault(daemon, slow, fault, words)
        for k, (fault, words) in enumerate(results.items()):
            with fault_rounds.daemon_of(faults.FaultyDaemon(options.folder / f"r{number}-{k}")) as daemon:
                test_faults.check_result_fault(daemon, scan, options.folder / f"out{number}-{k}" / "result.h5", fault, words)
    return f"{options.rounds} times {len(checkpoints)} faults of a checkpoint and {len(results)} of a result"


if __name__ == "__main__":
    soak.main(4, body, soak.arguments(__doc__, rounds=3))
