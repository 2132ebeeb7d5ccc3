#!/usr/bin/python3
"""Test 23: memory admission with random scans and limits, while strangers hold the memory between admission and start.

For each of --scans scans: two machines that are too small refuse with arithmetic that is exact and with changes that are
admitted; on one where a stranger holds all but a byte of what is needed the job waits and says foreign-process; when the
stranger goes it runs, and its process never takes more than it was admitted for.  --shapes shapes more are judged without
a run, byte by byte (test_broker_admission).
"""

import subprocess

import memory_runs
import soak
import xptychod


def body(options):
    unit = subprocess.run([xptychod.program("test_broker_admission"), str(options.shapes)], capture_output=True, text=True, check=False)
    assert unit.returncode == 0, unit.stdout + unit.stderr
    shapes = next(line for line in unit.stdout.splitlines() if " shapes: " in line)
    print(shapes)
    machine = memory_runs.Machine(options.folder / "machine")
    machine.daemon.start()
    try:
        counts = memory_runs.run(machine, options.folder / "scans", options.scans, options.seed, lambda text: print(text, flush=True))
        machine.daemon.stop()
    finally:
        machine.daemon.clean_up()
    return (f"{shapes}; {counts['scans']} scans run after a stranger had left, {counts['refusals']} refusals exact, {counts['suggestions']} suggestions "
            f"admitted; of the memory admitted {counts['least memory taken']:.0%} to {counts['most memory taken']:.0%} was taken, of a result at most "
            f"{counts['most of a result']:.0%}")


if __name__ == "__main__":
    soak.main(23, body, soak.arguments(__doc__, scans=60, shapes=100000, seed=1))
