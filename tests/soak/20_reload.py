#!/usr/bin/python3
"""Test 20: a hundred SIGHUP a second for --seconds, good and broken configurations and token files by turns, under load.

Passes when every request is answered as it should be all the time, the limits in force are always those of one good file,
a token of a broken file never counts, and every refusal names the file and the line.
"""

import reload_storm
import soak


def body(options):
    storm = reload_storm.run(options.folder, options.seconds, lambda text: print(text, flush=True))
    counts = storm.counts
    return (f"{counts['signals']} signals in {storm.seconds:.0f} s, {counts['done']} reloads taken, {counts['refused']} refused with file and "
            f"line; meanwhile {counts['jobs']} jobs, {sum(storm.pairs.values())} looks at the limits, always those of one file, and "
            f"{counts['strangers']} strangers kept out")


if __name__ == "__main__":
    soak.main(20, body, soak.arguments(__doc__, seconds=120.0))
