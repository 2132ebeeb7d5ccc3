"""Mixed load for a private daemon, and what its processes, descriptors and files do under it (test 25).

Users (threads) go through scenarios that check themselves: short and longer jobs followed to the end over HTTP and
ZeroMQ, cut streams that resume, cancels, bad input, repeated keys, reruns, deletes.  Beside them somebody kills one of
the workers, rotates the log, reloads, and follows the feeds.  The other worker and the bridge live all the time, so
that what they gain can be seen.
"""

import csv
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import threading
import time
import traceback

import zmq

import scans
import soak
import xptychod
import zmq_client

MIB = 1 << 20
WATCHDOG_S = 30
KEEP_JOBS = 300
FDS_MARGIN = 8  # connections that the bridge keeps open for the next request


class Watchdog(threading.Thread):
    """Plays the service manager: hears the pings of the watchdog and keeps the longest silence between two."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.pings, self.longest, self.last = 0, 0.0, None

    def environment(self):
        return {"NOTIFY_SOCKET": self.path, "WATCHDOG_USEC": str(WATCHDOG_S * 1000000)}

    def run(self):
        while True:
            lines = self.socket.recv(4096).decode().splitlines()
            now = time.monotonic()
            if "READY=1" in lines and self.last is None:
                self.last = now
            if "WATCHDOG=1" in lines:
                self.longest = max(self.longest, now - self.last)
                self.last, self.pings = now, self.pings + 1

    def silence(self):
        return max(self.longest, time.monotonic() - self.last)


class Load:
    def __init__(self, daemon, folder, seed, jobs_a_second, users):
        self.daemon, self.folder, self.users = daemon, folder, users
        self.pause, self.next = users and 1 / jobs_a_second, time.monotonic()
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.counts, self.wrong = {}, []
        self.random = random.Random(seed)
        self.small = scans.make(n=16, points=4, step=3, seed=1).write(folder / "small.h5")
        self.large = scans.make(n=64, points=12, step=6, seed=2).write(folder / "large.h5")
        whole = pathlib.Path(self.small).read_bytes()
        (folder / "cut.h5").write_bytes(whole[:len(whole) // 2])
        os.utime(folder / "cut.h5", (0, 0))   # nobody is still writing it
        (folder / "noise.h5").write_bytes(self.random.randbytes(20000))
        os.mkfifo(folder / "fifo.h5")
        self.context = zmq.Context()
        self.working, self.watching = [], []

    # ---- life

    def start(self):
        def threads(work):
            return [threading.Thread(target=self.guarded, args=(one, self.random.random()), daemon=True) for one in work]

        self.working, self.watching = threads([self.user] * self.users), threads([self.feed, self.feed, self.states, self.scrape])
        for thread in self.working + self.watching:
            thread.start()

    def guarded(self, work, seed):
        """A thread ends with the first thing that is not as it must be."""
        try:
            work(random.Random(seed))
        except Exception as error:  # told by the main thread
            self.wrong.append(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")

    def end(self):
        self.stop.set()
        for thread in self.working:
            thread.join(3 * xptychod.DEADLINE_S)
        end = time.monotonic() + xptychod.DEADLINE_S
        while any(thread.is_alive() for thread in self.watching) and time.monotonic() < end and not self.wrong:
            last = self.daemon.unix.submit(self.job(self.small, 1))["id"]  # something to hear of
            self.daemon.unix.events(last)
            self.count("jobs")
            self.over(self.daemon.unix, last, "succeeded")
        if not any(thread.is_alive() for thread in self.working + self.watching):
            self.context.destroy(linger=0)
        elif not self.wrong:
            self.wrong.append("a client hangs")

    def count(self, what, more=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + more

    def pace(self):
        """Waits for this user's turn; false when the load is over."""
        with self.lock:
            now = time.monotonic()
            turn = self.next = max(self.next + self.pause, now - 1)
        return not self.stop.wait(max(0.0, turn - now))

    # ---- what one does

    def user(self, rng):
        scenarios = {self.short: 55, self.polled: 12, self.cut: 8, self.long: 1, self.cancelled: 7, self.bad: 6,
                     self.repeated: 3, self.over_zmq: 3, self.again: 3, self.many: 0.5, self.bad_later: 1.5}
        api = self.daemon.api
        while self.pace():
            scenario, = rng.choices(list(scenarios), scenarios.values())
            scenario(rng, api if rng.random() < 0.7 else self.daemon.unix)
            self.count(scenario.__name__)

    def job(self, path, iterations, **changes):
        return {"scan": {"path": str(path)}, "recon": {"iterations": iterations}, "preview_every_s": 1, **changes}

    def submit(self, api, rng, path, iterations, **changes):
        job = api.submit(self.job(path, iterations, **changes), **{"Idempotency-Key": f"soak-{rng.getrandbits(80):x}"})
        self.count("jobs")
        return job["id"]

    def over(self, api, job, *states):
        """The document of a job that has ended as it should; a worker that was killed with it may be why it did not."""
        done = api.show(job)
        excused = done["reason"] == "poison" and done["attempts"] >= 2
        assert done["terminal"] and (done["state"] in states or excused), done
        self.count("jobs ended")
        return done

    def short(self, rng, api):
        accept = rng.choice(("application/x-ndjson", "text/event-stream"))
        job = self.submit(api, rng, self.small, rng.randint(1, 8))
        soak.check_log(api.events(job, accept=accept))
        self.over(api, job, "succeeded")
        if rng.random() < 0.2:
            assert api.delete(f"/v1/jobs/{job}").status == 204

    def polled(self, rng, api):
        job = self.submit(api, rng, self.small, rng.randint(1, 8), **{"class": rng.choice(("normal", "batch"))})
        answer, end = api.get(f"/v1/jobs/{job}"), time.monotonic() + xptychod.DEADLINE_S
        while not answer.json()["terminal"]:
            assert time.monotonic() < end, answer
            later = api.get(f"/v1/jobs/{job}", If_None_Match=answer.headers["ETag"], Prefer="wait=5")
            assert later.status in (200, 304), later
            answer = later if later.status == 200 else answer
        self.over(api, job, "succeeded")
        soak.check_log(api.events(job, follow=0))
        result = api.get(f"/v1/jobs/{job}/result").json()
        assert len(api.get(f"/v1/jobs/{job}/result/data").body) == result["bytes"]
        assert api.get(f"/v1/jobs/{job}/log").status == 200

    def cut(self, rng, api):
        """Streams are cut again and again; together they are the whole log."""
        job, seen = self.submit(api, rng, self.small, rng.randint(60, 150)), []
        while not seen or seen[-1]["type"] != "end":
            left = rng.randint(1, 60)
            with api.stream(job, accept="text/event-stream", last=len(seen)) as stream:
                for event in stream:
                    seen.append(event)
                    left -= 1
                    if left == 0:
                        break
            self.count("reconnects")
        soak.check_log(seen)
        self.over(api, job, "succeeded")

    def long(self, rng, api):
        """With checkpoints, pictures, and the file replaced by the next one."""
        output = {"path": str(self.folder / f"out-{rng.randrange(4)}-{threading.get_ident()}.h5"), "overwrite": True}
        job = self.submit(api, rng, self.large, rng.randint(20, 60), checkpoint_every_s=0.5, output=output)
        api.wait_for_iteration(job, 5)
        xptychod.wait_until(lambda: api.get(f"/v1/jobs/{job}/preview.png").status == 200, "a picture")
        soak.check_log(api.events(job))
        self.over(api, job, "succeeded")

    def cancelled(self, rng, api):
        job = self.submit(api, rng, self.large, 100000)
        self.stop.wait(rng.choice((0, 0.05, 0.5, 2)) * rng.random())
        assert api.post(f"/v1/jobs/{job}/cancel").status in (200, 202)
        soak.check_log(api.events(job))
        self.over(api, job, "cancelled")

    def bad(self, rng, api):
        good = self.job(self.small, 3)
        body, status = rng.choice((
            ("{", 400), (b"\xff\xfe", 400), ("[" * 100, 400), ({**good, "interations": 3}, 422),
            (self.job(self.small, -1), 422), (self.job(self.folder / "none.h5", 3), 422), (self.job(self.folder / "cut.h5", 3), 422),
            (self.job(self.folder / "noise.h5", 3), 422), (self.job(self.folder / "fifo.h5", 3), 422), (self.job("/dev/zero", 3), 422),
            (self.job(self.folder, 3), 422), ({**good, "metadata": "x" * 2 * MIB}, 413), ({**good, "model": {"probe_modes": 65}}, 422)))
        answer = api.post("/v1/jobs", body)
        assert answer.status == status and answer.json()["detail"], (str(body)[:200], answer)

    def bad_later(self, rng, api):
        """What is not looked at before it is accepted fails with its reason."""
        job = self.submit_async(api, self.folder / rng.choice(("none.h5", "cut.h5", "noise.h5", "fifo.h5")))
        end = soak.check_log(api.events(job))
        assert (end["state"], end["reason"]) == ("failed", "dataset"), end
        self.over(api, job, "failed")

    def submit_async(self, api, path):
        answer = api.post("/v1/jobs?probe=async", self.job(path, 3))
        assert answer.status == 201, answer
        self.count("jobs")
        return answer.json()["id"]

    def repeated(self, rng, api):
        key, body, ids = f"twice-{rng.getrandbits(80):x}", self.job(self.small, 2), set()

        def once():
            answer = xptychod.wait_until(lambda: (lambda a: a.status != 409 and a)(api.post("/v1/jobs", body, Idempotency_Key=key)), "201")
            ids.add(answer.json()["id"] if answer.status == 201 else answer.text)

        threads = [threading.Thread(target=once) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ids) == 1, ids
        self.count("jobs")
        job = ids.pop()
        soak.check_log(api.events(job))
        self.over(api, job, "succeeded")
        assert api.post("/v1/jobs", self.job(self.small, 3), Idempotency_Key=key).status == 422

    def over_zmq(self, rng, api):
        del api
        dealer = zmq_client.Dealer(self.context, self.daemon)
        status, job = dealer.ask("submit", body=self.job(self.small, rng.randint(2, 8)), idempotency_key=f"zmq-{rng.getrandbits(80):x}")
        assert status == 201, job
        self.count("jobs")
        progress = zmq_client.subscribed(self.context, self.daemon, job["id"])
        kind = b""
        while kind != b"end":
            _, _, kind, text = progress.recv_multipart()
            if kind == b"beat" and json.loads(text)["state"] in ("succeeded", "failed", "cancelled"):
                break  # it had ended before
        events = dealer.ask("events", id=job["id"])[1]["events"]
        soak.check_log(events)
        progress.close()
        dealer.socket.close()
        self.over(self.daemon.api, job["id"], "succeeded")

    def again(self, rng, api):
        first = self.submit(api, rng, self.small, 2, labels={"soak": "yes"})
        api.finish(first)
        answer = api.post(f"/v1/jobs/{first}/rerun", {"recon": {"iterations": 3}})
        assert answer.status == 201, answer
        self.count("jobs")
        soak.check_log(api.events(answer.json()["id"]))
        for job in (first, answer.json()["id"]):
            self.over(api, job, "succeeded")
            assert api.delete(f"/v1/jobs/{job}").status == 204

    def many(self, rng, api):
        """Twenty at once; half of them are held, changed and cancelled while they wait."""
        jobs = [self.submit(api, rng, self.small, 2) for _ in range(20)]
        for job in jobs[::2]:
            api.post(f"/v1/jobs/{job}/hold")
            tag = api.get(f"/v1/jobs/{job}").headers["ETag"]
            api.call("PATCH", f"/v1/jobs/{job}", {"priority": rng.randint(-100, 100)},
                     {"If-Match": tag, "Content-Type": "application/merge-patch+json"})
            api.post(f"/v1/jobs/{job}/cancel")
        for job in jobs:
            soak.check_log(api.events(job))
            self.over(api, job, "succeeded", "cancelled")

    # ---- what goes on beside

    def feed(self, rng):
        """Follows the changes of all jobs and connects anew now and then."""
        while not self.stop.is_set():
            end = time.monotonic() + 20 * rng.random()
            with xptychod.EventStream(self.daemon.unix, "/v1/events", accept="application/x-ndjson") as stream:
                for event in stream:
                    assert event["type"] in ("state", "end") and event["job"], event
                    self.count("feed events")
                    if time.monotonic() > end or self.stop.is_set():
                        break
            self.count("reconnects")

    def states(self, rng):
        """A subscriber of all changes over ZeroMQ."""
        del rng
        socket = zmq_client.subscribed(self.context, self.daemon, state=True, RCVTIMEO=500)
        while not self.stop.is_set():
            try:
                socket.recv_multipart()
                self.count("zmq messages")
            except zmq.Again:
                pass
        socket.close()

    def scrape(self, rng):
        del rng
        while not self.stop.wait(5):
            assert self.daemon.admin.get("/metrics").status == 200
            assert self.daemon.unix.get("/v1/queue").status == 200
            page = self.daemon.unix.get("/v1/jobs?limit=200").json()
            assert len({job["id"] for job in page["jobs"]}) == len(page["jobs"])


