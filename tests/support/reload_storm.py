"""A hundred reloads a second, good and broken configurations and token files by turns, under load (test 20): the service
answers all the time, and what counts is always one good configuration as a whole."""

import collections
import os
import re
import signal
import threading
import time

import mixed_load
import scans
import soak
import system_daemon
import xptychod

ADA, BOB = 4711, 4712


class Storm:
    def __init__(self, daemon, scan):
        self.daemon, self.scan = daemon, scan
        self.ada = daemon.api_of("ada")
        self.counts, self.wrong, self.stop, self.pairs = collections.Counter(), [], threading.Event(), collections.Counter()
        self.good_tokens = daemon.tokens.read_text()
        self.begin = daemon.configuration.read_text()
        self.threads = [threading.Thread(target=self.guarded, args=(work,), daemon=True)
                        for work in [self.limits] * 2 + [self.jobs] * 3 + [self.strangers]]

    def guarded(self, work):
        try:
            while not self.stop.is_set():
                work()
        except Exception as error:
            self.wrong.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def limits(self):
        """Two values of one file: which pairs were ever in force."""
        answer = self.ada.get("/v1/limits")
        assert answer.status == 200, answer
        self.pairs[answer.json()["queued"]["limit"], answer.json()["streams"]["limit"]] += 1

    def jobs(self):
        job = self.ada.submit({"scan": {"path": self.scan}, "recon": {"iterations": 3}})["id"]
        assert soak.check_log(self.ada.events(job))["state"] == "succeeded"
        self.counts["jobs"] += 1

    def strangers(self):
        """The token that no good file has is never let in."""
        assert self.daemon.api_of("bob").get("/v1/whoami").status == 401
        self.counts["strangers"] += 1

    # ---- what is read

    def write(self, file, text):
        beside = file.with_suffix(".new")
        beside.write_text(text)
        beside.rename(file)

    def configuration(self, pair, broken=""):
        return self.begin + f"[limits]\nqueue = {pair[0]}\n{broken}streams = {pair[1]}\n"

    def turn(self, number):
        """Two good files, a broken configuration, a broken list of tokens beside a good configuration."""
        kind = number % 4
        tokens = self.good_tokens
        if kind == 3:  # bob's line is right, the one after it is not
            tokens = self.with_bob + "bob:nobody-of-that-name:00\n"
        # The tokens first: a reload between the two files sees the old configuration and may refuse it, no more.
        for file, text in ((self.daemon.tokens, tokens), (self.daemon.configuration, (
                self.configuration((1001, 101)), self.configuration((1002, 102)), self.configuration((1003, 103), "nonsense\n"),
                self.configuration((1002, 102)))[kind])):
            self.write(file, text)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.counts["signals"] += 1


def run(folder, seconds, tell=None):
    """Returns the storm with its counts; `refused` and `taken` as the service counts them."""
    scan = scans.make(n=16, points=4, step=3, seed=1).write(folder / "small.h5")
    daemon = system_daemon.SystemDaemon(folder / "daemon", f"[roots]\ndata = {folder}\n[limits]\nrate = 0\n")
    daemon.add_token("ada", ADA)
    try:
        daemon.start()
        storm = Storm(daemon, scan)
        daemon.add_token("bob", BOB)
        storm.with_bob = daemon.tokens.read_text()
        daemon.tokens.write_text(storm.good_tokens)
        storm.write(daemon.configuration, storm.configuration((1001, 101)))
        assert daemon.admin.post("/admin/reload").status == 200
        begin = time.monotonic()
        for thread in storm.threads:
            thread.start()
        number = 0
        while time.monotonic() < begin + seconds and not storm.wrong:
            storm.turn(number)
            number += 1
            time.sleep(max(0.0, begin + number * 0.01 - time.monotonic()))
            if tell and number % 1000 == 0:
                tell(f"{number} signals, {dict(storm.counts)}, limits seen {dict(storm.pairs)}")
        storm.stop.set()
        for thread in storm.threads:
            thread.join(2 * xptychod.DEADLINE_S)
            assert not thread.is_alive(), "a client hangs"
        assert storm.wrong == [], storm.wrong[0]
        storm.seconds = time.monotonic() - begin
        check(daemon, storm)
        daemon.stop()
        return storm
    except BaseException:
        print(daemon.log_tail())
        raise
    finally:
        daemon.clean_up()


def check(daemon, storm):
    assert set(storm.pairs) == {(1001, 101), (1002, 102)}, storm.pairs
    found = mixed_load.metrics(daemon)
    for outcome in ("done", "refused"):
        storm.counts[outcome] = int(found[f'xptycho_config_reloads_total{{outcome="{outcome}"}}'])
    assert storm.counts["done"] > 0 and storm.counts["refused"] > 0
    refusals = re.findall(r"reload refused, all stays as it was: (.*)", daemon.log_text())
    lines = {str(daemon.configuration): storm.configuration((1003, 103), "nonsense\n").splitlines().index("nonsense") + 1,
             str(daemon.tokens): len(storm.with_bob.splitlines()) + 1}
    told = collections.Counter()
    for refusal in refusals:
        file, line = next((file, line) for file, line in lines.items() if file in refusal)
        assert re.search(rf"line {line}\b", refusal), (refusal, line)
        told[os.path.basename(file)] += 1
    assert len(refusals) == storm.counts["refused"] and len(told) == 2, (told, storm.counts)
    # and now the good one counts, at once
    storm.write(daemon.tokens, storm.with_bob)
    storm.write(daemon.configuration, storm.configuration((1004, 104)))
    assert daemon.admin.post("/admin/reload").status == 200
    assert daemon.api_of("bob").get("/v1/whoami").status == 200
    assert storm.ada.get("/v1/limits").json()["queued"]["limit"] == 1004
