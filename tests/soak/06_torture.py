#!/usr/bin/python3
"""Test 6: every system call and allocation of the broker, of the worker and of the reader fails in turn.

    tests/soak/run.sh 6 [--program NAME] [--stacks] [--most N] [--error EIO] [--jobs N] [--seed S]

A round is start, two submissions, their event streams, a cancel and a stop, with the n-th call failing; then a start without a
fault, in which every job that was acknowledged is there and comes to its one end, and the database is whole.  With --stacks n does
not count calls but the callers that calls have: of those with the same callers, one fails.  --most bounds the rounds of each kind:
they are then drawn evenly.  Meant for the programs of a build with XPTYCHOD_SANITIZE=address,undefined, whose every word fails
the round; without the sanitizers a round costs half.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import random
import sys
import tempfile
import time

import faults
import scans
import torture


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", choices=torture.PROGRAMS, action="append")
    parser.add_argument("--most", type=int, default=1 << 30)
    parser.add_argument("--error", default="EIO")
    parser.add_argument("--stacks", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
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
            callers = torture.stacks(folder / "count", scan, program) if options.stacks else {}
            for kind, error in (("any", options.error), ("alloc", "ENOMEM")):
                if options.stacks:
                    rules = [torture.rule(kind, error, program, stack=stack) for stack, _ in callers[kind]]
                else:
                    rules = [torture.rule(kind, error, program, n) for n in range(1, calls[kind] + 1)]
                of, begun = len(rules), time.monotonic()
                if of > options.most:
                    chance, step = random.Random(options.seed), of / options.most
                    rules = [rules[k] for k in sorted({int(step * k + chance.random() * step) for k in range(options.most)})]
                ended = collections.Counter()

                def one(k):
                    try:
                        return torture.torture(folder / f"{program}-{kind}{k}", scan, rules[k], program), None
                    except AssertionError as wrong:
                        return "failed", str(wrong)

                with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                    for done, (status, wrong) in enumerate(pool.map(one, range(len(rules))), 1):
                        ended[status] += 1
                        if wrong:
                            failures.append(wrong)
                            print(wrong, flush=True)
                        if done % 50 == 0:
                            print(f"{program} {kind}: {done} of {len(rules)}, {len(failures)} failures", flush=True)
                whole = f"{of} different callers of {calls[kind]} calls" if options.stacks else f"{of} calls"
                figures.append(f"{program} {kind}: {len(rules)} of {whole}, exits {dict(ended)}, {time.monotonic() - begun:.0f} s")
                print(figures[-1], flush=True)
    print(f"soak 06: {'FAILED: ' + str(len(failures)) + ' rounds; ' if failures else 'passed: '}{'; '.join(figures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
