"""Test 22: scans that are being written (plain, SWMR, writer killed), that change while they are read, file systems that hang.

    tests/soak/run.sh 22 [ROUNDS]     default 10, a minute each

Passes when every job waits, is refused or fails as documented and the p99 of the API's answers stays under 0.2 s while
readers hang."""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import hostile_run  # noqa: E402
import live_files  # noqa: E402
import scans  # noqa: E402
import xptychod  # noqa: E402

ANSWER_S = 0.2


def p99(taken):
    return taken[len(taken) * 99 // 100]


def one_round(number, folder, daemon, slow, away, blocked):
    waits = [live_files.waits_for_a_writer(daemon.api, folder / f"{way}{number}.h5", way, 2 + number % 5 * 5)
             for way in ("plain", "swmr")]
    live_files.tells_a_writer_that_died(daemon.api, folder / f"dead{number}.h5")
    for way in ("replaced", "appended", "overwritten"):
        live_files.refuses_what_changes(slow, scans.make(), folder / f"{way}{number}.h5", way)
    taken = sorted(live_files.lives_with_a_file_system_that_hangs(away, blocked, 3))
    live_files.fails_a_job_whose_file_system_goes_away(away, blocked)
    print(f"round {number}: started {waits[0]:.1f} and {waits[1]:.1f} s after the file was closed; while readers hung "
          f"{len(taken)} answers, p99 {1000 * p99(taken):.1f} ms, longest {1000 * taken[-1]:.0f} ms", flush=True)
    return max(waits), taken


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        blocked, why = live_files.blocked_folder(folder / "away", scans.make().write(folder / "scan.h5"))
        assert blocked, why
        assert hostile_run.can_trace(folder), "processes cannot be traced here; strace and ptrace are needed"
        daemons = [xptychod.Daemon(folder / "live"),
                   xptychod.Daemon(folder / "slow", "--reader-program", live_files.slow_reader(folder, 1)),
                   xptychod.Daemon(folder / "hangs", "--reader-probe-s", "3", "--reader-read-s", "3")]
        try:
            for daemon in daemons:
                daemon.start()
            figures = [one_round(i, folder, *daemons, blocked) for i in range(rounds)]
            stopped = live_files.stops_while_a_file_system_hangs(daemons.pop(), blocked)
            for daemon in daemons:
                daemon.stop()
        finally:
            blocked.close()
            for daemon in daemons:
                daemon.clean_up()
    wait, taken = max(f[0] for f in figures), sorted(t for f in figures for t in f[1])
    assert p99(taken) < ANSWER_S, f"p99 of answers was {p99(taken):.3f} s while readers hung"
    print(f"soak 22: passed: {rounds} rounds; jobs began at most {wait:.1f} s after their file was closed (plain and SWMR); "
          f"{rounds} writers killed, {3 * rounds} scans changed while they were read, {5 * rounds} readers hung in the file system: "
          f"{len(taken)} answers meanwhile, p99 {1000 * p99(taken):.1f} ms; stopped in {stopped:.1f} s with a reader that could not be killed")


try:
    main()
except AssertionError as error:
    print(f"soak 22: FAILED: {error}")
    sys.exit(1)
