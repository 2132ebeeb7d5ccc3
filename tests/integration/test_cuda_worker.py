"""The broker with GPU workers: four emulated GPUs behind the real worker, and the real one where there is no GPU.

xptycho-worker-cuda-emu is xptycho-worker-cuda linked with the emulation of CUDA (engine/emu); XPE_EMU_DEVICES says how
many devices each of its processes sees, XPE_EMU_LOSE takes one away."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import h5py
import pytest

import scans
import xptychod

WORKER = "xptycho-worker-cuda-emu"
ALL = "0,1,2,3"
pytestmark = pytest.mark.skipif(
    not (pathlib.Path(os.environ.get("XPTYCHOD_BIN", "/")) / WORKER).exists(), reason=f"{WORKER} is not built")


def job_of(path, iterations=6, **changes):
    return {"name": "test", "scan": {"path": str(path)}, "recon": {"iterations": iterations}, "preview_every_s": 60, **changes}


def endless(path, **changes):
    return job_of(path, 100000, checkpoint_every_s=3600, **changes)


def on(*names):
    return {"devices": {"devices": list(names)}}


def counted(number):
    return {"devices": {"num_devices": number}}


def cancel(api, *jobs):
    for job in jobs:
        api.post(f"/v1/jobs/{job['id']}/cancel")
    return [api.finish(job["id"]) for job in jobs]


def bits(document):
    with h5py.File(document["result"]["path"]) as f:
        return {name: f[name][...].tobytes() for name in ("sample/object", "sample/probe", "run/data_error")}


def devices_of(api):
    return api.get("/v1/devices").json()["devices"]


def gpus_of(api):
    return {d["name"]: d for d in devices_of(api) if d["name"].startswith("cuda")}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """make(*options, gpus=4, **environment): a daemon with emulated GPUs; all are stopped at the end of the file."""
    started = []

    def start(*arguments, gpus=4, program=WORKER, folder=None, **environment):
        daemon = xptychod.Daemon(folder or tmp_path_factory.mktemp("cuda"), "--cuda-worker-program", xptychod.program(program), *arguments)
        daemon.environment = {"CUDA_VISIBLE_DEVICES": ALL, "XPE_EMU_DEVICES": str(gpus), "XPE_EMU_MIB": "512", "XPE_EMU_SEED": "1", **environment}
        started.append(daemon)
        daemon.start()
        return daemon

    yield start
    for daemon in started:
        if daemon.process.poll() is None:
            daemon.stop()
        daemon.clean_up()


def healthy(daemon):
    """Names of the devices on which a job can start at once."""
    lines = daemon.admin.get("/metrics").text.splitlines()
    return {line.split('"')[1] for line in lines if line.startswith("xptycho_gpu_healthy{") and line.endswith(" 1")}


def wait_healthy(daemon, *names):
    xptychod.wait_until(lambda: healthy(daemon) >= set(names), f"{names} are in service")


@pytest.fixture(scope="module")
def four(make):
    daemon = make()
    wait_healthy(daemon, "cpu", "cuda:0", "cuda:1", "cuda:2", "cuda:3")
    return daemon


@pytest.fixture(autouse=True)
def _log(request):
    if "four" in request.fixturenames:
        request.node.daemons = [request.getfixturevalue("four")]


@pytest.mark.parametrize("known", [True, False])
def test_what_a_job_is_admitted_for_is_what_its_worker_plans(four, tmp_path, known):
    path = scans.make(n=32, points=4, step=300).write(tmp_path / "sparse.h5")  # nearly all of it are images of the object
    job = job_of(path, **on("cuda:0"), **({"probe": {"path": path, "dataset": "/truth/probe"}} if known else {}))
    need = four.api.post("/v1/jobs?dry_run=true", job).json()["needs"]["device_bytes"]
    memory = four.api.finish(four.api.submit(job)["id"])["result"]["memory"]
    # the rest is the fields of some frames and two buffers, as many as there is room for
    assert 0 <= memory["planned_bytes"] - need < 6 << 20 and memory["peak_bytes"] <= memory["planned_bytes"], (need, memory)


# ------------------------------------------------------------------------------------- places


def test_every_gpu_is_a_set_of_its_own_with_its_memory(four):
    listed = devices_of(four.api)
    assert [d["name"] for d in listed] == ["cpu", "cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert [d["set"] for d in listed] == [0, 1, 2, 3, 4]
    for d in listed[1:]:
        assert d["absent"] == "" and d["threads"] == 0 and "emulated" in d["model"], d
        assert 0 < d["bytes_free"] <= d["bytes_total"] == 512 << 20, d
    assert len(four.pids_of(WORKER)) == 4


def test_a_job_that_names_nothing_gets_a_gpu_and_says_which(four, scan_file):
    done = four.api.finish(four.api.submit(job_of(scan_file))["id"])
    assert done["state"] == "succeeded" and len(done["devices"]) == 1
    assert done["devices"][0].startswith("cuda:") and done["result"]["devices"] == done["devices"]


def test_the_cpu_is_there_for_those_who_ask(four, scan_file):
    done = four.api.finish(four.api.submit(job_of(scan_file, **on("cpu", "cpu")))["id"])
    assert done["state"] == "succeeded" and done["result"]["devices"] == ["cpu", "cpu"]


def test_a_named_gpu_is_the_one(four, scan_file):
    done = four.api.finish(four.api.submit(job_of(scan_file, **on("cuda:2")))["id"])
    assert done["result"]["devices"] == ["cuda:2"]


def test_jobs_run_side_by_side_and_the_fifth_waits(four, scan_file):
    api = four.api
    jobs = [api.submit(endless(scan_file)) for _ in range(4)]
    for job in jobs:
        api.wait_for_iteration(job["id"], 1)
    assert {d["job"] for d in gpus_of(api).values()} == {j["id"] for j in jobs}
    fifth = api.submit(job_of(scan_file))
    pending = api.show(fifth["id"])["pending"]
    assert pending["reason"] == "devices-busy" and pending["blocked_by"], pending
    assert set(pending["blocked_by"]) <= {j["id"] for j in jobs}, "all, or the one that ends first"
    on_cpu = api.finish(api.submit(job_of(scan_file, **on("cpu")))["id"])
    assert on_cpu["state"] == "succeeded", "the CPU is free"
    busy = api.show(jobs[0]["id"])["devices"][0]
    cancel(api, jobs[0])
    assert api.finish(fifth["id"])["devices"] == [busy]
    cancel(api, *jobs[1:])


def test_more_gpus_than_there_are_are_refused_with_what_there_is(four, scan_file):
    answer = four.api.post("/v1/jobs", job_of(scan_file, **counted(5)))
    assert answer.status == 422 and "cuda:0, cuda:1, cuda:2, cuda:3" in answer.text, answer
    answer = four.api.post("/v1/jobs", job_of(scan_file, **on("cuda:1", "cuda:7")))
    assert answer.status == 422 and "'cuda:7'" in answer.text and "no device of this number" in answer.text, answer


# -------------------------------------------------------------------------------------- gangs


def test_gangs_give_the_same_bits_and_their_sets_are_free_again(four, scan_file):
    api = four.api
    results = {}
    for wish in (on("cuda:1"), counted(2), counted(3), on("cuda:3", "cuda:0"), on("cuda:3")):
        done = api.finish(api.submit(job_of(scan_file, **wish))["id"])
        assert done["state"] == "succeeded", done
        named = wish["devices"].get("devices")
        assert len(done["devices"]) == len(named or "x" * wish["devices"]["num_devices"]) and (not named or done["devices"] == named)
        results[str(wish)] = bits(done)
    assert all(r == results[str(on("cuda:1"))] for r in results.values())
    xptychod.wait_until(lambda: all(d["job"] is None for d in gpus_of(api).values()), "all are free")


def test_a_gang_waits_for_whole_sets_and_holds_them(four, scan_file):
    api = four.api
    one = api.submit(endless(scan_file, **on("cuda:0")))
    api.wait_for_iteration(one["id"], 1)
    gang = api.submit(endless(scan_file, **counted(4)))
    assert api.show(gang["id"])["pending"]["reason"] == "devices-busy"
    cancel(api, one)
    api.wait_for_iteration(gang["id"], 1)
    assert {d["job"] for d in gpus_of(api).values()} == {gang["id"]}
    assert [j["id"] for j in api.get("/v1/queue").json()["running"]] == [gang["id"]], "listed once"
    assert len(four.pids_of(WORKER)) == 1, "one process has all four"
    other = api.submit(job_of(scan_file))
    assert api.show(other["id"])["pending"]["blocked_by"] == [gang["id"]]
    cancel(api, gang)
    assert api.finish(other["id"])["state"] == "succeeded"


def test_a_gang_takes_gpus_that_are_near_each_other(make, scan_file):
    daemon = make(XPE_EMU_BRIDGES="0-2,1-3")
    api = daemon.api
    wait_healthy(daemon, "cpu", "cuda:0", "cuda:1", "cuda:2", "cuda:3")
    gpus = gpus_of(api)
    assert gpus["cuda:2"]["links"] == [{"name": f"cuda:{n}", "rank": rank} for n, rank in ((0, 1), (1, 2), (3, 2))]
    assert next(d for d in devices_of(api) if d["name"] == "cpu")["links"] == []
    busy = api.submit(endless(scan_file, **on("cuda:0")))
    api.wait_for_iteration(busy["id"], 1)
    gang = api.submit(endless(scan_file, **counted(2)))
    api.wait_for_iteration(gang["id"], 1)
    assert api.show(gang["id"])["devices"] == ["cuda:1", "cuda:3"]
    cancel(api, busy, gang)
    xptychod.wait_until(lambda: all(d["job"] is None for d in gpus_of(api).values()), "all are free")
    first = api.submit(endless(scan_file, **counted(2)))
    api.wait_for_iteration(first["id"], 1)
    assert api.show(first["id"])["devices"] == ["cuda:0", "cuda:2"]
    one = api.submit(endless(scan_file, **on("cuda:3")))
    api.wait_for_iteration(one["id"], 1)
    cancel(api, first)
    wait_healthy(daemon, "cuda:0", "cuda:1", "cuda:2")
    assert api.finish(api.submit(job_of(scan_file))["id"])["devices"] == ["cuda:1"], "the other pair is left whole"
    cancel(api, one)
    apart = api.finish(api.submit(job_of(scan_file, **on("cuda:0", "cuda:1")))["id"])
    assert apart["state"] == "succeeded", "what is named is taken"


def test_sets_of_several_gpus_are_configured(make, scan_file):
    api = make("--cuda", "cuda:2+cuda:0 cuda:1").api
    xptychod.wait_until(lambda: all(not d["absent"] for d in gpus_of(api).values()), "the workers are there")
    assert {name: d["set"] for name, d in gpus_of(api).items()} == {"cuda:2": 1, "cuda:0": 1, "cuda:1": 2}
    first = api.finish(api.submit(job_of(scan_file))["id"])
    assert first["devices"] == ["cuda:2", "cuda:0"], "a set whole"
    three = api.finish(api.submit(job_of(scan_file, **counted(3)))["id"])
    assert sorted(three["devices"]) == ["cuda:0", "cuda:1", "cuda:2"] and bits(three) == bits(first)


# ------------------------------------------------------------------------------ kill and resume


def test_killed_and_resumed_on_other_gpus_gives_the_same_bits(four, scan_file):
    api = four.api
    job = job_of(scan_file, 60, checkpoint_every_s=0)
    undisturbed = api.finish(api.submit({**job, **counted(2)})["id"])
    victim = api.submit({**job, **counted(2)})
    api.wait_for_iteration(victim["id"], 12)
    leader = min(d["set"] for d in gpus_of(api).values() if d["job"] == victim["id"])
    pids = four.pids_of(WORKER)
    for pid in pids:  # of the three that are there one has the gang; its command line says so
        if b"," in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    done = api.finish(victim["id"])
    assert done["state"] == "succeeded" and done["attempts"] == 1 and leader >= 1
    assert any(e["type"] == "resumed" and e["from_iter"] > 0 for e in api.events(victim["id"]))
    assert bits(done) == bits(undisturbed)


def test_a_job_that_ran_on_a_gpu_does_not_go_on_on_the_cpu(make, scan_file):
    daemon = make(gpus=1)
    api = daemon.api
    job = api.submit(job_of(scan_file, 60, checkpoint_every_s=0))
    api.wait_for_iteration(job["id"], 10)
    daemon.kill()
    daemon.environment["CUDA_VISIBLE_DEVICES"] = ""  # as after a driver that does not load any more
    daemon.start()
    api = daemon.api
    other = api.finish(api.submit(job_of(scan_file))["id"])
    assert other["result"]["devices"] == ["cpu"], "what is new goes to the CPU"
    pending = api.show(job["id"])["pending"]
    assert pending["reason"] == "no-worker" and "cuda:0" in pending["detail"] and "no CUDA device" in pending["detail"], pending
    daemon.stop()
    daemon.environment["CUDA_VISIBLE_DEVICES"] = ALL
    daemon.start()
    done = daemon.api.finish(job["id"])
    assert done["state"] == "succeeded" and done["result"]["devices"] == ["cuda:0"]
    assert [e["from_iter"] for e in daemon.api.events(job["id"]) if e["type"] == "resumed"][0] >= 9


# ------------------------------------------------------------------------------------ failures


def test_a_gpu_that_fails_three_times_is_drained_and_jobs_go_elsewhere(make, scan_file):
    daemon = make(gpus=2, XPE_EMU_LOSE="0:400")
    api = daemon.api
    wait_healthy(daemon, "cuda:0", "cuda:1")
    for turn in range(3):
        job = api.submit(job_of(scan_file, **({} if turn < 2 else on("cuda:0"))))
        if turn < 2:  # the first set is tried first, and the job goes on on the other
            done = api.finish(job["id"])
            assert done["state"] == "succeeded" and done["attempts"] == 1 and done["devices"] == ["cuda:1"], done
            assert "cuda:0" in next(e["detail"] for e in api.events(job["id"]) if e["type"] == "state" and e["reason"] == "worker-died")
            wait_healthy(daemon, "cuda:0", "cuda:1")  # the worker is replaced
    drained = xptychod.wait_until(lambda: gpus_of(api)["cuda:0"]["absent"], "the device is out of service")
    assert "drained after 3 failures" in drained and "cuda:0" in drained, drained
    assert healthy(daemon) == {"cpu", "cuda:1"}
    assert daemon.admin.get("/readyz").status == 200
    pending = api.show(job["id"])["pending"]
    assert pending["reason"] == "no-worker" and "drained" in pending["detail"], pending
    refused = api.post("/v1/jobs", job_of(scan_file, **on("cuda:0")))
    assert refused.status == 422 and "drained" in refused.text and "cuda:1" in refused.text, refused
    cancel(api, job)
    assert api.finish(api.submit(job_of(scan_file))["id"])["devices"] == ["cuda:1"]
    assert daemon.admin.post("/admin/undrain").status == 200
    wait_healthy(daemon, "cuda:0")


def test_a_worker_that_cannot_start_is_tried_a_few_times_and_the_cpu_serves(make, scan_file, tmp_path):
    script = tmp_path / "xptycho-worker-cuda"
    script.write_text("#!/bin/sh\nexit 127\n")
    script.chmod(0o755)
    daemon = make(program=str(script))
    api = daemon.api
    done = api.finish(api.submit(job_of(scan_file))["id"])
    assert done["result"]["devices"] == ["cpu"]
    assert "left with status 127" in gpus_of(api)["cuda"]["absent"]
    assert daemon.admin.get("/readyz").status == 200
    assert daemon.log.read_text().count("status 127") <= 5


def test_no_gpu_and_none_wanted(make, scan_file):
    daemon = make("--cuda", "none")
    wait_healthy(daemon, "cpu")
    assert daemon.pids_of(WORKER) == [] and gpus_of(daemon.api)["cuda"]["absent"] == "workers.cuda is none"
    refused = subprocess.run([xptychod.program("xptychod"), "--user", "--cuda", "cuda:0+cpu"], capture_output=True, text=True, check=False)
    assert refused.returncode == 78 and "'cpu' is not a GPU" in refused.stderr, refused


# ---------------------------------------------------------------------------------- in the foreground


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Path of xptycho with the emulated GPU worker beside it under its real name."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("xptycho", "xptycho-worker", "xptycho-reader"):
        shutil.copy(xptychod.program(name), folder / name)
    shutil.copy(xptychod.program(WORKER), folder / "xptycho-worker-cuda")
    return folder / "xptycho"


def run_job(installed, job, folder, visible=ALL, stdin=False):
    """(names of the devices used, stderr)"""
    text = json.dumps({**job, "output": {"path": str(folder / "out.h5"), "overwrite": True}})
    (folder / "job.json").write_text(text)
    environment = {**os.environ, "XPE_EMU_DEVICES": "3", "XPE_EMU_MIB": "256", "CUDA_VISIBLE_DEVICES": visible}
    done = subprocess.run([installed, "run", "--json", "-" if stdin else folder / "job.json"], input=text if stdin else None,
                          stdin=None if stdin else subprocess.DEVNULL, capture_output=True, text=True, env=environment, timeout=120, check=False)
    end = json.loads(done.stdout.splitlines()[-1])
    return end["result"]["devices"] if end.get("result") else end, done.stderr


def test_run_takes_the_gpus_that_it_is_shown_else_the_cpu(installed, scan_file, tmp_path):
    job = job_of(scan_file, 3)
    assert run_job(installed, job, tmp_path)[0] == ["cuda:0", "cuda:1", "cuda:2"]
    assert run_job(installed, job, tmp_path, visible="1,2", stdin=True)[0] == ["cuda:0", "cuda:1"]
    assert run_job(installed, {**job, **counted(1)}, tmp_path)[0] == ["cuda:0"]
    assert run_job(installed, job, tmp_path, visible="")[0] == ["cpu"]
    assert run_job(installed, {**job, **on("cpu")}, tmp_path)[0] == ["cpu"]
    assert run_job(installed, {**job, **on("cuda:1")}, tmp_path)[0] == ["cuda:1"]


def test_run_says_on_what(installed, scan_file, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({**job_of(scan_file, 2), "output": {"path": str(tmp_path / "out.h5")}}))
    done = subprocess.run([installed, "run", tmp_path / "job.json"], capture_output=True, text=True, check=False,
                          env={**os.environ, "CUDA_VISIBLE_DEVICES": ALL, "XPE_EMU_DEVICES": "1"})
    assert done.returncode == 0 and "devices: 1 x 'cuda:0' (cuda (emulated)" in done.stderr, done


@pytest.mark.skipif(not (pathlib.Path(os.environ.get("XPTYCHOD_BIN", "/")) / "xptycho-worker-cuda").exists(), reason="built without CUDA")
def test_the_real_worker_says_why_there_is_no_gpu(make, scan_file):
    daemon = make(program="xptycho-worker-cuda", CUDA_VISIBLE_DEVICES="")  # a GPU would be hidden
    done = daemon.api.finish(daemon.api.submit(job_of(scan_file))["id"])
    assert done["result"]["devices"] == ["cpu"]
    absent = gpus_of(daemon.api)["cuda"]["absent"]
    assert "driver" in absent or "no CUDA device" in absent, absent
    assert daemon.admin.get("/readyz").status == 200
    refused = daemon.api.post("/v1/jobs", job_of(scan_file, **on("cuda:0")))
    assert refused.status == 422 and absent in refused.json()["detail"], refused
