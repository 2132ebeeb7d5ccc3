"""Runs a program of the backend suite that has a deliberate fault in it; succeeds when the suite notices.

    caught.py PROGRAM

Orders of work are drawn at random, so a fault of order may stay hidden under one seed: up to SEEDS fixed seeds are tried.
"""

import os
import subprocess
import sys
import threading

SEEDS = 8
SECONDS = 240
SKIPPED = 77


def attempt(program, seed):
    """How the run was caught, or None.  The first test that fails is enough."""
    environment = dict(os.environ, XPE_EMU_SEED=str(seed))
    output, failed = [], False
    with subprocess.Popen([program, "cuda"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as run:
        late = threading.Event()
        timer = threading.Timer(SECONDS, lambda: (late.set(), run.kill()))
        timer.start()
        for line in run.stdout:
            output.append(line.rstrip("\n"))
            if line.startswith("[  FAILED  ]"):
                failed = True
                run.kill()
                break
        run.wait()
        timer.cancel()
    text = "\n".join(output)
    if late.is_set() and not failed:
        sys.exit(f"the suite did not end within {SECONDS} s, which shows nothing")
    if run.returncode == SKIPPED or "repeats this order" not in text:
        sys.exit(f"the suite did not run: {text}")
    if run.returncode == 0:
        return None
    lines = [line for line in output
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
