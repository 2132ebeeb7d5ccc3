"""Runs one file of Python tests for ctest.

Exit 77 (skipped, for ctest) with the reason when a module that every test needs is missing, or when
every test of the file was skipped; otherwise pytest's own verdict.
"""

import sys

SKIPPED = 77


def main():
    missing = []
    for module in ("pytest", "numpy", "h5py", "zmq"):
        try:
            __import__(module)
        except ImportError as error:
            missing.append(f"{module} ({error})")
    if missing:
        print(f"skipped: {sys.executable} cannot import {', '.join(missing)}; "
              "on Debian: apt-get install python3-pytest python3-numpy python3-h5py python3-zmq")
        return SKIPPED

    import pytest

    class Outcomes:
        passed = skipped = 0

        def pytest_runtest_logreport(self, report):
            if report.skipped:
                self.skipped += 1
            elif report.when == "call" and report.passed:
                self.passed += 1

        def pytest_collectreport(self, report):
            if report.skipped:
                self.skipped += 1

    outcomes = Outcomes()
    status = pytest.main(["-q", "-rs", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[outcomes])
    nothing_ran = status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if nothing_ran and outcomes.passed == 0 and outcomes.skipped > 0:
        return SKIPPED
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
