"""Batch jobs: the script and the commands against stand-ins of Slurm's programs, then a real Slurm of one node."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import h5py
import numpy
import pytest

import slurm
import xptychod

USAGE, REFUSED, FAILED, CANCELLED, INTERRUPTED = 2, 3, 4, 5, 130
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "slurm" / "batch.sh"


@pytest.fixture
def shim(tmp_path):
    return slurm.Shim(tmp_path / "shim")


@pytest.fixture
def xptycho(shim, tmp_path):
    """Calls with the stand-ins first on PATH, from a folder of the test."""
    return lambda *arguments, **options: xptychod.run("xptycho", *arguments, cwd=options.pop("cwd", tmp_path),
                                                      env={**shim.env, **options.pop("env", {})}, **options)


def job_file(path, scan, iterations=4, **members):
    path.write_text(json.dumps({"name": "batch", "scan": {"path": str(scan)}, "recon": {"iterations": iterations}, **members}))
    return path


# ------------------------------------------------------------------------------------- the script


def test_a_dry_run_prints_the_script_and_makes_nothing(xptycho, shim, scan_file, tmp_path):
    answer = xptycho("submit", "--slurm", "--dry-run", "--partition", "gpu", "--gres", "gpu:a100:2", "--time", "1:00:00",
                     "--sbatch-arg=--account=me", "--folder", "jobs/one", "-t", "3", scan_file)
    assert answer.returncode == 0, answer.stderr
    head, _, body = answer.stdout.partition("\n\n")
    assert body == SCRIPT.read_text()
    for line in ("#!/bin/bash", "#SBATCH --requeue", "#SBATCH --open-mode=append", "#SBATCH --signal=B:USR1@180"):
        assert line in head.splitlines()
    for option in ("--partition=gpu", "--gres=gpu:a100:2", "--time=1:00:00", "--account=me", "--cpus-per-task=3", "--parsable"):
        assert f"'{option}'" in head
    assert f"folder='{tmp_path}/jobs/one'" in head
    assert shim.calls("sbatch") == [] and not (tmp_path / "jobs").exists()


def test_devices_become_generic_resources_unless_given(xptycho, scan_file):
    def told(*options):
        return re.findall(r"--gres=([^']*)", xptycho("submit", "--slurm", "--dry-run", scan_file, *options).stdout)

    assert told() == []
    assert told("--num-devices", "2") == ["gpu:2"]
    assert told("--devices", "cuda:0,cuda:1,cuda:2") == ["gpu:3"]
    assert told("--devices", "cpu,cpu") == []
    assert told("--num-devices", "2", "--gres", "gpu:v100:1") == ["gpu:v100:1"]


EVIL = "'; touch pwned; '$(touch pwned)`touch pwned`\"\n#SBATCH --wrap=x\ntouch pwned\n"


def test_no_text_of_a_job_reaches_a_shell(xptycho, shim, scan_file, tmp_path):
    scan = tmp_path / "it's $(touch pwned) `touch pwned`.h5"
    shutil.copy(scan_file, scan)
    folder = tmp_path / "a 'folder' $(touch pwned) \"x\" ; touch pwned"
    job = job_file(tmp_path / "job.json", scan, metadata={"note": EVIL}, name=EVIL.replace("\n", " "),
                   labels={"a": EVIL.replace("\n", " ")})
    answer = xptycho("submit", "--slurm", "--folder", folder, "--wait", job)
    assert answer.returncode == 0, answer.stderr
    assert (folder / "result.h5").exists()
    assert not [p for p in tmp_path.rglob("*") if p.name == "pwned"]
    argv = shim.calls("sbatch")[0]["argv"]
    assert re.fullmatch(r"--job-name=[A-Za-z0-9._-]+", next(a for a in argv if a.startswith("--job-name")))


@pytest.mark.parametrize("words, said", [
    (("--folder", "per%cent"), "reads as its own"),
    (("--folder", "new\nline"), "reads as its own"),
    (("--partition", "a\nb"), "control character"),
    (("--sbatch-arg", "evil.sh"), "is no option"),
    (("--folder", "."), "exists"),
])
def test_what_slurm_would_misread_is_refused(xptycho, shim, scan_file, words, said):
    answer = xptycho("submit", "--slurm", *words, scan_file)
    assert answer.returncode == USAGE and said in answer.stderr
    assert shim.calls("sbatch") == []


def test_a_wrong_job_is_refused_before_it_is_queued(xptycho, shim, scan_file, tmp_path):
    answer = xptycho("submit", "--slurm", job_file(tmp_path / "j.json", scan_file, recon_=1, iterations=0))
    assert answer.returncode == REFUSED
    assert "/recon/iterations: " in answer.stderr and "/recon_: " in answer.stderr
    assert shim.calls("sbatch") == []


def test_the_script_passes_shellcheck():
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    checked = subprocess.run(["shellcheck", "-s", "bash", "-e", "SC2154,SC2317", SCRIPT], capture_output=True, text=True,
                             check=False)
    assert checked.returncode == 0, checked.stdout


# ----------------------------------------------------------------------------- submit and follow


def test_submit_prints_the_id_and_keeps_the_token_to_itself(xptycho, shim, scan_file, tmp_path):
    answer = xptycho("submit", "--slurm", "--folder", "f", scan_file, env={"XPTYCHO_TOKEN": "secret"})
    assert (answer.returncode, answer.stdout) == (0, "4711\n"), answer.stderr
    assert str(tmp_path / "f") in answer.stderr
    call = shim.calls("sbatch")[0]
    assert call["token"] is None and call["argv"][-1] == f"{tmp_path}/f/batch.sh"
    assert f"--output={tmp_path}/f/slurm.log" in call["argv"]
    assert xptycho("watch", f"{tmp_path}/f").returncode == 0
    document = json.loads((tmp_path / "f" / "job.json").read_text())
    assert document["output"] == {"path": f"{tmp_path}/f/result.h5", "overwrite": True}


def test_watch_shows_the_events_and_asks_slurm_once(xptycho, shim, slow_scan_file, tmp_path):
    answer = xptycho("submit", "--slurm", "--watch", "--json", "-n", "60", slow_scan_file)
    first, *events = map(json.loads, answer.stdout.splitlines())
    assert answer.returncode == 0, answer.stderr
    assert first["slurm_id"] == "4711" and pathlib.Path(first["folder"]).parent == tmp_path
    assert [e["iter"] for e in events if e["type"] == "iter"] == list(range(1, 61))
    assert events[-1]["type"] == "end" and events[-1]["state"] == "succeeded"
    assert len(shim.calls("squeue")) <= 1
    text = xptycho("watch", first["folder"] + "/")
    assert text.returncode == 0
    assert re.search(r"^iteration   60   data error", text.stdout, re.M)
    assert re.search(r"^# 4711 succeeded: 60 iterations in .*, result '.*/result.h5'$", text.stdout, re.M)
    assert len(shim.calls("squeue")) <= 1, "a job that has left its exit code needs no question"


def test_the_exit_code_is_that_of_the_run(xptycho, tmp_path):
    answer = xptycho("submit", "--slurm", "--watch", "/nowhere/scan.h5")
    assert answer.returncode == REFUSED
    assert "/nowhere/scan.h5" in answer.stderr


def test_an_id_that_slurm_does_not_know_is_gone(tmp_path, scan_file):
    cases = [({"squeue": (1, "", "slurm_load_jobs error: Invalid job id specified\n")}, FAILED, "does not know the job any more"),
             ({"squeue": (0, "", "")}, FAILED, "does not know the job any more"),
             ({"squeue": (0, "", ""), "sacct": (0, "99|CANCELLED by 0\n", "")}, CANCELLED, "CANCELLED"),
             ({"squeue": (0, "99|TIMEOUT\n", "")}, FAILED, "TIMEOUT")]
    running = []
    for i, (answers, code, said) in enumerate(cases):  # side by side: each waits some seconds for a late file
        shim, folder = slurm.Shim(tmp_path / f"shim{i}"), tmp_path / f"lost{i}"
        shim.answers(**answers)
        folder.mkdir()
        job_file(folder / "job.json", scan_file)
        (folder / "slurm-id").write_text("99")
        watch = subprocess.Popen([xptychod.program("xptycho"), "watch", str(folder)], env=shim.env, stderr=subprocess.PIPE, text=True)
        running.append((watch, shim, code, said))
    for watch, shim, code, said in running:
        _, told = watch.communicate(timeout=30)
        assert watch.returncode == code and said in told, told
        assert len(shim.calls("squeue")) == 1 and len(shim.calls("sacct")) <= 1


def test_a_slurm_that_does_not_answer_is_no_lost_job(xptycho, shim, tmp_path, scan_file):
    folder = tmp_path / "later"
    folder.mkdir()
    job_file(folder / "job.json", scan_file)
    (folder / "slurm-id").write_text("99")
    shim.answers(squeue=(1, "", "slurm_load_jobs error: Unable to contact slurm controller\n"))
    watch = subprocess.Popen([xptychod.program("xptycho"), "watch", str(folder)], env=shim.env, stderr=subprocess.PIPE, text=True)
    time.sleep(7)  # longer than what an ended job is waited for
    assert watch.poll() is None
    watch.send_signal(signal.SIGINT)
    _, told = watch.communicate(timeout=20)
    assert watch.returncode == INTERRUPTED
    assert "Unable to contact" in told and f"xptycho watch {folder}" in told and "scancel 99" in told


def test_what_sbatch_refuses_is_refused(xptycho, shim, scan_file, tmp_path):
    shim.answers(sbatch=(1, "", "sbatch: error: invalid partition specified: moon\n"))
    answer = xptycho("submit", "--slurm", "--folder", "f", "--partition", "moon", scan_file)
    assert answer.returncode == REFUSED and "invalid partition" in answer.stderr and answer.stdout == ""
    shim.answers(sbatch=(0, "what\n", ""))
    answer = xptycho("submit", "--slurm", "--folder", "g", scan_file)
    assert answer.returncode == 1 and "is no job id" in answer.stderr
    nothing = xptychod.run("xptycho", "submit", "--slurm", "--folder", tmp_path / "h", scan_file, env={**os.environ, "PATH": "/nowhere"})
    assert nothing.returncode == REFUSED and "sbatch cannot be run" in nothing.stderr
    assert xptycho("watch", str(tmp_path / "f")).returncode == USAGE, "without an id there is nothing to follow"


# ---------------------------------------------------------------------------------------- sweeps


@pytest.fixture
def scans(scan_file, tmp_path):
    made = [tmp_path / f"tilt_{i}.h5" for i in range(3)]
    for path in made:
        shutil.copy(scan_file, path)
    return made


def test_a_sweep_makes_one_job_a_scan_in_the_daemon(shared_daemon, scans, tmp_path):
    template = job_file(tmp_path / "t.json", "/template/scan.h5", output={"path": f"{tmp_path}/out-{{name}}-{{index}}.h5"})
    words = ("sweep", template, *scans, "--iterations", "3", "--label", "series=a", "--server", shared_daemon.runtime,
             "--idempotency-key", "once", "--wait")
    answer = xptychod.run("xptycho", *words)
    assert answer.returncode == 0, answer.stderr
    rows = [line.split() for line in answer.stdout.splitlines()[-3:]]
    assert [row[0] for row in rows] == ["0", "1", "2"] and {row[2] for row in rows} == {"succeeded"}
    jobs = [shared_daemon.api.show(row[1]) for row in rows]
    for i, (job, scan) in enumerate(zip(jobs, scans)):
        assert job["job"]["scan"]["path"] == str(scan) and job["name"] == f"batch tilt_{i}"
        assert job["labels"] == {"series": "a"} and job["result"]["iterations"] == 3
        assert job["result"]["path"] == f"{tmp_path}/out-tilt_{i}-{i}.h5"
    again = xptychod.run("xptycho", *words)
    assert [line.split()[1] for line in again.stdout.splitlines()[-3:]] == [row[1] for row in rows], "no job twice"


def test_a_sweep_goes_on_after_a_scan_that_is_refused(shared_daemon, scans, tmp_path):
    scans[1].write_text("no scan")
    template = job_file(tmp_path / "t.json", "/template/scan.h5")
    answer = xptychod.run("xptycho", "sweep", template, *scans, "--wait", "--json", "--server", shared_daemon.runtime)
    assert answer.returncode == REFUSED
    assert [row["state"] for row in json.loads(answer.stdout)] == ["succeeded", "refused", "succeeded"]


def test_scans_of_a_sweep_may_not_share_an_output(xptycho, scans, tmp_path):
    template = job_file(tmp_path / "t.json", "/x", output={"path": "/data/same.h5"})
    answer = xptycho("sweep", template, *scans, "--slurm")
    assert answer.returncode == USAGE and "{name} or {index}" in answer.stderr


def test_a_sweep_is_one_array_of_slurm(xptycho, shim, scans, tmp_path):
    template = job_file(tmp_path / "t.json", "/x")
    answer = xptycho("sweep", template, *scans, "--slurm", "--folder", "s", "--at-once", "2", "--wait",
                     env={"SHIM_FOLDER": str(tmp_path / "s")})
    assert answer.returncode == 0, answer.stderr
    assert "--array=0-2%2" in shim.calls("sbatch")[0]["argv"] and len(shim.calls("sbatch")) == 1
    assert [line.split()[1:3] for line in answer.stdout.splitlines()[-3:]] == [[f"4711_{i}", "succeeded"] for i in range(3)]
    for i, scan in enumerate(scans):
        assert json.loads((tmp_path / "s" / str(i) / "job.json").read_text())["scan"]["path"] == str(scan)
        assert (tmp_path / "s" / str(i) / "result.h5").exists()
    assert len(shim.calls("squeue")) <= 1, "one question for all"


# ------------------------------------------------------------------------------------ a real Slurm


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    missing = slurm.Slurm.missing()
    if missing:
        pytest.skip(missing)
    here = slurm.Slurm(tmp_path_factory.mktemp("slurm") / "s")
    try:
        try:
            here.start()
        except AssertionError:
            print(here.logs())
            raise
        yield here
    finally:
        here.stop()


def submit_real(real, cwd, *arguments):
    answer = xptychod.run("xptycho", "submit", "--slurm", *arguments, cwd=cwd, env=real.env)
    assert answer.returncode == 0, answer.stderr + real.logs()
    return answer.stdout.splitlines()[0]


def data_of(path):
    with h5py.File(path) as f:
        return {name: hashlib.sha256(numpy.ascontiguousarray(f[name][()]).tobytes()).hexdigest()
                for name in ("sample/object", "sample/probe", "run/data_error")}


def test_real_slurm_runs_a_job_to_its_end(real, scan_file, tmp_path):
    answer = xptychod.run("xptycho", "submit", "--slurm", "--folder", "f", "--watch", "-n", "5", scan_file, cwd=tmp_path,
                          env=real.env)
    assert answer.returncode == 0, answer.stderr + real.logs()
    assert re.search(r"^# \d+ succeeded: 5 iterations", answer.stdout, re.M)
    assert (tmp_path / "f" / "result.h5").exists()


def test_real_slurm_goes_on_with_the_same_bits_after_usr1_and_requeue(real, slow_scan_file, tmp_path):
    whole = submit_real(real, tmp_path, "--folder", "whole", "--wait", "-n", "200", "-t", "1", slow_scan_file)
    assert whole
    job_id = submit_real(real, tmp_path, "--folder", "cut", "-n", "200", "-t", "1", slow_scan_file)
    events = tmp_path / "cut" / "events.ndjson"
    xptychod.wait_until(lambda: events.exists() and events.read_text().count('"type":"iter"') > 20, "the run is on its way")
    real.call("scancel", "--signal=USR1", "--batch", job_id)
    xptychod.wait_until(lambda: "queued again" in (tmp_path / "cut" / "log.txt").read_text(), "it left and was queued again", 20)
    xptychod.wait_until(lambda: real.state(job_id) == "PENDING", "Slurm has it in its queue", 20)
    real.call("scontrol", "update", f"JobId={job_id}", "StartTime=now")  # else Slurm waits a while before a second attempt
    xptychod.wait_until(lambda: "attempt 2" in (tmp_path / "cut" / "log.txt").read_text(), "the second attempt", 30)
    answer = xptychod.run("xptycho", "watch", str(tmp_path / "cut"), "--json", env=real.env)
    assert answer.returncode == 0, answer.stderr + (tmp_path / "cut" / "log.txt").read_text()
    seen = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [e["type"] for e in seen].count("resumed") == 1 and [e["type"] for e in seen].count("end") == 1
    assert data_of(tmp_path / "cut" / "result.h5") == data_of(tmp_path / "whole" / "result.h5")


def goes_on_as_if_nothing_had_been(real, tmp_path, slow_scan_file, interrupt):
    """The same bits and one end, although interrupt(job id) took the job from its node in the middle."""
    few = ("-n", "300", "-t", "1", "--checkpoint-every-s", "0.2")
    submit_real(real, tmp_path, "--folder", "whole", "--wait", *few, slow_scan_file)
    job_id = submit_real(real, tmp_path, "--folder", "cut", *few, slow_scan_file)
    checkpoints = tmp_path / "cut" / "checkpoint"
    xptychod.wait_until(lambda: checkpoints.is_dir() and any(checkpoints.glob("checkpoint.[01]")), "a checkpoint was written")
    real.hold_worker(job_id)
    interrupt(job_id)
    wait_for_second_attempt(real, job_id, tmp_path / "cut" / "log.txt")
    answer = xptychod.run("xptycho", "watch", str(tmp_path / "cut"), "--json", env=real.env)
    assert answer.returncode == 0, answer.stderr + (tmp_path / "cut" / "log.txt").read_text() + real.logs()
    seen = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [e["type"] for e in seen].count("resumed") == 1 and [e["type"] for e in seen].count("end") == 1
    assert data_of(tmp_path / "cut" / "result.h5") == data_of(tmp_path / "whole" / "result.h5")


def start_again(real, job_id, when="now"):
    """Slurm waits some minutes before a second attempt, unless it is told."""
    xptychod.wait_until(lambda: real.state(job_id) == "PENDING", "Slurm has it in its queue", 60)
    real.call("scontrol", "update", f"JobId={job_id}", f"StartTime={when}")


def wait_for_second_attempt(real, job_id, log):
    """Slurm forgets what it was told of the start where the first attempt was not quite over; it is told again."""
    for _ in range(4):
        try:
            return xptychod.wait_until(lambda: "attempt 2" in log.read_text(), "the second attempt", 30)
        except AssertionError:
            if real.state(job_id) == "PENDING":
                real.call("scontrol", "update", f"JobId={job_id}", "StartTime=now")
    return xptychod.wait_until(lambda: "attempt 2" in log.read_text(), "the second attempt", 30)


def test_real_slurm_preempts_a_job_that_goes_on_later(real, slow_scan_file, scan_file, tmp_path):
    def preempt(job_id):
        submit_real(real, tmp_path, "--folder", "urgent", "--partition", "urgent", "--sbatch-arg=--exclusive", "-n", "3", scan_file)
        start_again(real, job_id)
        xptychod.wait_until((tmp_path / "urgent" / "result.h5").exists, "the urgent job ran")

    goes_on_as_if_nothing_had_been(real, tmp_path, slow_scan_file, preempt)


def test_real_slurm_loses_the_node_of_a_job(real, slow_scan_file, tmp_path):
    def lose(job_id):
        real.lose_node()
        xptychod.wait_until(lambda: real.state(job_id) == "PENDING", "Slurm noticed and queued the job again", 60)
        real.back()
        start_again(real, job_id, "now+15")  # not before the node was told to end the attempt that it lost

    goes_on_as_if_nothing_had_been(real, tmp_path, slow_scan_file, lose)


def test_a_job_sees_the_gpus_that_slurm_gave_it(real, slow_scan_file, tmp_path):
    """Nothing on the way to the worker touches CUDA_VISIBLE_DEVICES; that it is honoured is the worker's test."""
    job_id = submit_real(real, tmp_path, "--folder", "f", "--gres", "gpu:1", "-n", "100000", slow_scan_file)

    def given():
        for entry in pathlib.Path("/proc").iterdir():
            try:
                environ = dict(e.partition("=")[::2] for e in (entry / "environ").read_text(errors="replace").split("\0"))
                if environ.get("SLURM_JOB_ID") == job_id and b"xptycho-worker" in (entry / "cmdline").read_bytes().split(b"\0")[0]:
                    return environ
            except OSError:
                continue
        return None

    environ = xptychod.wait_until(given, "the worker runs")
    real.call("scancel", job_id)
    assert environ.get("CUDA_VISIBLE_DEVICES") in ("0", "1"), environ.get("CUDA_VISIBLE_DEVICES")


