#!/usr/bin/python3
"""Also: the state of an older xptychod, killed in the middle of its work, taken over by this one.

--revisions names commits to build the older programs from; without it, the last one before each change of the version of the
state.  Passes when every job is there as it was, what waited or ran comes to its end, a key that was used finds its job, a copy of
the old state was made, and the older program refuses the newer state by a sentence.
"""

import contextlib
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile

import scans
import soak
import xptychod

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = "daemon/broker/schema.h"


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout


def revisions():
    """The parents of the commits that changed the version of the state."""
    changes = git("log", "--format=%h", "-G", "define XPD_SCHEMA_VERSION", "--", HEADER).split()
    return [git("rev-parse", "--short", f"{change}~1").strip() for change in changes]


def build(revision, folder):
    """The folder of the programs of that commit."""
    source, made = folder / f"source-{revision}", folder / f"build-{revision}"
    source.mkdir()
    archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", revision], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(source)], stdin=archive.stdout, check=True)
    assert archive.wait() == 0, f"no commit {revision}"
    subprocess.run(["cmake", "-S", str(source), "-B", str(made), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DXPTYCHOD_TESTS=OFF",
                    *(["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if os.environ.get("CCACHE_DIR") else [])], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(made), "-j", "2"], check=True, stdout=subprocess.DEVNULL)
    return made / "bin"


def version_of(database):
    """Of a copy: who opens a database that was left in the middle brings it in order."""
    with tempfile.TemporaryDirectory() as folder:
        for file in database.parent.glob(database.name + "*"):
            if file.name in (database.name, database.name + "-wal"):
                shutil.copy(file, folder)
        with contextlib.closing(sqlite3.connect(pathlib.Path(folder) / database.name)) as db:
            (version,), = db.execute("SELECT value FROM meta WHERE key = 'schema_version'")
            assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    return int(version)


def agrees(new, old):
    """Every member that the old document had, but for links, which are ways, not facts."""
    return {name: new.get(name) for name in old if name != "links"} == {name: value for name, value in old.items() if name != "links"}


def take_over(revision, older, folder):
    small = scans.make(n=16, points=4, step=3, seed=1).write(folder / "small.h5")
    large = scans.make(n=64, points=12, step=6, seed=2).write(folder / "large.h5")
    daemon, newer = xptychod.Daemon(folder / "daemon"), os.environ["XPTYCHOD_BIN"]

    def job(path, iterations, **changes):
        return {"scan": {"path": path}, "recon": {"iterations": iterations}, **changes}

    try:
        os.environ["XPTYCHOD_BIN"] = str(older)
        daemon.start()
        api = daemon.api
        ended = [api.finish(api.submit(job(small, 3, labels={"n": str(n)}, metadata={"deep": [n]}), Idempotency_Key=f"ended-{n}")["id"])
                 for n in range(5)]
        running = api.submit(job(large, 300))["id"]
        api.wait_for_iteration(running, 5)
        waiting = [api.submit(job(small, 3, priority=n), Idempotency_Key=f"waiting-{n}")["id"] for n in range(5)]
        assert api.post(f"/v1/jobs/{waiting[0]}/cancel").status in (200, 202)
        ended.append(api.finish(waiting.pop(0)))
        logs = {one["id"]: api.events(one["id"]) for one in ended}
        seen = api.events(running, follow=0)
        daemon.kill()
        before = version_of(daemon.state / "queue.db")

        os.environ["XPTYCHOD_BIN"] = newer
        daemon.start()
        api = daemon.api
        for one in ended:
            assert agrees(api.show(one["id"]), one), (api.show(one["id"]), one)
            assert api.events(one["id"]) == logs[one["id"]]
            if one["result"]:
                assert len(api.get(f"/v1/jobs/{one['id']}/result/data").body) == one["result"]["bytes"]
        for n in range(5):
            again = api.post("/v1/jobs", job(small, 3, labels={"n": str(n)}, metadata={"deep": [n]}), Idempotency_Key=f"ended-{n}")
            assert again.status == 201 and again.json()["id"] == ended[n]["id"], again
        assert api.finish(running)["state"] == "succeeded" and api.events(running)[:len(seen)] == seen
        assert {api.finish(one)["state"] for one in waiting} == {"succeeded"}
        daemon.stop()
        after = version_of(daemon.state / "queue.db")
        if after != before:
            assert version_of(daemon.state / f"queue.db.v{before}") == before
            os.environ["XPTYCHOD_BIN"] = str(older)
            assert daemon.spawn().wait(xptychod.DEADLINE_S) not in (0, None)
            assert str(after) in daemon.log_tail(3), daemon.log_tail(3)
        print(f"{revision}: version {before} -> {after}", flush=True)
        return f"{revision} (version {before})"
    except BaseException:
        print(daemon.log_tail())
        raise
    finally:
        os.environ["XPTYCHOD_BIN"] = newer
        daemon.clean_up()


def body(options):
    taken = []
    for revision in options.revisions.split(",") if options.revisions else revisions():
        folder = options.folder / revision
        folder.mkdir()
        taken.append(take_over(revision, build(revision, folder), folder))
    assert taken, "the history names no older version"
    return f"states of {', '.join(taken)} taken over; 11 jobs each, none lost, and refused by the older program afterwards"


if __name__ == "__main__":
    soak.main(28, body, soak.arguments(__doc__, revisions=""))
