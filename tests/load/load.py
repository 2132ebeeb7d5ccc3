"""The service under load: each part starts a daemon of its own, measures, prints a line a figure, and judges.

Started by run.sh; tests/soak/12, 13 and 14 import it.  A line is ready for docs/performance.md:

    | part | what | figure | bound | ok |

The short sizes are for ctest: they check everything that is counted, and times with room for a slow machine.
Standard library only, and little of it while something is measured: the load comes from load_streams and load_requests.
"""

import calendar
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

import scans  # noqa: E402
import xptychod  # noqa: E402

SKIPPED = 77
ENDLESS = {"iterations": 100000}


class Skip(Exception):
    pass


class Report:
    """The lines of one part."""

    def __init__(self, part):
        self.part, self.failures, self.figures = part, [], {}

    def tell(self, what, value, unit="", most=None, least=None):
        """most and least are the bounds of passing; without them the line is a figure alone."""
        good = (most is None or value <= most) and (least is None or value >= least)
        bound = f"<= {most:g}" if most is not None else f">= {least:g}" if least is not None else ""
        verdict = "" if most is None and least is None else "yes" if good else "NO"
        shown = f"{value:.4g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:.0f}"
        print(f"| {self.part} | {what} | {shown} {unit} | {bound} | {verdict} |".replace("  ", " "), flush=True)
        self.figures[what] = value
        if not good:
            self.failures.append(f"{what}: {shown} {unit}, must be {bound}".replace(" ,", ","))


# --------------------------------------------------------------------------------------- looking


def metrics(daemon):
    """{series with its labels: value}"""
    values = {}
    for line in daemon.admin.get("/metrics").text.splitlines():
        if line and line[0] != "#":
            name, _, value = line.rpartition(" ")
            values[name.removeprefix("xptycho_")] = float(value)
    return values


def quantile(before, after, name, part):
    """Of a histogram between two looks, seconds: the upper end of the bucket that holds it, as a bound of it."""
    pattern = re.compile(rf'{name}_bucket{{le="([^"]+)"}}')
    buckets = sorted((float(found[1].replace("+Inf", "inf")), value - before.get(series, 0))
                     for series, value in after.items() if (found := pattern.fullmatch(series)))
    for bound, count in buckets:
        if count >= part * buckets[-1][1]:
            return bound
    return float("nan")


