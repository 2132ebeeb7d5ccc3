"""A part of load.py in its long form as a test of tests/soak."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import load  # noqa: E402
import soak  # noqa: E402


def run(number, part, told):
    """told: name in the last line -> the figure's name in the report."""
    def body(_):
        figures, failures, skipped = load.run([part], True)
        assert not skipped, f"'{part}' cannot be measured here"
        assert not failures, "; ".join(failures)
        return ", ".join(f"{name} {figures[what]:.4g}" for name, what in told.items())

    soak.main(number, body, soak.arguments(f"the part '{part}' of tests/load/run.sh"))
