"""Slurm for tests: a stand-in for its commands, and the real one on this machine alone."""

import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import time

import xptychod

SHIM = r'''#!/usr/bin/python3
import json, os, pathlib, subprocess, sys, time
here = pathlib.Path(__file__).resolve().parent
name = pathlib.Path(sys.argv[0]).name
with open(here / "calls", "a") as calls:
    token = os.environ.get("XPTYCHO_TOKEN")
    calls.write(json.dumps({"name": name, "argv": sys.argv[1:], "t": time.time(), "token": token}) + "\n")
answer = here / (name + ".answer")
if answer.exists():
    status, out, err = json.loads(answer.read_text())
    sys.stdout.write(out), sys.stderr.write(err)
    sys.exit(status)
if name == "sbatch":
    options = [a for a in sys.argv[1:] if a.startswith("-")]
    script = sys.argv[-1]
    array = next((a.split("=")[1].split("%")[0] for a in options if a.startswith("--array=")), None)
    tasks = range(int(array.split("-")[1]) + 1) if array else [None]
    print("4711")
    sys.stdout.flush()
    if os.fork() == 0:
        for task in tasks:
            environment = dict(os.environ, SLURM_JOB_ID="4711")
            if task is not None:
                environment["SLURM_ARRAY_TASK_ID"] = str(task)
            with open("/dev/null", "r+") as null:
                subprocess.run(["bash", script], env=environment, stdin=null, stdout=null, stderr=null)
elif name == "squeue":
    array = [str(p.parent.name) for p in pathlib.Path(os.environ["SHIM_FOLDER"]).glob("*/job.json")] if "SHIM_FOLDER" in os.environ else []
    print("\n".join(f"4711_{i}|RUNNING" for i in array) or "4711|RUNNING")
'''


class Shim:
    """sbatch, squeue and sacct in a folder for PATH; sbatch runs its script at once."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        for name in ("sbatch", "squeue", "sacct", "scontrol"):
            (self.folder / name).write_text(SHIM)
            (self.folder / name).chmod(0o755)
        self.answers(sacct=(1, "", "Slurm accounting storage is disabled\n"))
        self.env = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}

    def answers(self, **answers):
        """squeue=(exit status, stdout, stderr) instead of what it does by itself."""
        import json
        for name, answer in answers.items():
            (self.folder / f"{name}.answer").write_text(json.dumps(answer))

    def calls(self, name):
        import json
        try:
            lines = (self.folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [c for c in map(json.loads, lines) if c["name"] == name]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Slurm:
    """munged, slurmctld and slurmd on loopback, all their files in one folder."""

    PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")

    @classmethod
    def missing(cls):
        """Why it cannot run here; "" where it can."""
        if os.geteuid() != 0:
            return "a Slurm of one's own needs root"
        path = f"/usr/sbin:{os.environ['PATH']}"
        lacking = [p for p in cls.PROGRAMS if not shutil.which(p, path=path)]
        return f"not installed: {', '.join(lacking)} (apt-get install slurm-wlm munge)" if lacking else ""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(mode=0o755)
        self.processes = []
        self.host = socket.gethostname().split(".")[0]
        self.conf = self.folder / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": f"/usr/sbin:{os.environ['PATH']}"}

    def write(self, gpus):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for name in ("spool", "state"):
            (self.folder / name).mkdir()
        self.conf.write_text(f"""\
ClusterName=xptycho
SlurmctldHost={self.host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.sock,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,bf_interval=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=5
SwitchType=switch/none
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd.log
SlurmdTimeout=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{"GresTypes=gpu" if gpus else ""}
NodeName={self.host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} {f"Gres=gpu:{gpus}" if gpus else ""} State=UNKNOWN
PartitionName=one Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=2
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
""")
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-{gpus - 1}]\n" if gpus else "")
        # GPUs of the one kind that Slurm needs: device files that are there
        for i in range(gpus):
            os.mknod(self.folder / f"gpu{i}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))

    def spawn(self, *command):
        with open(self.folder / f"{command[0]}.out", "ab") as out:
            self.processes.append(subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                   start_new_session=True))

    def start(self, gpus=2):
        self.write(gpus)
        files = [f"--{name}={self.folder}/munge.{name.split('-')[0]}" for name in ("pid-file", "log-file", "seed-file")]
        self.spawn("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                   f"--socket={self.folder}/munge.sock", *files)
        xptychod.wait_until((self.folder / "munge.sock").exists, "munged has its socket", 10)
        self.spawn("slurmctld", "-D", "-c", "-f", str(self.conf))
        self.spawn("slurmd", "-D", "-N", self.host, "-f", str(self.conf))
        xptychod.wait_until(lambda: "idle" in self.call("sinfo", "--noheader", "--format=%t"), "the node is idle", 20)
        return self

    def lose_node(self):
        """The node goes at once, with everything that ran on it; back() brings it up again."""
        slurmd = self.processes.pop()
        slurmd.kill()
        slurmd.wait()
        for pid, command, job in self.processes_of_jobs():
            if b"slurmstepd" in command or job:
                os.kill(pid, signal.SIGKILL)

    def hold_worker(self, job_id):
        """The job's worker stands still, until Slurm continues or kills it: a fast machine would be done before Slurm acts."""
        for pid, command, job in self.processes_of_jobs():
            if job == job_id and b"xptycho-worker" in command:
                os.kill(pid, signal.SIGSTOP)

    def processes_of_jobs(self):
        """(pid, command, id of the job or None) of what runs under this Slurm."""
        for entry in pathlib.Path("/proc").iterdir():
            try:
                environ = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if entry.name.isdigit() and f"SLURM_CONF={self.conf}".encode() in environ:
                job = next((v[13:].decode() for v in environ if v.startswith(b"SLURM_JOB_ID=")), None)
                yield int(entry.name), command, job

    def back(self):
        self.spawn("slurmd", "-D", "-N", self.host, "-f", str(self.conf))
        xptychod.wait_until(lambda: "idle" in self.call("sinfo", "--noheader", "--format=%t"), "the node is idle again", 60)

    def call(self, *command):
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=30)
        return done.stdout + done.stderr

    def state(self, job_id):
        return self.call("squeue", "--noheader", "--states=all", "--format=%T", "--jobs", job_id).strip()

    def stop(self):
        if len(self.processes) > 1:
            self.call("scancel", "--state=RUNNING", "--user=root")
            time.sleep(0.2)
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def logs(self):
        return "\n".join(f"== {p.name}\n" + "\n".join(p.read_text(errors="replace").splitlines()[-15:])
                         for p in sorted(self.folder.glob("*.log")) + sorted(self.folder.glob("*.out")))
