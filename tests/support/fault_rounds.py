"""What the long forms of the tests 2 to 5 and 8 to 10 share: the functions of their short forms, and folders for their rounds."""

import contextlib
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "integration"))

import faults  # noqa: E402
import scans  # noqa: E402


def needed():
    if faults.available():
        raise RuntimeError(faults.available())


def scan_files(folder):
    return (scans.make().write(folder / "scan.h5"), scans.make(n=64, points=12, step=6, seed=2).write(folder / "slow.h5"))


@contextlib.contextmanager
def daemon_of(made):
    """A daemon that is stopped at the end, whatever happened."""
    try:
        yield made
        if made.process and made.process.poll() is None:
            made.stop()
    except Exception:
        print(made.log_tail(40))
        raise
    finally:
        made.clean_up()


def bench_of(test, folder, options=()):
    """scripted(script, *options) as the fixture of test_isolation.py gives it; the daemons are stopped by done()."""
    made = []

    def make(script, *more):
        made.append(faults.ScriptedDaemon(folder / f"{test}{len(made)}", script, *options, *more))
        return made[-1].start()

    def done():
        for daemon in made:
            if daemon.process.poll() is None:
                daemon.stop()
            daemon.clean_up()
        made.clear()

    return make, done