def memory(pid):
    """Resident anonymous memory, bytes: what the program took, without the pages of its files."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", text)[1]) * 1024


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pin(pid, core):
    for task in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(task), {core})


# --------------------------------------------------------------------------------------- driving


class Service:
    """A daemon in a temporary folder; a worker that only tells iterations, unless a real one is wanted."""

    def __init__(self, *options, real=False):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="xptychod-load-"))
        worker = [] if real else ["--worker-program", str(HERE / "paced_worker.py")]
        self.daemon = xptychod.Daemon(self.folder / "daemon", *worker, *options)
        self.children = []

    def __enter__(self):
        try:
            self.daemon.folder.mkdir(parents=True, exist_ok=True)
            self.daemon.process = self.daemon.spawn()
            self.daemon.ready = xptychod.wait_until(self.daemon._read_ready, "the daemon is ready")
            xptychod.wait_until(lambda: metrics(self.daemon).get('gpu_healthy{gpu="cpu"}'), "the worker is ready")
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, *rest):
        try:
            for child in self.children:
                if child.poll() is None:
                    child.kill()
                    child.wait()
            if kind is None:
                self.daemon.stop()
            elif kind is not Skip:
                print(self.daemon.log_tail(20), file=sys.stderr)
        finally:
            self.daemon.clean_up()
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self):
        return self.daemon.process.pid

    def scan(self, **options):
        return scans.make(**options).write(self.folder / "scan.h5")

    def start(self, name, *arguments, health=False):
        ready = self.daemon.ready
        to = ["--to", "unix:" + ready["admin"]] if health else ["--to", ready["http"], "--token-file", ready["token_file"]]
        child = subprocess.Popen([xptychod.program(name), *to, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def requests(self, path, *arguments, **options):
        """What load_requests counted."""
        child = self.start("load_requests", "--path", path, *arguments, **options)
        return json.loads(child.communicate()[0])

    def submits(self, job, *arguments):
        body = self.folder / "job.json"
        body.write_text(json.dumps(job))
        return self.requests("/v1/jobs?probe=" + ("async" if "async" in arguments else "sync"), "--method", "POST", "--body-file", body,
                             *(a for a in arguments if a != "async"))

    def streams(self, job, *arguments):
        """load_streams, once all of its streams are open."""
        child = self.start("load_streams", "--path", f"/v1/jobs/{job}/events", *arguments)
        line = child.stdout.readline()
        assert '"open"' in line, f"the streams do not open: {line}"
        return child


# ----------------------------------------------------------------------------------------- parts


def submits(report, long):
    """Submissions of 100 clients at once, without a look at the file and with one."""
    seconds = 20 if long else 3
    for way, least, most in (("async", 500 if long else 50, 250 if long else 2000), ("sync", 20 if long else 2, 5000 if long else 30000)):
        with Service("--queue-max", "1000000", "--queue-user-max", "1000000") as service:
            job = {"scan": {"path": service.scan()}, "recon": ENDLESS}
            before = metrics(service.daemon)
            cpu = cpu_seconds(service.pid)
            counted = service.submits(job, "--clients", 100, "--seconds", seconds, *(["async"] if way == "async" else []))
            cpu = cpu_seconds(service.pid) - cpu
            after = metrics(service.daemon)
            named = "without a look at the file" if way == "async" else "each scan looked at by a reader"
            report.tell(f"submits a second, {named}", counted["per_second"], least=least)
            report.tell(f"p50 of an answer, {named}", counted["p50_ms"], "ms")
            report.tell(f"p99 of an answer, {named}", counted["p99_ms"], "ms", most=most)
            report.tell(f"p99 of the loop's lag, {named}", quantile(before, after, "loop_lag_seconds", 0.99) * 1000, "ms or less")
            report.tell(f"jobs a commit, {named}", counted["answers"] / (after["db_commit_seconds_count"] - before["db_commit_seconds_count"]))
            report.tell(f"processor of the broker a submit, {named}", cpu / counted["answers"] * 1e6, "us")
            answers = counted["status"].get("201", 0)
            report.tell(f"answers other than 201, {named}", counted["answers"] - answers + counted["failed"] + counted["unanswered"], most=0)
            report.tell(f"jobs there that nobody was told of, or the reverse, {named}",
                        abs(sum(v for name, v in after.items() if name.startswith("jobs_submitted_total{")) - answers), most=0)


def streams(report, long):
    """Test 12: event-stream clients at 20 events a second; some never read, some come back again and again."""
    clients, stalled, again, seconds, warm = (1000, 100, 100, 600, 40) if long else (200, 20, 20, 6, 2)
    with Service("--streams-max", str(clients + 200), "--connections-max", str(clients + 500)) as service:
        daemon = service.daemon
        job = daemon.api.submit({"scan": {"path": service.scan()}, "recon": ENDLESS})["id"]
        daemon.api.wait_for_iteration(job, 1)
        empty = memory(service.pid)
        child = service.streams(job, "--readers", clients - stalled - again, "--stalled", stalled, "--again", again, "--again-ms", 1000)
        opened = memory(service.pid)
        time.sleep(warm)
        warmed, before, cpu, began = memory(service.pid), metrics(daemon), cpu_seconds(service.pid), time.monotonic()
        most = warmed
        while time.monotonic() - began < seconds:
            time.sleep(1)
            most = max(most, memory(service.pid))
        cpu, spent = cpu_seconds(service.pid) - cpu, time.monotonic() - began
        after = metrics(daemon)
        daemon.api.post(f"/v1/jobs/{job}/cancel")
        counted = json.loads(child.stdout.readline())
        child.wait()
        report.tell("streams", clients)
        report.tell("events delivered", counted["events"])
        report.tell("holes", counted["gaps"], most=0)
        report.tell("repetitions", counted["duplicates"], most=0)
        report.tell("id and seq that disagree", counted["disagree"], most=0)
        report.tell("readers without the event `end`", counted["readers"] - counted["ended"], most=0)
        report.tell("streams broken off or refused", counted["broken"] + counted["refused"], most=0)
        report.tell("times that a client came back", counted["reconnects"], least=again * seconds * 0.5)
        report.tell("events a second at each reader", (counted["most_seq"] - 3) / counted["seconds"], least=17)
        report.tell("age of an event when it arrives, p50", counted["age_p50_ms"], "ms")
        report.tell("age of an event when it arrives, p99", counted["age_p99_ms"], "ms")
        report.tell("p99 of the loop's lag", quantile(before, after, "loop_lag_seconds", 0.99) * 1000, "ms or less", most=50 if long else 250)
        report.tell("memory a stream", (opened - empty) / clients / 1024, "KiB", most=40)
        report.tell("growth of memory after warming up", (most - warmed) / 1e6, "MB", most=5)
        report.tell("processor of the broker", 100 * cpu / spent, "% of a core")
        if long:
            report.tell("stalled clients closed, reason timeout", after['stream_closed_total{reason="timeout"}'], least=stalled)
        report.tell("streams closed for lagging", after['stream_closed_total{reason="lag"}'], most=0)


def jobs(report, long):
    """Many short jobs through the real worker: what grows with them."""
    count, kept = (10000, 500) if long else (120, 40)
    with Service("--queue-max", "100000", "--queue-user-max", "100000", "--keep-jobs", str(kept), "--cpu-workers", "2", real=True) as service:
        daemon = service.daemon
        job = {"scan": {"path": service.scan(points=3)}, "recon": {"iterations": 1}}
        began, submitted, points = time.monotonic(), 0, []
        while True:
            now = metrics(daemon)
            done = sum(value for name, value in now.items() if name.startswith("jobs_finished_total"))
            workers = [pid for pid, name in xptychod.processes_marked(daemon.mark) if name == "xptycho-worker"]
            points.append((done, memory(service.pid), sum(memory(pid) for pid in workers), len(os.listdir(f"/proc/{service.pid}/fd"))))
            if done >= count:
                break
            assert time.monotonic() - began < 1500, f"{done:.0f} of {count} jobs are done"
            if submitted < count and submitted - done < 60:
                some = min(60, count - submitted)
                submitted += service.submits(job, "--clients", 4, "--count", some, "async")["status"].get("201", 0)
            else:
                time.sleep(0.25)
        spent = time.monotonic() - began
        assert submitted == count, f"{submitted} of {count} were taken"
        warm = max(kept * 2, count // 5)
        steady = [point for point in points if point[0] >= warm]
        late = [point for point in points if point[0] >= count / 2]  # the heap settles, it takes a few thousand
        zombies = sum(1 for entry in os.listdir("/proc") if entry.isdigit() and is_zombie_of(entry, service.pid))
        now = metrics(daemon)
        report.tell("jobs", count)
        report.tell("jobs a second, two device sets", count / spent)
        report.tell("jobs that did not succeed", count - now.get('jobs_finished_total{state="succeeded",reason=""}', 0), most=0)
        report.tell("slope of the broker's memory", slope(late, 1), "bytes a job", most=100 if long else 20000)
        report.tell("growth of the broker's memory", (steady[-1][1] - steady[0][1]) / 1e6, "MB", most=2)
        report.tell("slope of the workers' memory", slope(late, 2), "bytes a job", most=500 if long else 200000)
        report.tell("growth of the broker's descriptors", max(p[3] for p in steady) - max(p[3] for p in points[:len(points) // 2 + 1]), most=8)
        report.tell("children that nobody waited for", zombies, most=0)
        report.tell("write-ahead log", (daemon.state / "queue.db-wal").stat().st_size / 1e6, "MB", most=16)
        report.tell("database", (daemon.state / "queue.db").stat().st_size / 1e6, "MB")


def is_zombie_of(pid, parent):
    try:
        fields = pathlib.Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] == "Z" and int(fields[1]) == parent


def slope(points, column):
    if len({point[0] for point in points}) < 2:
        return 0.0
    return statistics.linear_regression([point[0] for point in points], [float(point[column]) for point in points]).slope


def cost(report, long):
    """What a thousand subscribers cost the engine: the worker has a core for itself, all others the other one."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("the cost to the engine needs two cores")
    first, second = sorted(os.sched_getaffinity(0))[:2]
    clients, pairs, seconds = (1000, 5, 14) if long else (200, 2, 3)
    everything = os.sched_getaffinity(0)
    with Service("--worker-cpu-threads", "1", "--streams-max", str(clients), real=True) as service:
        daemon = service.daemon
        path = service.scan(n=128, points=20)
        job = daemon.api.submit({"scan": {"path": path}, "probe": {"path": path, "dataset": "/truth/probe"}, "recon": ENDLESS})["id"]
        daemon.api.wait_for_iteration(job, 3)
        pin(daemon.pid_of("xptycho-worker"), second)
        pin(service.pid, first)
        os.sched_setaffinity(0, {first})
        try:
            blocks = []
            for block in range(2 * pairs + 1):
                child = service.streams(job, "--readers", clients) if block % 2 else None
                cpu, began, wall = cpu_seconds(service.pid), time.monotonic(), time.time()
                time.sleep(seconds)
                spent = time.monotonic() - began
                blocks.append((wall, wall + spent, (cpu_seconds(service.pid) - cpu) / spent))
                if child:
                    child.kill()
                    child.wait()
                    xptychod.wait_until(lambda: metrics(daemon)["event_subscribers"] == 0, "the streams are gone")
        finally:
            os.sched_setaffinity(0, everything)
        events = daemon.api.events(job, follow=0)
        rates = [rate(events, begin, end) for begin, end, _ in blocks]
        without = [rates[i] for i in range(0, len(rates), 2)]
        ratios = [rates[i] / ((rates[i - 1] + rates[i + 1]) / 2) for i in range(1, len(rates), 2)]
        report.tell("iterations a second without subscribers", statistics.median(without))
        report.tell("iterations a second, the same with other blocks: least to most", 100 * (max(without) / min(without) - 1), "%")
        report.tell(f"iterations a second with {clients} subscribers", statistics.median(rates[1::2]))
        report.tell("lost to them, median of the blocks", 100 * (1 - statistics.median(ratios)), "%", most=2 if long else 30)
        report.tell("processor of the broker without, with", 100 * statistics.median(b[2] for b in blocks[::2]), "% of a core")
        report.tell("processor of the broker with", 100 * statistics.median(b[2] for b in blocks[1::2]), "% of a core")
        daemon.api.post(f"/v1/jobs/{job}/cancel")
        daemon.api.finish(job)


