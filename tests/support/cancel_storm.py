"""Cancels in every state of a job, at random moments and a hundred at once (test 11): one end, soon."""

import collections
import random
import threading
import time

import scans
import soak
import xptychod

CLIENTS = 100


def state_before_end(events):
    """Which state the job was in when it was cancelled."""
    return [e["state"] for e in events if e["type"] == "state"][-1]


class Storm:
    def __init__(self, daemon, folder, seed, large):
        """large: of the scan whose iterations take long, points along an axis."""
        self.daemon, self.api, self.random = daemon, daemon.unix, random.Random(seed)
        self.small = scans.make(n=16, points=4, step=3, seed=1).write(folder / "small.h5")
        self.scans = {"short iterations": scans.make(n=64, points=12, step=6, seed=2).write(folder / "short.h5"),
                      "long iterations": scans.make(n=128, points=large, step=8, seed=3).write(folder / "long.h5")}
        self.states, self.late, self.times = collections.Counter(), [], {name: [] for name in self.scans}

    def endless(self, path, query="", **changes):
        job = {"scan": {"path": path}, "recon": {"iterations": 100000}, **changes}
        answer = self.api.post("/v1/jobs" + query, job)
        assert answer.status == 201, answer
        return answer.json()["id"]

    def check(self, job):
        """The log of a cancelled job; its document says what the log says, and a further cancel changes nothing."""
        events = self.api.events(job)
        end, shown = soak.check_log(events), self.api.show(job)
        assert shown["state"] == end["state"] == "cancelled", (shown, end)
        assert self.api.post(f"/v1/jobs/{job}/cancel").status == 200 and self.api.show(job) == shown
        self.states[state_before_end(events)] += 1
        return events

    def cancel(self, job):
        answer = self.api.post(f"/v1/jobs/{job}/cancel")
        assert answer.status in (200, 202), answer
        return answer

    # ---- the states

    def waiting(self):
        """Held and queued, behind one that runs."""
        blocker = self.endless(self.scans["short iterations"])
        self.api.wait_for_iteration(blocker, 1)
        jobs = [self.endless(self.small) for _ in range(2)]
        assert self.api.post(f"/v1/jobs/{jobs[0]}/hold").status == 200
        for job in jobs:
            self.cancel(job)
            self.check(job)
        self.cancel(blocker)
        self.check(blocker)

    def at_random(self):
        """Shortly after the submission: while it is read, handed to the worker, begins."""
        job = self.endless(self.scans["long iterations"], self.random.choice(("", "?probe=async")))
        time.sleep(0.15 * self.random.random())
        self.cancel(job)
        self.check(job)

    def at_a_checkpoint(self):
        job = self.endless(self.scans["long iterations"], checkpoint_every_s=0)
        self.api.wait_for_event(job, lambda e: e["type"] == "checkpoint")
        time.sleep(0.1 * self.random.random())
        self.cancel(job)
        assert any(e["type"] == "checkpoint" for e in self.check(job))

    def twice_as_it_ends(self):
        """The last moment: the job has ended, or has it not."""
        job = self.api.submit({"scan": {"path": self.small}, "recon": {"iterations": 3}})["id"]
        time.sleep(0.05 * self.random.random())
        for _ in range(2):
            self.cancel(job)
        end, shown = soak.check_log(self.api.events(job)), self.api.show(job)
        assert shown["state"] == end["state"] and shown["state"] in ("cancelled", "succeeded"), shown

    # ---- a hundred at once, and how soon

    def together(self, name):
        """A hundred clients cancel one running job; seconds from the first request to the end that a stream tells."""
        job = self.endless(self.scans[name])
        gate, answers = threading.Barrier(CLIENTS + 1), []

        def one():
            api = self.daemon.api if threading.get_ident() % 2 else self.daemon.unix
            gate.wait()
            answers.append(api.post(f"/v1/jobs/{job}/cancel"))

        threads = [threading.Thread(target=one, daemon=True) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        self.measured(job, name, gate.wait)
        for thread in threads:
            thread.join(xptychod.DEADLINE_S)
        assert sorted({answer.status for answer in answers}) in ([202], [200, 202], [200]) and len(answers) == CLIENTS, answers
        self.check(job)

    def alone(self, name):
        job = self.endless(self.scans[name])
        self.measured(job, name, lambda: self.cancel(job))
        self.check(job)

    def measured(self, job, name, begin_cancel):
        """Waits for a few iterations, then for the end that follows begin_cancel, and for the worker to be idle."""
        with self.api.stream(job) as stream:
            seconds, some = [], self.random.randint(3, 5)
            for event in stream:
                if event["type"] == "iter":
                    seconds.append(event["seconds"])
                    if len(seconds) == some:
                        break
            time.sleep(self.random.random() * seconds[-1])
            begin = time.monotonic()
            begin_cancel()
            for event in stream:
                seconds += [event["seconds"]] if event["type"] == "iter" else []
        assert event["type"] == "end", event
        idle = lambda: self.api.get("/v1/queue").json()["running"] == []
        xptychod.wait_until(idle, "the worker is idle")
        took, bound = time.monotonic() - begin, 2 * max(seconds) + 1
        self.times[name].append((took, max(seconds)))
        if took > bound:
            self.late.append((name, took, bound))


def run(folder, rounds, seed=1, large=20, tell=None):
    """Returns the storm with its counts and times."""
    daemon = xptychod.Daemon(folder / "daemon")
    try:
        daemon.start()
        worker = daemon.pid_of("xptycho-worker")
        storm = Storm(daemon, folder, seed, large)
        for number in range(rounds):
            storm.waiting()
            storm.at_a_checkpoint()
            for name in storm.scans:
                storm.alone(name)
            storm.together(("short iterations", "long iterations")[number % 2])
            for _ in range(4):
                storm.at_random()
                storm.twice_as_it_ends()
            if tell and number % 10 == 9:
                tell(f"{number + 1} rounds, cancelled while {dict(storm.states)}")
        storm_of = set(storm.states)
        assert daemon.pid_of("xptycho-worker") == worker, "a cancel took the worker along"
        assert {"held", "queued", "running"} <= storm_of, storm_of
        daemon.stop()
        return storm
    except BaseException:
        print(daemon.log_tail())
        raise
    finally:
        daemon.clean_up()
