"""kill -9 of the broker at random moments, also while it starts, under a storm of submits, runs, cancels and streams
(test 1): whatever was acknowledged is there afterwards, once, and comes to its end."""

import collections
import http.client
import os
import random
import sqlite3
import threading
import time

import scans
import soak
import xptychod

SUBMITTERS = 5
GONE = (OSError, http.client.HTTPException)  # the broker is away: nothing was acknowledged


class Storm:
    def __init__(self, daemon, folder, seed):
        self.daemon, self.random = daemon, random.Random(seed)
        self.api = xptychod.Api("unix:" + str(daemon.runtime / "api.sock"), timeout=10)
        self.small = scans.make(n=16, points=4, step=3, seed=1).write(folder / "small.h5")
        self.lock, self.stop, self.wrong = threading.Lock(), threading.Event(), []
        self.submitted = threading.Event()  # no endless job comes any more
        self.jobs, self.ended = {}, {}  # key: id of its 201; id: document when its end was told
        self.to_cancel, self.cancels = set(), set()  # endless jobs; those whose cancel was acknowledged
        self.counts = collections.Counter()
        self.threads = [threading.Thread(target=self.guarded, args=(work, self.random.random()), daemon=True)
                        for work in [self.submitter] * SUBMITTERS + [self.canceller] * 2 + [self.follower] * 3 + [self.reader]]

    def guarded(self, work, seed):
        try:
            work(random.Random(seed))
        except Exception as error:
            self.wrong.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def persist(self, ask, deadline_s=4 * xptychod.DEADLINE_S):
        """The answer, asked again as often as the broker dies over it or has no room."""
        end = time.monotonic() + deadline_s
        while True:
            try:
                answer = ask()
                if answer.status not in (409, 429, 503):
                    return answer
            except GONE:
                self.counts["requests without an answer"] += 1
            assert time.monotonic() < end, "the broker does not come back"
            time.sleep(0.02)

    def submitter(self, rng):
        while not self.stop.wait(0.1 * rng.random()):
            key, kind = f"{rng.getrandbits(80):x}", rng.choices(("short", "medium", "endless"), (88, 8, 4))[0]
            with self.lock:
                if len(self.to_cancel) > 3:
                    kind = "short"
            recon = {"iterations": {"short": rng.randint(1, 4), "medium": 150, "endless": 100000}[kind]}
            body = {"scan": {"path": self.small}, "recon": recon, "labels": {"key": key}, "checkpoint_every_s": 0.3}
            answer = self.persist(lambda: self.api.post("/v1/jobs" + rng.choice(("", "?probe=async")), body, Idempotency_Key=key))
            assert answer.status == 201, answer
            job = answer.json()["id"]
            with self.lock:
                self.jobs[key] = job
                self.counts[kind] += 1
                if kind == "endless":
                    self.to_cancel.add(job)

    def canceller(self, rng):
        while not (self.submitted.is_set() and not self.to_cancel):
            with self.lock:
                job = rng.choice(sorted(self.to_cancel)) if self.to_cancel else None
                self.to_cancel.discard(job)
            if job is None or (not self.stop.is_set() and self.stop.wait(rng.random())):
                time.sleep(0.02)
            if job is not None:
                answer = self.persist(lambda: self.api.post(f"/v1/jobs/{job}/cancel"))
                assert answer.status in (200, 202), answer
                self.cancels.add(job)

    def pick(self, rng):
        with self.lock:
            return rng.choice(list(self.jobs.values())[-30:]) if self.jobs else None

    def follower(self, rng):
        """A stream that resumes over the deaths of the broker has every event once."""
        while not self.stop.wait(0.05):
            job, seen = self.pick(rng), []
            while job and not self.stop.is_set() and not (seen and seen[-1]["type"] == "end"):
                try:
                    with self.api.stream(job, accept="text/event-stream", last=len(seen)) as stream:
                        for event in stream:
                            assert event["seq"] == len(seen) + 1, (event, len(seen))
                            seen.append(event)
                            if self.stop.is_set():
                                break
                except GONE:
                    time.sleep(0.05)
                except AssertionError as error:
                    if "503" not in str(error):
                        raise
            self.counts["logs followed"] += bool(seen)

    def reader(self, rng):
        """Who was told that a job has ended is never told anything else."""
        while not self.stop.wait(0.02):
            job = self.pick(rng)
            if not job:
                continue
            try:
                document = self.api.show(job)
            except GONE:
                continue
            if job in self.ended:
                assert document == self.ended[job], (document, self.ended[job])
            elif document["terminal"]:
                self.ended[job] = document


def run(folder, kills, seed=1, tell=None):
    """Returns the counts after all has been checked."""
    daemon = xptychod.Daemon(folder / "daemon", "--cpu-workers", "2")
    rng, moments = random.Random(seed), collections.Counter()
    try:
        daemon.start()
        storm = Storm(daemon, folder, seed)
        for thread in storm.threads:
            thread.start()
        for number in range(kills):
            if rng.random() < 0.15:  # in the middle of a start, recovery included
                time.sleep(0.15 * rng.random())
                moments["while it started"] += 1
            else:
                xptychod.wait_until(daemon._read_ready, "the daemon is ready")
                time.sleep(rng.expovariate(1.2))
            daemon.kill()
            daemon.process = daemon.spawn()
            if storm.wrong:
                raise AssertionError(storm.wrong[0])
            if tell and number % 20 == 19:
                tell(f"{number + 1} kills, {dict(storm.counts)}")
        daemon.ready = xptychod.wait_until(daemon._read_ready, "the daemon is ready")
        storm.stop.set()
        for number, thread in enumerate(storm.threads):
            if number == SUBMITTERS:
                storm.submitted.set()
            thread.join(6 * xptychod.DEADLINE_S)
            assert not thread.is_alive(), f"a client hangs; {storm.wrong}"
        if storm.wrong:
            raise AssertionError(storm.wrong[0])
        check(daemon, storm)
        daemon.stop()
        connection = sqlite3.connect(daemon.state / "queue.db")
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        connection.close()
        left = [name for name in os.listdir(daemon.state / "results") if not name.endswith(".h5")]
        assert left == [], left
        return storm.counts + moments
    except BaseException:
        print(daemon.log_tail())
        raise
    finally:
        daemon.clean_up()


def listed(api):
    """Every job of the service."""
    jobs, cursor = [], ""
    while cursor is not None:
        page = api.get(f"/v1/jobs?limit=200{cursor}").json()
        jobs += page["jobs"]
        cursor = f"&cursor={page['next']}" if page["next"] else None
    return jobs


def check(daemon, storm):
    for job in storm.jobs.values():
        last = soak.check_log(daemon.unix.events(job))
        storm.counts[last["state"]] += 1
    jobs = listed(daemon.unix)
    keys = collections.Counter(job["labels"]["key"] for job in jobs)
    assert set(keys) == set(storm.jobs), "a submission is lost, or one was made that nobody has an answer for"
    assert max(keys.values()) == 1, "a submission was taken twice"
    assert {job["id"] for job in jobs} == set(storm.jobs.values())
    for job in jobs:
        wanted = "cancelled" if job["id"] in storm.cancels else "succeeded"
        assert job["state"] == wanted and job["attempts"] == 0, job
    for job, told in storm.ended.items():
        assert daemon.unix.show(job) == told
    storm.counts["jobs"] = len(jobs)
    storm.counts["ends told before a kill or after"] = len(storm.ended)
