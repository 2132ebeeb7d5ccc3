#!/usr/bin/python3
"""Test 19: SIGTERM with 4 running jobs on 4 sets, 50 streams and 10 submits in flight, --rounds times one after the other.

Passes when every stop ends with status 0 within the unit's TimeoutStopSec, every stream ends properly with the news that its
job waits again, no acknowledged submit is lost, and after each start every job goes on at its last checkpoint or later.
"""

import soak
import stop_storm


def body(options):
    counts, times = stop_storm.run(options.folder, options.rounds, options.seed, lambda text: print(text, flush=True))
    return (f"{options.rounds} stops, the longest {max(times):.2f} s, the median {soak.quantile(times, 0.5):.2f} s (limit {stop_storm.STOP_S} s); "
            f"{counts['acknowledged']} submits acknowledged, none lost; {counts['refused']} refused, {counts['cut']} cut; "
            f"{options.rounds * stop_storm.STREAMS} streams ended properly; {counts['iterations done again']} iterations done again")


if __name__ == "__main__":
    soak.main(19, body, soak.arguments(__doc__, rounds=20, seed=1))
