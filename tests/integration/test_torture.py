"""The n-th system call or allocation fails, in start, submit, stream, cancel and stop; test 6 of docs/testing.md.

A few n, drawn anew for each state of the sources by their number; tests/soak/06_torture.py does one for each caller of a call, or all.
"""

import random

import pytest

import faults
import torture

pytestmark = pytest.mark.skipif(faults.available() is not None, reason=str(faults.available()))
ROUNDS = 3


@pytest.mark.parametrize("program", torture.PROGRAMS)
def test_a_call_that_fails_crashes_nothing_and_loses_nothing(tmp_path, scan_file, program):
    calls = torture.count(tmp_path / "count", scan_file, program)
    chance = random.Random(6)
    for kind, error in (("any", "EIO"), ("alloc", "ENOMEM")):
        assert calls[kind] > 20
        for k in range(ROUNDS):
            n = chance.randint(1 + calls[kind] * k // ROUNDS, calls[kind] * (k + 1) // ROUNDS)
            torture.torture(tmp_path / f"{kind}{n}", scan_file, torture.rule(kind, error, program, n), program)