# ------------------------------------------------------------------------------------ what is measured


def status_of(pid):
    """(anonymous memory, descriptors, threads) of a process; None when it is gone."""
    try:
        fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        return int(fields["RssAnon"].split()[0]) * 1024, len(os.listdir(f"/proc/{pid}/fd")), int(fields["Threads"])
    except (OSError, KeyError, ValueError):
        return None


def descriptors(daemon):
    """Of the broker, of all workers together, of the bridge."""
    count = lambda pids: sum(status_of(pid)[1] for pid in pids)
    return count([daemon.process.pid]), count(daemon.pids_of("xptycho-worker")), count(daemon.pids_of("xptycho-zmq"))


def zombies_of(pid):
    found = set()
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            if pathlib.Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                found.add(child)
        except OSError:
            pass
    return found


def size_of(path):
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Sampler:
    """Rows of figures, written to a CSV file as they come."""

    NAMES = ("broker_rss", "worker_rss", "other_worker_rss", "bridge_rss", "broker_fds", "worker_fds", "bridge_fds",
             "broker_threads", "zombies", "wal_bytes", "db_bytes", "log_bytes", "jobs_kept", "job_folders", "watchdog_silence_s",
             "jobs", "reconnects", "worker_life")

    def __init__(self, daemon, load, watchdog, path):
        self.daemon, self.load, self.watchdog = daemon, load, watchdog
        self.rows, self.begin, self.lives, self.suspects = [], time.monotonic(), 0, set()
        self.kept = sorted(daemon.pids_of("xptycho-worker"))[0]  # never killed
        self.other, self.bridge = None, daemon.pid_of("xptycho-zmq")
        self.file = open(path, "w", newline="", encoding="ascii")
        self.csv = csv.writer(self.file)
        self.csv.writerow(("seconds", *self.NAMES))

    def others(self):
        return [pid for pid in self.daemon.pids_of("xptycho-worker") if pid != self.kept]

    def take(self):
        broker = self.daemon.process.pid
        state, other = self.daemon.state, next(iter(self.others()), None)
        if other != self.other:
            self.other, self.lives = other, self.lives + 1
        now = zombies_of(broker)
        stuck, self.suspects = now & self.suspects, now
        measured = {name: status_of(pid) if pid else None for name, pid in
                    (("broker", broker), ("worker", self.kept), ("other", other), ("bridge", self.bridge))}
        assert measured["worker"], "the worker that nobody kills has died"
        assert measured["bridge"], "the bridge that nobody kills has died"
        row = (measured["broker"][0], measured["worker"][0], (measured["other"] or (0,))[0], measured["bridge"][0],
               measured["broker"][1], measured["worker"][1], measured["bridge"][1], measured["broker"][2], len(stuck),
               size_of(state / "queue.db-wal"), size_of(state / "queue.db"), size_of(self.daemon.log),
               int(sum(value for name, value in metrics(self.daemon).items() if name.startswith("xptycho_jobs{"))),
               len(os.listdir(state / "jobs")), round(self.watchdog.silence(), 1),
               self.load.counts.get("jobs", 0), self.load.counts.get("reconnects", 0), self.lives)
        seconds = time.monotonic() - self.begin
        self.rows.append((seconds, dict(zip(self.NAMES, row))))
        self.csv.writerow((round(seconds, 1), *row))
        self.file.flush()

    def column(self, name, after):
        return [row[name] for seconds, row in self.rows if seconds >= after]

    def drift(self, name, after):
        """Slope an hour and its standard error."""
        slope, error = soak.slope([(seconds, row[name], 0) for seconds, row in self.rows if seconds >= after])
        return slope * 3600, error * 3600