def test_real_slurm_runs_an_array_of_which_one_fails(real, scan_file, tmp_path):
    template = job_file(tmp_path / "t.json", "/x", iterations=3)
    answer = xptychod.run("xptycho", "sweep", template, scan_file, tmp_path / "gone.h5", scan_file, "--slurm", "--folder", "s", "--wait",
                          cwd=tmp_path, env=real.env)
    assert answer.returncode == REFUSED, (answer.stdout, answer.stderr)
    rows = [line.split() for line in answer.stdout.splitlines()[-3:]]
    assert [row[2] for row in rows] == ["succeeded", "refused", "succeeded"], answer.stdout
    assert "gone.h5" in answer.stderr, "and why"


def test_real_slurm_tells_a_cancelled_job(real, slow_scan_file, tmp_path):
    job_id = submit_real(real, tmp_path, "--folder", "f", "-n", "100000", slow_scan_file)
    watch = subprocess.Popen([xptychod.program("xptycho"), "watch", f"{tmp_path}/f", "--json"], env=real.env,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in watch.stdout:
        if '"iter"' in line:
            break
    real.call("scancel", job_id)
    xptychod.wait_until(lambda: real.state(job_id) == "CANCELLED", "Slurm says so", 20)
    watch.kill()  # it would ask again after 30 s only
    watch.communicate()
    assert xptychod.run("xptycho", "watch", f"{tmp_path}/f", env=real.env).returncode == CANCELLED
    assert not (tmp_path / "f" / "exit").exists()


def test_real_slurm_runs_a_sweep_as_an_array(real, scan_file, tmp_path):
    template = job_file(tmp_path / "t.json", "/x", iterations=3)
    answer = xptychod.run("xptycho", "sweep", template, scan_file, scan_file, "--slurm", "--folder", "s", "--wait", cwd=tmp_path,
                          env=real.env)
    assert answer.returncode == 0, answer.stderr + real.logs()
    assert answer.stdout.count(" succeeded ") == 2
