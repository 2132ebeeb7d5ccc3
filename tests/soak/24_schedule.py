#!/usr/bin/python3
"""Test 24: the scheduler with a virtual clock and --jobs random jobs of 4 classes and 20 users on 8 device sets, and half as
many with scarce memory: no set and no byte twice, gangs whole, the first that waits never delayed by one behind it,
bounded waits, shares within 10 % (equal and weighted), the same input the same schedule (test_broker_schedule).
"""

import subprocess

import soak
import xptychod


def body(options):
    done = subprocess.run([xptychod.program("test_broker_schedule"), str(options.jobs)], capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    assert done.returncode == 0, "the simulation"
    lines = done.stdout.splitlines()
    figures = [line for line in lines if "longest wait" in line or "shares:" in line]
    assert len(figures) == 10, figures
    return "; ".join(figures)


if __name__ == "__main__":
    soak.main(24, body, soak.arguments(__doc__, jobs=1000000))
