"""Runs a program of the backend suite that has a deliberate fault in it; succeeds when the suite notices.

    caught.py PROGRAM

Orders of work are drawn at random, so a fault of order may stay hidden under one seed: up to SEEDS fixed seeds are tried.
"""

import os
import subprocess
import sys

SEEDS = 8
SECONDS = 120
SKIPPED = 77


def attempt(program, seed):
    """How the run was caught, or None."""
    environment = dict(os.environ, XPE_EMU_SEED=str(seed))
    try:
        done = subprocess.run([program, "cuda"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f"the suite did not end within {SECONDS} s, which shows nothing")
    if done.returncode == SKIPPED or "repeats this order" not in done.stdout:
        sys.exit(f"the suite did not run: {done.stdout}")
    if done.returncode == 0:
        return None
    lines = [line for line in done.stdout.splitlines()
             if line.startswith(("cuda (emulated): ", "ERROR", "[  ERROR", "[  FAILED")) or "ERROR: Addr" in line]
    return "\n".join(lines[1:6])


def main(program):
    for seed in range(1, SEEDS + 1):
        how = attempt(program, seed)
        if how is not None:
            print(f"noticed with seed {seed}:\n{how}")
            return
    sys.exit(f"not noticed with any of {SEEDS} seeds")


if __name__ == "__main__":
    main(*sys.argv[1:])
