"""Daemons whose system calls fail on purpose (bin/faults, tests/faults/seam.c), and daemons with a scripted worker.

Standard library only; shared by tests/integration and tests/soak.
"""

import json
import os
import pathlib
import subprocess

import xptychod

FAKE_WORKER = str(pathlib.Path(__file__).resolve().parent / "fake_worker.py")


def available():
    """Why the programs of bin/faults are not there, or None."""
    folder = pathlib.Path(os.environ.get("XPTYCHOD_BIN", "")) / "faults"
    return None if (folder / "xptychod").exists() else f"'{folder}' is not built (-DXPTYCHOD_FAULTS=ON)"


class FaultyDaemon(xptychod.Daemon):
    """A daemon of the programs in bin/faults; `fault` is $XP_FAULT of the next start, for all its processes."""

    def __init__(self, folder, *arguments, fault=""):
        super().__init__(folder, "--zmq-program", xptychod.program("xptycho-zmq"), *arguments)
        self.fault = fault
        self.fired, self.counts, self.armed, self.stacks, self.trace = (
            self.folder / name for name in ("fired", "counts", "armed", "stacks", "trace"))
        self.note_stacks = False

    def command(self):
        return [xptychod.program("faults/xptychod"), *super().command()[1:]]

    def spawn(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ, XP_FAULT=self.fault, XP_FAULT_LOG=str(self.fired), XP_FAULT_COUNT=str(self.counts),
                           XP_FAULT_TRACE=str(self.trace), **{xptychod.MARK: self.mark})
        if self.note_stacks:
            environment["XP_FAULT_STACKS"] = str(self.stacks)
        with open(self.log, "ab") as log:
            return subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def arm(self, on=True):
        """Rules with when={armed} count from now on, or no longer."""
        if on:
            self.armed.touch()
        else:
            self.armed.unlink(missing_ok=True)

    def faults(self):
        """What has happened: [(rule, program, pid, path)]."""
        if not self.fired.exists():
            return []
        return [tuple(line.split(" ", 3)) for line in self.fired.read_text().splitlines()]

    def callers(self):
        """Of the calls that failed, innermost first."""
        return self.trace.read_text() if self.trace.exists() else "no call failed"

    def ended(self, deadline_s=xptychod.DEADLINE_S):
        """The broker's own exit status, once all its processes are gone."""
        status = self.process.wait(deadline_s)
        xptychod.wait_until(lambda: not xptychod.processes_marked(self.mark), "no process of the daemon is left", 20)
        return status


class ScriptedDaemon(xptychod.Daemon):
    """A daemon with tests/support/fake_worker.py; `script` is what its workers do, see there."""

    def __init__(self, folder, script, *arguments):
        super().__init__(folder, "--worker-program", FAKE_WORKER, *arguments)
        self.script = self.folder / "script.json"
        self.write(script)

    def write(self, script):
        """For workers that start from now on, counted from the first again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        pathlib.Path(f"{self.script}.started").unlink(missing_ok=True)
        temporary = self.script.with_suffix(".tmp")
        temporary.write_text(json.dumps(script))
        temporary.rename(self.script)

    def spawn(self):
        environment = dict(os.environ, XP_FAKE_WORKER=str(self.script), **{xptychod.MARK: self.mark})
        with open(self.log, "ab") as log:
            return subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def started(self):
        """pids of the workers that were started."""
        path = pathlib.Path(f"{self.script}.started")
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def process_of(self, name):
        """The fake worker is a script, whose process is called after its interpreter."""
        if name == "xptycho-worker":
            return next((pid for pid in reversed(self.started()) if xptychod.alive(pid)), None)
        return super().process_of(name)
