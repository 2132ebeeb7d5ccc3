#!/usr/bin/python3
"""Test 6: every system call and allocation of the broker, of the worker and of the reader fails in turn.

    tests/soak/run.sh 6 [--program NAME] [--most N] [--error EIO] [--seed S]

A round is start, two submissions, their event streams, a cancel and a stop, with the n-th call failing; then a start without a
fault, in which every job that was acknowledged is there and comes to its one end, and the database is whole.  --most bounds
the rounds of each kind: the n are then drawn evenly.  Meant for the programs of a build with XPTYCHOD_SANITIZE=address,undefined,
whose every word fails the round.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import random
import sys
import tempfile

import faults
import scans
import torture


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", choices=torture.PROGRAMS, action="append")
    parser.add_argument("--most", type=int, default=1 << 30)
    parser.add_argument("--error", default="EIO")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if faults.available():
        print(f"soak 06: FAILED: {faults.available()}")
        return 1
    failures, figures = [], []
    with tempfile.TemporaryDirectory(prefix="xptychod-torture-") as folder:
        folder = pathlib.Path(folder)
        scan = scans.make().write(folder / "scan.h5")
        for program in options.program or torture.PROGRAMS:
            calls = torture.count(folder / "count", scan, program)
            for kind, error in (("any", options.error), ("alloc", "ENOMEM")):
                numbers = range(1, calls[kind] + 1)
                if len(numbers) > options.most:
                    chance, step = random.Random(options.seed), len(numbers) / options.most
                    numbers = sorted({1 + int(step * k + chance.random() * step) for k in range(options.most)})
                ended = collections.Counter()

                def one(n):
                    try:
                        return torture.torture(folder / f"{program}-{kind}{n}", scan, f"{kind}:{n}:{error}:in={program}", program), None
                    except AssertionError as wrong:
                        return "failed", str(wrong)

                with concurrent.futures.ThreadPoolExecutor(2) as pool:
                    for done, (status, wrong) in enumerate(pool.map(one, numbers), 1):
                        ended[status] += 1
                        if wrong:
                            failures.append(wrong)
                            print(wrong, flush=True)
                        if done % 50 == 0:
                            print(f"{program} {kind}: {done} of {len(numbers)}, {len(failures)} failures", flush=True)
                figures.append(f"{program} {kind}: {len(numbers)} of {calls[kind]} calls, exits {dict(ended)}")
                print(figures[-1], flush=True)
    print(f"soak 06: {'FAILED: ' + str(len(failures)) + ' rounds; ' if failures else 'passed: '}{'; '.join(figures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
