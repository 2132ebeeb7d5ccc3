"""What the long forms of the reliability tests share: their last line, slopes, and what an event log must look like."""

import argparse
import math
import pathlib
import sys
import tempfile
import time
import traceback


def arguments(description, **defaults):
    """Options `--name VALUE` of the type of their defaults; `--folder` is where daemons and figures lie."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    parser.add_argument("--folder", type=pathlib.Path, help="made, and kept; default: a temporary one, removed at the end")
    return parser.parse_args()


def main(number, body, options):
    """Runs body(options) in a folder and ends the program with the line that tells how test `number` went."""
    begin = time.monotonic()
    try:
        if options.folder:
            options.folder.mkdir(parents=True)
            figures = body(options)
        else:
            with tempfile.TemporaryDirectory(prefix=f"soak{number:02d}-") as folder:
                options.folder = pathlib.Path(folder)
                figures = body(options)
    except Exception as error:  # whatever it was, the last line says so
        traceback.print_exc(file=sys.stdout)
        print(f"soak {number:02d}: FAILED: {str(error).splitlines()[0] if str(error) else type(error).__name__}", flush=True)
        sys.exit(1)
    print(f"soak {number:02d}: passed: {figures} ({time.monotonic() - begin:.0f} s)", flush=True)
    sys.exit(0)


def slope(points):
    """Least squares through (time, value, life): one slope for all lives, each with a level of its own.

    Returns the slope and its standard error; a process that was replaced begins another life."""
    lives = {}
    for t, value, life in points:
        lives.setdefault(life, []).append((t, value))
    centred = []
    for values in lives.values():
        t0 = sum(t for t, _ in values) / len(values)
        v0 = sum(v for _, v in values) / len(values)
        centred += [(t - t0, v - v0) for t, v in values]
    square = sum(t * t for t, _ in centred)
    free = len(centred) - len(lives) - 1
    if square == 0 or free <= 0:
        return math.nan, math.inf
    found = sum(t * v for t, v in centred) / square
    rest = sum((v - found * t) ** 2 for t, v in centred)
    return found, math.sqrt(rest / free / square)


def quantile(values, q):
    """The smallest value that at least the share q of all does not exceed."""
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def check_log(events):
    """The whole log of a job that has ended: numbered without holes, one end, repeated iterations with equal values."""
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1)), "the log has a hole or a duplicate"
    assert [e["type"] for e in events].count("end") == 1 and events[-1]["type"] == "end", f"the log has not one end: {events[-3:]}"
    values = {}
    for e in events:
        if e["type"] == "iter":
            assert values.setdefault((e["stage"], e["iter"]), e["data_error"]) == e["data_error"], e
    return events[-1]
