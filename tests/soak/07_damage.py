#!/usr/bin/python3
"""Test 7: a thousand state folders with a damaged database, write-ahead log, event log, checkpoint or note of a result.

    tests/soak/run.sh 7 [variants=1000] [first seed=0]

Passes when the service starts each time, with every job or a line in its log for each that is gone, or refuses with the name
of the file; when each started one brings its jobs to their end, runs a new one and stops well.  The programs may be those of
a sanitized build.
"""

import collections
import concurrent.futures
import pathlib
import sys
import tempfile

import damage
import scans


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failures, outcomes = [], collections.Counter()
    with tempfile.TemporaryDirectory(prefix="xptychod-damage-") as folder:
        folder = pathlib.Path(folder)
        template = damage.Template(folder / "template", scans.make().write(folder / "scan.h5"),
                                   scans.make(n=64, points=12, step=6, seed=2).write(folder / "slow.h5"))

        def one(seed):
            variant = damage.Variant(template, folder / str(seed), seed)
            try:
                return variant.kind, variant.run(), None
            except AssertionError as error:
                return variant.kind, "failed", str(error)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for done, (kind, outcome, error) in enumerate(pool.map(one, range(first, first + count)), 1):
                outcomes[kind, outcome] += 1
                if error:
                    failures.append(error)
                    print(error, flush=True)
                if done % 100 == 0:
                    print(f"{done} variants, {len(failures)} failures", flush=True)
    text = ", ".join(f"{kind} {outcome} {n}" for (kind, outcome), n in sorted(outcomes.items()))
    print(f"soak 07: {'FAILED: ' + str(len(failures)) + ' of ' if failures else 'passed: '}{count} variants: {text}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