def rate(events, begin, end):
    """Iterations a second of the events between two times of the wall clock."""
    inside = [(stamp(event), event["iter"]) for event in events if event["type"] == "iter" and begin <= stamp(event) <= end]
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


def stamp(event):
    whole, _, part = event["t"].rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float("0." + (part or "0"))


def slow(report, long):
    """Test 14: clients that dawdle, by slowhttptest, while others want their answers."""
    if not shutil.which("slowhttptest"):
        raise Skip("slowhttptest is not installed (Debian: slowhttptest)")
    count, seconds, most = (2000, 36, 200) if long else (400, 5, 1000)
    limit = 1256 if long else 200
    for name in ("head", "body", "read"):
        with Service("--connections-max", str(limit)) as service:
            daemon = service.daemon
            token = pathlib.Path(daemon.ready["token_file"]).read_text().strip()
            url = daemon.ready["http"]
            attack = {"head": ["-H", "-u", url + "/v1/jobs"],
                      "body": ["-B", "-u", url + "/v1/jobs", "-s", "65536", "-x", "10", "-f", "application/json",
                               "-m", f"application/json\r\nAuthorization: Bearer {token}"],
                      "read": ["-X", "-u", url + "/openapi.json", "-w", "512", "-y", "1024", "-n", "5", "-z", "32", "-k", "10"]}[name]
            slower = subprocess.Popen(["slowhttptest", "-c", str(count), "-r", str(max(200, count // 4)), "-i", "5", "-l", str(seconds),
                                       "-v", "1", "-p", "30", *attack], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
            service.children.append(slower)
            seen = Highest(daemon, "http_connections")
            counted = service.requests("/v1/queue", "--clients", 20, "--every-ms", 200, "--new", 1, "--seconds", seconds)
            slower.wait()
            after = metrics(daemon)
            named = {"head": "2,000 that send a head slowly", "body": "2,000 that send a body slowly, with a token",
                     "read": "2,000 that read an answer slowly"}[name].replace("2,000", f"{count:,}")
            report.tell(f"{named}: most connections at a time", seen.stop(), least=0.8 * limit)
            report.tell(f"{named}: p50 of others", counted["p50_ms"], "ms")
            report.tell(f"{named}: p99 of others", counted["p99_ms"], "ms", most=most)
            report.tell(f"{named}: longest of others", counted["max_ms"], "ms")
            report.tell(f"{named}: answers to others", counted["answers"], least=seconds * 50)
            report.tell(f"{named}: answers to others that are not 200", counted["answers"] - counted["status"].get("200", 0) + counted["failed"]
                        + counted["unanswered"], most=0)
            report.tell(f"{named}: closed to make room", after['http_dropped_total{reason="room"}'])
            if long:  # 10 s for a head, 30 s for a body or for reading an answer
                report.tell(f"{named}: closed at the deadline", after['http_dropped_total{reason="deadline"}'], least=1)
            xptychod.wait_until(lambda: metrics(daemon)["http_connections"] < 10, "they are gone", 60)


class Highest:
    """The most that a gauge showed, looked at twice a second."""

    def __init__(self, daemon, name):
        self.over, self.most = threading.Event(), 0
        self.thread = threading.Thread(target=self.look, args=(daemon, name))
        self.thread.start()

    def look(self, daemon, name):
        while not self.over.wait(0.5):
            self.most = max(self.most, metrics(daemon)[name])

    def stop(self):
        self.over.set()
        self.thread.join()
        return self.most


def full(report, long):
    """Test 13: streams take every connection; health answers, and the API says 503 and when to come back."""
    limit, seconds = (1256, 15) if long else (150, 3)
    with Service("--connections-max", str(limit), "--streams-max", "10000") as service:
        daemon = service.daemon
        job = daemon.api.submit({"scan": {"path": service.scan()}, "recon": ENDLESS})["id"]
        child = service.streams(job, "--readers", limit)
        refused = daemon.api.get("/v1/jobs")
        assert refused.status == 503 and int(refused.headers["Retry-After"]) > 0 and refused.headers["Connection"] == "close", refused
        api = service.start("load_requests", "--path", "/v1/jobs", "--clients", 10, "--every-ms", 100, "--new", 1, "--seconds", seconds)
        for path in ("/livez", "/readyz", "/metrics"):  # with others on the machine the slowest of a few is no measure
            counted = service.requests(path, "--clients", 2, "--every-ms", 50, "--new", 1, "--seconds", seconds // 3, health=True)
            report.tell(f"{limit} streams are all connections: {path} p99", counted["p99_ms"], "ms", most=50 if long else 500)
            report.tell(f"{path} p50", counted["p50_ms"], "ms", most=50)
            report.tell(f"{path}: answers that are not 200", counted["answers"] - counted["status"].get("200", 0) + counted["failed"], most=0)
        counted = json.loads(api.communicate()[0])
        report.tell("api: answers 503 with Retry-After", counted["status"].get("503", 0), least=seconds * 50)
        report.tell("api: other answers, or none", counted["answers"] - counted["status"].get("503", 0) + counted["failed"] + counted["unanswered"], most=0)
        report.tell("api: p99 of the 503", counted["p99_ms"], "ms", most=200 if long else 1000)
        assert child.poll() is None and metrics(daemon)["event_subscribers"] == limit, "the streams were not touched"
        child.kill()
        child.wait()
        xptychod.wait_until(lambda: daemon.api.get("/v1/jobs").status == 200, "places are free again", 40)


PARTS = {"submits": submits, "streams": streams, "jobs": jobs, "cost": cost, "slow": slow, "full": full}


def run(names, long):
    """Runs the parts and returns (figures of all, failures, parts that were skipped)."""
    figures, failures, skipped = {}, [], []
    for name in names:
        report = Report(name)
        began = time.monotonic()
        try:
            PARTS[name](report, long)
        except Skip as reason:
            print(f"{name}: skipped: {reason}", flush=True)
            skipped.append(name)
            continue
        print(f"| {name} | time | {time.monotonic() - began:.0f} s | | |", flush=True)
        figures.update(report.figures)
        failures += [f"{name}: {text}" for text in report.failures]
    return figures, failures, skipped


def main():
    arguments = sys.argv[1:]
    long = arguments[:1] != ["short"]
    names = [name for name in arguments if name not in ("short", "long")] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.exit(f"unknown part '{unknown[0]}'; parts are {', '.join(PARTS)}")
    print(f"load average {os.getloadavg()[0]:.1f}, {len(os.sched_getaffinity(0))} cores\n\n| part | what | figure | bound | within |\n|---|---|---|---|---|",
          flush=True)
    _, failures, skipped = run(names, long)
    for failure in failures:
        print(f"FAILED: {failure}")
    if failures:
        sys.exit(1)
    if skipped == names:
        sys.exit(SKIPPED)
    print("load: passed")


if __name__ == "__main__":
    main()
