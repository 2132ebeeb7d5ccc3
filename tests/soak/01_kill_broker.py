#!/usr/bin/python3
"""Test 1: kill -9 of the broker at 200 (--kills) random moments under a storm of submits, runs, cancels and streams.

Passes when every job that was acknowledged is there once, each ends with one `end` and the state that it must have, no
end that was told is ever taken back, streams that resume have no hole, and the database is whole.
"""

import kill_storm
import soak


def body(options):
    counts = kill_storm.run(options.folder, options.kills, options.seed, lambda text: print(text, flush=True))
    print(", ".join(f"{value} {name}" for name, value in sorted(counts.items())))
    return (f"{options.kills} kills ({counts['while it started']} while it started), {counts['jobs']} acknowledged jobs, none lost, "
            f"none twice: {counts['succeeded']} succeeded, {counts['cancelled']} cancelled; {counts['requests without an answer']} requests without an answer, "
            f"{counts['logs followed']} logs followed over the kills")


if __name__ == "__main__":
    soak.main(1, body, soak.arguments(__doc__, kills=200, seed=1))
