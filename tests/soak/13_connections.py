#!/usr/bin/python3
"""Test 13: streams take every connection.

Passes when health and metrics answer within 50 ms at the 99th percentile and the API answers every request with 503 and
Retry-After, none with silence."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "load"))

import soak_part  # noqa: E402

soak_part.run(13, "full", {
    "/livez p99 ms": "1256 streams are all connections: /livez p99", "/readyz p99 ms": "1256 streams are all connections: /readyz p99",
    "/metrics p99 ms": "1256 streams are all connections: /metrics p99", "answers 503": "api: answers 503 with Retry-After",
    "api p99 ms": "api: p99 of the 503"})
