#!/usr/bin/python3
"""Test 14: 2,000 connections of slowhttptest that send a head, a body, or read an answer slowly.

Passes when others have their answers within 200 ms at the 99th percentile meanwhile, all of them good ones, and those
that stay beyond their deadline are closed."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "load"))

import soak_part  # noqa: E402

soak_part.run(14, "slow", {
    "head p99 ms": "2,000 that send a head slowly: p99 of others", "body p99 ms": "2,000 that send a body slowly, with a token: p99 of others",
    "read p99 ms": "2,000 that read an answer slowly: p99 of others"})
