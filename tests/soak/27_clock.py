#!/usr/bin/python3
"""Also: the wall clock jumps by an hour, forward and back, --rounds times under libfaketime (Debian: faketime).

Passes when no deadline fires, no job makes room or is given up, no worker is replaced, and iterations, pictures, checkpoints,
streams, the watchdog, submits and cancels go on after each jump.
"""

import clock_jumps
import soak


def body(options):
    counts = clock_jumps.run(options.folder, options.rounds, options.wait, options.seed, lambda text: print(text, flush=True))
    return (f"{counts['jumps']} jumps of an hour, {counts['looks']} looks at two running and two waiting jobs, none moved; a submit, its cancel "
            f"and its end took at most {counts['slowest answer, ms']} ms")


if __name__ == "__main__":
    soak.main(27, body, soak.arguments(__doc__, rounds=60, wait=2.0, seed=1))
