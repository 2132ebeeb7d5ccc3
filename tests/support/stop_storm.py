"""SIGTERM with four running jobs on four sets, fifty streams and ten submits in flight, and what the next start finds
(test 19)."""

import collections
import http.client
import random
import threading
import time

import kill_storm
import scans
import xptychod

STOP_S = 90  # TimeoutStopSec of the unit
RUNNING, STREAMS, SUBMITTERS = 4, 50, 10


class Round:
    """One stop: everybody is at it when it comes."""

    def __init__(self, daemon, scan, running):
        self.daemon, self.scan, self.running = daemon, scan, running
        self.acknowledged, self.strange, self.last = [], [], {}
        self.asked, self.refused, self.cut, self.following = 0, 0, 0, 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.submit, args=(number,), daemon=True) for number in range(SUBMITTERS)]
        self.threads += [threading.Thread(target=self.follow, args=(number,), daemon=True) for number in range(STREAMS)]

    def submit(self, number):
        """One after the other until the service is gone; half of them have the scan looked at before the answer."""
        body = {"scan": {"path": self.scan}, "recon": {"iterations": 1}}
        api, query = self.daemon.api if number % 2 else self.daemon.unix, "?probe=async" if number % 3 == 0 else ""
        while True:
            with self.lock:
                self.asked += 1
            try:
                answer = api.post("/v1/jobs" + query, body)
            except (ConnectionRefusedError, FileNotFoundError):
                return
            except (OSError, http.client.HTTPException):
                self.cut += 1  # not acknowledged, and not known to be refused either
                continue
            if answer.status == 201:
                self.acknowledged.append(answer.json()["id"])
            elif answer.status == 503 and answer.json()["type"].endswith(":draining"):
                self.refused += 1
            elif answer.status != 429:
                self.strange.append(answer)
                return
            time.sleep(0.05)

    def follow(self, number):
        """http.client raises where the last piece of a stream is missing."""
        job = self.running[number % RUNNING]
        accept = ("application/x-ndjson", "text/event-stream")[number % 2]
        try:
            with self.daemon.unix.stream(job, accept=accept) as stream:
                with self.lock:
                    self.following += 1
                for event in stream:
                    self.last[number] = event
        except Exception as error:  # whatever it is, the stream did not end as it should
            self.strange.append(f"stream {number}: {type(error).__name__}: {error}")

    def stop(self):
        """Seconds to the end."""
        for thread in self.threads:
            thread.start()
        xptychod.wait_until(lambda: self.strange or (len(self.last) == STREAMS and len(self.acknowledged) >= 2 * SUBMITTERS), "all are at it")
        assert self.strange == [], self.strange[0]
        begin = time.monotonic()
        self.daemon.process.terminate()
        status = self.daemon.process.wait(STOP_S)
        seconds = time.monotonic() - begin
        assert status == 0, f"the daemon ended with {status}"
        for thread in self.threads:
            thread.join(xptychod.DEADLINE_S)
            assert not thread.is_alive(), "a client hangs"
        assert self.strange == [], self.strange[0]
        for number, event in self.last.items():
            assert (event["type"], event.get("state"), event.get("reason")) == ("state", "queued", "shutdown"), (number, event)
        return seconds


def newest(events, kind):
    return max((e["iter"] for e in events if e["type"] == kind), default=0)


def run(folder, rounds, seed=1, tell=None):
    """Returns (counts, seconds of every stop)."""
    large = scans.make(n=64, points=12, step=6, seed=2).write(folder / "large.h5")
    small = scans.make(n=16, points=4, step=3, seed=1).write(folder / "small.h5")
    daemon = xptychod.Daemon(folder / "daemon", "--cpu-workers", str(RUNNING), "--queue-user-max", "100000")
    rng, counts, times = random.Random(seed), collections.Counter(), []
    try:
        daemon.start()
        running = [daemon.unix.submit({"scan": {"path": large}, "recon": {"iterations": 100000}, "class": "live",
                                       "checkpoint_every_s": every})["id"] for every in (0, 0.5, 2, 3600)]
        before = {}
        for number in range(rounds):
            for job in running:
                start = len(before.get(job, ())) + 1
                with daemon.unix.stream(job, start=start) as stream:
                    fresh = next(e["iter"] for e in stream if e["type"] == "iter")
                    until = fresh + rng.randint(1, 8)
                    next(e for e in stream if e["type"] == "iter" and e["iter"] >= until)
            one = Round(daemon, small, running)
            times.append(one.stop())
            xptychod.wait_until(lambda: not xptychod.processes_marked(daemon.mark), "no process is left", 10)
            daemon.start()
            known = {job["id"] for job in kill_storm.listed(daemon.unix)}
            assert set(one.acknowledged) <= known, "an acknowledged job is lost"
            for job in running:
                resumed = daemon.unix.wait_for_event(job, lambda e, seen=len(before.get(job, ())): e["seq"] > seen and e["type"] == "resumed")
                log = daemon.unix.events(job, follow=0)
                old = [e for e in log if e["seq"] < resumed["seq"]]
                assert old[:len(before.get(job, ()))] == before.get(job, []), "what was seen stays"
                assert resumed["from_iter"] >= max(1, newest(old, "checkpoint")), (resumed, newest(old, "checkpoint"))
                counts["iterations done again"] += max(0, newest(old, "iter") - resumed["from_iter"])
                assert not any(e["type"] == "warning" for e in log), [e for e in log if e["type"] == "warning"]
                before[job] = [e for e in log if e["seq"] <= resumed["seq"]]
            counts.update({"acknowledged": len(one.acknowledged), "refused": one.refused, "cut": one.cut})
            if tell:
                tell(f"stop {number + 1}: {times[-1]:.2f} s, {dict(counts)}")
        for job in running:
            assert daemon.unix.post(f"/v1/jobs/{job}/cancel").status == 202
        xptychod.wait_until(lambda: daemon.unix.get("/v1/jobs?state=queued&limit=1").json()["jobs"] == [], "all has run", 600)
        for job in kill_storm.listed(daemon.unix):
            xptychod.wait_until(lambda: daemon.unix.show(job["id"])["terminal"], "it ends")
            assert daemon.unix.show(job["id"])["state"] == ("cancelled" if job["id"] in running else "succeeded")
        daemon.stop()
        return counts, times
    except BaseException:
        print(daemon.log_tail())
        raise
    finally:
        daemon.clean_up()
