#!/usr/bin/python3
"""Test 12: 1,000 event streams at 20 events a second for 10 minutes; 100 never read, 100 come back each second.

Passes without a hole or a repetition for a reader, with less than 5 MB more memory after warming up, a lag of the loop
below 50 ms at the 99th percentile, and every stalled stream closed for its time-out."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "load"))

import soak_part  # noqa: E402

soak_part.run(12, "streams", {
    "events": "events delivered", "holes": "holes", "repetitions": "repetitions", "came back": "times that a client came back",
    "lag p99 ms": "p99 of the loop's lag", "KiB a stream": "memory a stream", "MB grown": "growth of memory after warming up",
    "stalled closed": "stalled clients closed, reason timeout", "% of a core": "processor of the broker"})
