"""Wall-clock jumps of an hour, by libfaketime (test 27): no deadline fires, nothing stands still, everybody goes on.

Only the wall clock is faked; the broker's children see the same jumps."""

import collections
import os
import pathlib
import random
import time

import mixed_load
import scans
import xptychod

HOUR = 3600
LIMIT_S = 3000  # of everything that would be over if the hour counted


def library():
    """Path of libfaketime for programs with threads, or None."""
    found = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return str(found[0]) if found else None


class Clock:
    def __init__(self, folder):
        self.file = folder / "clock"
        self.set(0)

    def set(self, offset_s):
        beside = self.file.with_suffix(".new")
        beside.write_text(f"{offset_s:+d}\n")
        beside.rename(self.file)

    def environment(self):
        return {"LD_PRELOAD": library(), "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1",
                "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1"}


def run(folder, rounds, wait_s, seed=1, tell=None):
    """Returns the counts."""
    clock, watchdog, rng, counts = Clock(folder), mixed_load.Watchdog(folder), random.Random(seed), collections.Counter()
    large = scans.make(n=64, points=12, step=6, seed=2).write(folder / "large.h5")
    small = scans.make(n=16, points=4, step=3, seed=1).write(folder / "small.h5")
    daemon = xptychod.Daemon(folder / "daemon", "--max-queue-s", str(LIMIT_S), "--min-run-s", str(LIMIT_S), "--cpu-workers", "2")
    daemon.environment = {**clock.environment(), **watchdog.environment()}
    watchdog.start()
    try:
        daemon.start()
        xptychod.wait_until(lambda: len(daemon.pids_of("xptycho-worker")) == 2, "both workers run")
        workers = daemon.pids_of("xptycho-worker")
        api = daemon.unix

        def endless(**changes):
            return api.submit({"scan": {"path": large}, "recon": {"iterations": 100000}, "preview_every_s": 0.5, "checkpoint_every_s": 0.5,
                               **changes})["id"]

        # Two that run, with a deadline and as victims of the live one, which waits; as does one of the lowest class.
        running = [endless(deadline_s=LIMIT_S, **{"class": "batch"}) for _ in range(2)]
        for job in running:
            api.wait_for_iteration(job, 1)
        waiting = [endless(**{"class": "live"}), endless(**{"class": "scavenger"})]
        streams = [api.stream(job, deadline_s=10 * xptychod.DEADLINE_S + rounds * wait_s) for job in running]
        seen = {job: 0 for job in running}
        offset = 0
        for number in range(rounds):
            offset = {0: rng.choice((HOUR, -HOUR))}.get(offset, 0)
            clock.set(offset)
            counts["jumps"] += 1
            assert mixed_load.metrics(daemon)["xptycho_event_subscribers"] == 2, "a stream is gone"
            # Everything that goes by time goes on: iterations, pictures, checkpoints, each after the jump.
            for job, stream in zip(running, streams):
                known = max((event["seq"] for event in api.events(job, start=seen[job] + 1, follow=0)), default=seen[job])
                wanted = {"iter": 3, "preview": 1, "checkpoint": 1}
                for event in stream:
                    assert event["seq"] == seen[job] + 1 and event["type"] != "end", (event, seen[job])
                    seen[job] = event["seq"]
                    if event["seq"] > known:
                        wanted[event["type"]] = wanted.get(event["type"], 0) - 1
                    if all(left <= 0 for left in wanted.values()):
                        break
            end = time.monotonic() + wait_s
            while time.monotonic() < end:
                for job in running:
                    document = api.show(job)
                    assert (document["state"], document["attempts"]) == ("running", 0), document
                for job in waiting:
                    document = api.show(job)
                    assert document["state"] == "queued" and document["pending"]["reason"] != "starting", document
                counts["looks"] += 1
                time.sleep(0.2)
            assert daemon.pids_of("xptycho-worker") == workers, "a worker was replaced"
            # A job is taken, waits and is cancelled as at any other time.
            begin = time.monotonic()
            late = api.submit({"scan": {"path": small}, "recon": {"iterations": 2}})["id"]
            assert api.post(f"/v1/jobs/{late}/cancel").status == 202
            assert api.events(late)[-1]["state"] == "cancelled"
            counts["slowest answer, ms"] = max(counts["slowest answer, ms"], int(1000 * (time.monotonic() - begin)))
            if tell and number % 10 == 9:
                tell(f"{number + 1} jumps")
        jumped = daemon.log.read_text(errors="replace")
        assert jumped.count("the clock was set") == rounds, f"{rounds} jumps, noticed {jumped.count('the clock was set')}"
        for job in waiting:
            assert api.post(f"/v1/jobs/{job}/cancel").status == 202
        for job, stream in zip(running, streams):
            assert api.post(f"/v1/jobs/{job}/cancel").status == 202
            assert [event for event in stream][-1]["state"] == "cancelled"
            stream.connection.close()
        assert watchdog.silence() < mixed_load.WATCHDOG_S and watchdog.longest < mixed_load.WATCHDOG_S
        for word in ("is killed", "is replaced", "does not answer", "busy for"):
            assert word not in jumped, word
        daemon.stop()
        return counts
    except BaseException:
        print(daemon.log_tail())
        raise
    finally:
        daemon.clean_up()
        os.unlink(clock.file)
