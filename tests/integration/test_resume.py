"""Interrupted and taken up: the final object, probe and every data error are those of a run that was left alone, byte by byte.

What interrupts: kill -9 of the worker, of the broker, of a foreground run; a stop of the service; a power failure, played by a
copy of the state folder at a random moment.  XPTYCHOD_RESUME_SEEDS asks for more of those moments than three.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import h5py
import pytest

import xptychod

KINDS = {
    "known": {"probe": True, "recon": {"iterations": 60}},
    "estimated": {"recon": {"iterations": 60}},
    "two modes": {"model": {"probe_modes": 2}, "recon": {"iterations": 50, "mode_schedule": [20]}},
    "stages": {"recon": [{"iterations": 25}, {"algorithm": "refine_positions"}, {"iterations": 35}]},
    "stages, two modes": {"model": {"probe_modes": 2}, "recon": [{"iterations": 20, "mode_schedule": [8]}, {"iterations": 30, "report_every": 3}]},
}


def job_of(path, kind="estimated", **changes):
    job = {"scan": {"path": path}, "preview_every_s": 1, "checkpoint_every_s": 0, **KINDS[kind]}
    if job.pop("probe", False):
        job["probe"] = {"path": path, "dataset": "/truth/probe"}
    return {**job, **changes}


def bits(path):
    with h5py.File(path) as f:
        return {name: f[name][...].tobytes() for name in ("sample/object", "sample/probe", "run/data_error", "run/coverage", "run/probe_positions", "run/position_gain") if name in f}


def stages_of(job):
    return job["recon"] if isinstance(job["recon"], list) else [job["recon"]]


def check_log(events, job):
    """Numbered without holes, one end, every iteration of every stage, and what is told twice is equal.  What follows
    `resumed` is the iteration after the one it names."""
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert [e["type"] for e in events].count("end") == 1 and events[-1]["type"] == "end"
    wanted = [(s, i) for s, stage in enumerate(stages_of(job)) for i in range(1, stage.get("iterations", 1) + 1)]
    values, expected = {}, 0
    for e in events:
        if e["type"] == "resumed":
            expected = wanted.index((e.get("stage", 0), e["from_iter"])) + 1 if e["from_iter"] else 0
        elif e["type"] == "iter":
            at = (e["stage"], e["iter"])
            assert wanted[expected] == at, e
            assert values.setdefault(at, (e["data_error"], e["modes"])) == (e["data_error"], e["modes"]), e
            expected += 1
    assert sorted(values) == wanted


def at_iteration(stage, iteration):
    return lambda e: e["type"] == "checkpoint" and (e["stage"], e["iter"]) >= (stage, iteration)


def checkpoints(folder):
    return sorted(p.name for p in pathlib.Path(folder).iterdir() if p.name.startswith("checkpoint"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, slow_scan_file):
    """bits of each kind of job, run in the foreground without a checkpoint; made when first asked for."""
    made = {}

    def get(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp("undisturbed")
            out = folder / "result.h5"
            (folder / "job.json").write_text(json.dumps(job_of(slow_scan_file, kind, output={"path": str(out)})))
            done = xptychod.run("xptycho", "run", folder / "job.json", "--quiet")
            assert done.returncode == 0, done.stderr
            made[kind] = bits(out)
        return made[kind]

    return get


@pytest.fixture
def other_daemon(request, tmp_path):
    """Not started yet, with a folder of its own that does not exist yet."""
    other = xptychod.Daemon(tmp_path / "elsewhere")
    request.node.daemons = [*getattr(request.node, "daemons", []), other]
    yield other
    if other.process and other.process.poll() is None:
        other.stop()
    other.clean_up()


# ------------------------------------------------------------------------------------ the service


@pytest.mark.parametrize("kind, stage, iteration", [
    ("known", 0, 10), ("estimated", 0, 10), ("two modes", 0, 10), ("two modes", 0, 30), ("stages", 0, 15), ("stages", 2, 10),
    ("stages, two modes", 1, 10)])
def test_killed_worker(daemon, slow_scan_file, undisturbed, kind, stage, iteration):
    job = job_of(slow_scan_file, kind)
    job_id = daemon.api.submit(job)["id"]
    daemon.api.wait_for_event(job_id, at_iteration(stage, iteration))
    daemon.kill_worker()
    events = daemon.api.events(job_id)
    done = daemon.api.show(job_id)
    assert done["state"] == "succeeded" and done["attempts"] == 1, done
    resumed = [e for e in events if e["type"] == "resumed"]
    assert len(resumed) == 1 and (resumed[0]["stage"], resumed[0]["from_iter"]) >= (stage, iteration - 1), resumed
    check_log(events, job)
    assert bits(done["result"]["path"]) == undisturbed(kind)
    assert done["result"]["iterations"] == sum(s.get("iterations", 1) for s in stages_of(job))
    assert checkpoints(daemon.state / "jobs" / job_id) == []


def test_killed_broker(daemon, slow_scan_file, undisturbed):
    job = job_of(slow_scan_file)
    job_id = daemon.api.submit(job)["id"]
    for iteration in (10, 30):
        daemon.api.wait_for_event(job_id, at_iteration(0, iteration))
        daemon.kill()
        daemon.start()
    events = daemon.api.events(job_id)
    done = daemon.api.show(job_id)
    assert done["state"] == "succeeded" and done["attempts"] == 0, done
    assert [e["from_iter"] >= n for e, n in zip([e for e in events if e["type"] == "resumed"], (9, 29))] == [True, True]
    check_log(events, job)
    assert bits(done["result"]["path"]) == undisturbed("estimated")


def test_stopped_service_saves_first(daemon, slow_scan_file, undisturbed):
    job = job_of(slow_scan_file, "two modes", checkpoint_every_s=3600)
    job_id = daemon.api.submit(job)["id"]
    daemon.api.wait_for_iteration(job_id, 25)
    daemon.stop()
    assert checkpoints(daemon.state / "jobs" / job_id) == ["checkpoint.0"]
    daemon.start()
    events = daemon.api.events(job_id)
    kept = [e for e in events if e["type"] == "checkpoint"]
    resumed = [e for e in events if e["type"] == "resumed"]
    assert len(kept) == 1 and [(e["stage"], e["from_iter"]) for e in resumed] == [(0, kept[0]["iter"])], (kept, resumed)
    iterations = [e["iter"] for e in events if e["type"] == "iter"]
    assert iterations == list(range(1, 51)), "none twice, none left out"
    check_log(events, job)
    assert bits(daemon.api.show(job_id)["result"]["path"]) == undisturbed("two modes")


@pytest.mark.parametrize("seed", range(int(os.environ.get("XPTYCHOD_RESUME_SEEDS", "3"))))
def test_power_failure(daemon, other_daemon, slow_scan_file, undisturbed, seed):
    """Files copied one after the other while the job runs, cut short at places, and started elsewhere."""
    chance = random.Random(seed)
    job = job_of(slow_scan_file, "stages")
    job_id = daemon.api.submit(job)["id"]
    daemon.api.wait_for_event(job_id, at_iteration(0, 3))
    time.sleep(chance.uniform(0, 0.5))  # the random moment
    other = other_daemon
    copy_state(daemon.state, other.state)
    daemon.kill()
    log = other.state / "jobs" / job_id / "events.ndjson"
    with open(log, "r+b") as f:
        f.truncate(max(0, log.stat().st_size - chance.randrange(4000)))  # what the page cache had not written
    other.start()
    events = other.api.events(job_id)
    done = other.api.show(job_id)
    assert done["state"] == "succeeded", done
    check_log(events, job)
    assert bits(done["result"]["path"]) == undisturbed("stages")


def copy_state(source, target):
    """Every file as it is when its turn comes.  The queue goes first: what it says is older than what the others say."""
    target.mkdir(parents=True)
    for name in ("queue.db", "queue.db-wal"):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    for path in sorted(p for p in source.rglob("*") if "queue.db" not in p.name and p.name != "lock" and "run" not in p.parts[-2:]):
        to = target / path.relative_to(source)
        try:
            if path.is_dir():
                to.mkdir(parents=True, exist_ok=True)
            elif path.is_file():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to)
        except FileNotFoundError:
            continue  # renamed meanwhile


@pytest.mark.parametrize("damage", ["torn", "flipped", "both"])
def test_damaged_checkpoint(daemon, slow_scan_file, undisturbed, damage):
    job = job_of(slow_scan_file)
    job_id = daemon.api.submit(job)["id"]
    daemon.api.wait_for_event(job_id, at_iteration(0, 10))
    daemon.kill()
    folder = daemon.state / "jobs" / job_id
    newest = max((folder / f"checkpoint.{i}" for i in range(2)), key=lambda p: p.stat().st_mtime_ns)
    for path in folder.glob("checkpoint.?") if damage == "both" else [newest]:
        with open(path, "r+b") as f:
            if damage == "flipped":
                f.seek(path.stat().st_size // 2)
                byte = f.read(1)
                f.seek(-1, os.SEEK_CUR)
                f.write(bytes([byte[0] ^ 1]))
            else:
                f.truncate(path.stat().st_size - 100)
    daemon.start()
    events = daemon.api.events(job_id)
    texts = [e["text"] for e in events if e["type"] == "warning"]
    resumed = [e for e in events if e["type"] == "resumed"]
    assert len([t for t in texts if "it is not used" in t]) == (2 if damage == "both" else 1), texts
    if damage == "both":
        assert resumed[-1]["from_iter"] == 0, resumed
    else:
        assert any("going on from the other generation" in t for t in texts) and resumed[-1]["from_iter"] >= 9, (texts, resumed)
    check_log(events, job)
    assert bits(daemon.api.show(job_id)["result"]["path"]) == undisturbed("estimated")


def test_without_checkpoints_a_job_begins_anew(daemon, slow_scan_file, undisturbed):
    job = job_of(slow_scan_file, checkpoint="off")
    job_id = daemon.api.submit(job)["id"]
    daemon.api.wait_for_iteration(job_id, 5)
    assert checkpoints(daemon.state / "jobs" / job_id) == []
    daemon.kill_worker()
    events = daemon.api.events(job_id)
    assert [e["from_iter"] for e in events if e["type"] == "resumed"] == [0]
    assert not [e for e in events if e["type"] == "checkpoint"]
    check_log(events, job)
    assert bits(daemon.api.show(job_id)["result"]["path"]) == undisturbed("estimated")


def test_cancelled_job_leaves_no_checkpoint(daemon, slow_scan_file):
    job_id = daemon.api.submit(job_of(slow_scan_file, recon={"iterations": 100000}))["id"]
    daemon.api.wait_for_event(job_id, at_iteration(0, 3))
    assert daemon.api.post(f"/v1/jobs/{job_id}/cancel").status == 202
    assert daemon.api.finish(job_id)["state"] == "cancelled"
    assert checkpoints(daemon.state / "jobs" / job_id) == []


def test_job_that_is_cancelled_while_it_waits_to_go_on_leaves_no_checkpoint(daemon, slow_scan_file):
    job_id = daemon.api.submit(job_of(slow_scan_file, recon={"iterations": 100000}))["id"]
    daemon.api.wait_for_event(job_id, at_iteration(0, 3))
    before = daemon.api.submit(job_of(slow_scan_file, recon={"iterations": 100000}, priority=9))["id"]
    daemon.kill_worker()
    daemon.api.wait_for_iteration(before, 1)
    assert daemon.api.show(job_id)["state"] == "queued" and checkpoints(daemon.state / "jobs" / job_id)
    assert daemon.api.post(f"/v1/jobs/{job_id}/cancel").status == 202
    daemon.api.finish(job_id)
    assert checkpoints(daemon.state / "jobs" / job_id) == []
    daemon.api.post(f"/v1/jobs/{before}/cancel")
    daemon.api.finish(before)


def test_worker_that_is_asked_to_end_saves_first(daemon, slow_scan_file, undisturbed):
    job = job_of(slow_scan_file, "known", checkpoint_every_s=3600)
    job_id = daemon.api.submit(job)["id"]
    daemon.api.wait_for_iteration(job_id, 10)
    os.kill(daemon.pid_of("xptycho-worker"), signal.SIGTERM)
    events = daemon.api.events(job_id)
    kept = [e["iter"] for e in events if e["type"] == "checkpoint"]
    assert len(kept) == 1 and [e["from_iter"] for e in events if e["type"] == "resumed"] == kept
    check_log(events, job)
    assert bits(daemon.api.show(job_id)["result"]["path"]) == undisturbed("known")


# --------------------------------------------------------------------------------- the foreground


class Foreground:
    def __init__(self, folder, job):
        self.folder, self.out, self.kept = folder, folder / "result.h5", folder / "kept"
        self.job = {**job, "output": {"path": str(self.out)}}

    def command(self, **devices):
        job = {**self.job, **({"devices": devices} if devices else {})}
        (self.folder / "job.json").write_text(json.dumps(job))
        return [xptychod.program("xptycho"), "run", str(self.folder / "job.json"), "--json", "--checkpoint", str(self.kept)]

    def start(self, **devices):
        return subprocess.Popen(self.command(**devices), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, **devices):
        """Events of a run that goes to its end."""
        done = subprocess.run(self.command(**devices), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


def until(process, condition):
    for line in process.stdout:
        event = json.loads(line)
        if condition(event):
            return event
    raise AssertionError(f"the run ended: {process.stderr.read()}")


@pytest.mark.parametrize("kind, stage, iteration, first, then", [
    ("known", 0, 20, ["cpu"], ["cpu", "cpu", "cpu"]), ("estimated", 0, 20, ["cpu", "cpu"], ["cpu"]),
    ("two modes", 0, 30, ["cpu", "cpu", "cpu"], ["cpu", "cpu"]), ("stages", 2, 5, ["cpu"], ["cpu", "cpu"])])
def test_foreground_run_goes_on_with_another_number_of_devices(tmp_path, slow_scan_file, undisturbed, kind, stage, iteration, first, then):
    run = Foreground(tmp_path, job_of(slow_scan_file, kind))
    process = run.start(devices=first)
    until(process, at_iteration(stage, iteration))
    process.kill()
    process.communicate()
    events = run.finish(devices=then)
    assert events[0]["type"] in ("warning", "log", "resumed")
    resumed = next(e for e in events if e["type"] == "resumed")
    following = next(e for e in events if e["type"] == "iter")
    assert (resumed["stage"], resumed["from_iter"]) >= (stage, iteration)
    assert (following["stage"], following["iter"]) == (resumed["stage"], resumed["from_iter"] + 1)
    assert bits(run.out) == undisturbed(kind)
    assert checkpoints(run.kept) == []


def test_sigterm_saves_and_leaves_and_sigusr1_saves_and_goes_on(tmp_path, slow_scan_file, undisturbed):
    run = Foreground(tmp_path, job_of(slow_scan_file, checkpoint_every_s=3600))
    process = run.start()
    until(process, lambda e: e["type"] == "iter" and e["iter"] == 5)
    process.send_signal(signal.SIGUSR1)
    kept = until(process, lambda e: e["type"] == "checkpoint")
    until(process, lambda e: e["type"] == "iter" and e["iter"] > kept["iter"])
    process.send_signal(signal.SIGTERM)
    last = until(process, lambda e: e["type"] == "checkpoint")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 5 and "the same command goes on from it" in errors, errors
    assert not run.out.exists() and checkpoints(run.kept) == ["checkpoint.0", "checkpoint.1"]
    events = run.finish()
    assert next(e for e in events if e["type"] == "resumed")["from_iter"] == last["iter"]
    assert bits(run.out) == undisturbed("estimated")


def test_checkpoints_of_another_job_are_not_touched(tmp_path, slow_scan_file):
    run = Foreground(tmp_path, job_of(slow_scan_file))
    process = run.start()
    until(process, at_iteration(0, 3))
    process.kill()
    process.communicate()
    before = {p.name: p.read_bytes() for p in run.kept.glob("checkpoint.?")}
    run.job["recon"] = {"iterations": 61}
    done = subprocess.run(run.command(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3 and "checkpoints of another job" in done.stderr, done.stderr
    assert {p.name: p.read_bytes() for p in run.kept.glob("checkpoint.?")} == before


def test_full_disk_keeps_the_generation_before_and_the_job(tmp_path, slow_scan_file, undisturbed):
    """A limit on the size of files stands for the disk."""
    run = Foreground(tmp_path, job_of(slow_scan_file))
    done = subprocess.run(["prlimit", "--fsize=4000000", *run.command()], capture_output=True, text=True, timeout=120, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    warnings = [e["text"] for e in events if e["type"] == "warning"]
    assert len(warnings) == 1 and "errno 27" in warnings[0] and "bytes" in warnings[0], warnings
    assert [e for e in events if e["type"] == "iter"][-1]["iter"] == 60
    assert checkpoints(run.kept) == []
    assert done.returncode == 0 and bits(run.out) == undisturbed("estimated")
