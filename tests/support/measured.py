"""Measured scans, which are not in the tree: where they are, and what to skip with where they are not."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find(name):
    """Path of a file of the measured data; skips the test with the reason where it is not there."""
    stated = os.environ.get("XPTYCHOD_DATA")
    folder = pathlib.Path(stated) if stated else ROOT.parent / "shared" / "data"
    path = folder / name
    if not path.exists():
        pytest.skip(f"measured data '{path}' is not here; set XPTYCHOD_DATA to the folder that holds '{path.parent.name}'")
    return path