def metrics(daemon):
    """{series: value}"""
    lines = daemon.admin.get("/metrics").text.splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def rotate(log):
    """As logrotate's copytruncate."""
    shutil.copyfile(log, log.with_suffix(".log.1"))
    os.truncate(log, 0)


def run(folder, duration_s, seed=1, jobs_a_second=3.0, users=8, sample_s=10.0, kill_s=180.0, rotate_s=120.0, reload_s=60.0, tell=None):
    """The load for so long; returns the sampler after everything that must hold at any length has been checked."""
    watchdog = Watchdog(folder)
    daemon = xptychod.Daemon(folder / "daemon", "--cpu-workers", "2", "--keep-jobs", str(KEEP_JOBS), "--zmq-router", "tcp://127.0.0.1:*",
                             "--zmq-pub", "tcp://127.0.0.1:*")
    daemon.environment = watchdog.environment()
    watchdog.start()
    load = None
    try:
        daemon.start()
        zmq_client.wait_for_bridge(daemon)
        xptychod.wait_until(lambda: len(daemon.pids_of("xptycho-worker")) == 2, "both workers run")
        before = descriptors(daemon)
        load = Load(daemon, folder, seed, jobs_a_second, users)
        sampler = Sampler(daemon, load, watchdog, folder / "samples.csv")
        due = {what: time.monotonic() + after for what, after in
               (("sample", 0), ("kill", kill_s), ("rotate", rotate_s), ("reload", reload_s), ("tell", 60))}
        end = time.monotonic() + duration_s

        def now(what, every):
            if time.monotonic() < due[what]:
                return False
            due[what] += every
            return True

        load.start()
        while time.monotonic() < end and not load.wrong:
            if now("sample", sample_s):
                sampler.take()
            if now("kill", kill_s):
                for pid in sampler.others():
                    os.kill(pid, signal.SIGKILL)
                    load.count("workers killed")
            if now("rotate", rotate_s):
                rotate(daemon.log)
                load.count("rotations")
            if now("reload", reload_s):
                daemon.process.send_signal(signal.SIGHUP)
            if tell and now("tell", 60):
                tell(sampler)
            time.sleep(0.1)
        load.end()
        if load.wrong:
            raise AssertionError(f"{load.wrong[0]}{daemon.log_tail()}")
        sampler.take()
        check(sampler)
        # Under load they follow the clients; when those are gone, a leak is what is left.
        xptychod.wait_until(lambda: all(now <= was + FDS_MARGIN for now, was in zip(descriptors(daemon), before)),
                            f"{before} descriptors again, now {descriptors(daemon)}")
        sampler.descriptors = before, descriptors(daemon)
        daemon.stop()
        return sampler
    except BaseException:
        if load:
            load.stop.set()
        raise
    finally:
        daemon.clean_up()


def check(sampler):
    """What must hold however long it ran."""
    daemon, counts = sampler.daemon, sampler.load.counts
    assert xptychod.alive(daemon.process.pid)
    assert max(sampler.column("zombies", 0)) == 0, "a child that ended was not collected"
    assert max(sampler.column("wal_bytes", 0)) < 16 * MIB, "the write-ahead log grows"
    assert sampler.watchdog.silence() < WATCHDOG_S, "the service manager would have killed the broker"
    assert "reload refused" not in daemon.log.read_text(errors="replace")
    left = [job for state in ("queued", "running", "starting", "held") for job in daemon.unix.get(f"/v1/jobs?state={state}").json()["jobs"]]
    assert left == [], left
    assert counts["jobs ended"] == counts["jobs"], counts
