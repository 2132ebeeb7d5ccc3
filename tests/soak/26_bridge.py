#!/usr/bin/python3
"""Also: the ZeroMQ bridge killed --kills times, also while it has a request.

Passes when no job is lost, none is made twice, the job that runs is not disturbed and every new bridge publishes its progress.
"""

import bridge_kills
import scans
import soak
import xptychod


def body(options):
    scan = scans.make(n=16, points=4, step=3, seed=1).write(options.folder / "small.h5")
    daemon = xptychod.Daemon(options.folder / "daemon", "--queue-user-max", "100000")
    try:
        counts = bridge_kills.run(daemon.start(), scan, options.folder, options.kills, options.seed, lambda text: print(text, flush=True))
        daemon.stop()
    finally:
        daemon.clean_up()
    return f"{counts['kills']} kills, {counts['jobs']} jobs, none lost, none twice"


if __name__ == "__main__":
    soak.main(26, body, soak.arguments(__doc__, kills=100, seed=1))
