"""The ZeroMQ bridge killed again and again, also while it has a request (test 26): no job is lost, none made twice."""

import collections
import random
import time

import zmq

import kill_storm
import xptychod
import zmq_client


def run(daemon, scan, folder, kills, seed=1, tell=None):
    """A bridge of the test's own each time: the daemon waits longer and longer before it starts its own again."""
    rng, context, counts = random.Random(seed), zmq.Context(), collections.Counter()
    api = daemon.api

    def job(**changes):
        return {"name": "over zmq", "scan": {"path": scan}, "recon": {"iterations": 3}, **changes}

    def persist(ask):
        """409: the first of that key is looked at still."""
        status, body = xptychod.wait_until(lambda: (lambda answer: answer[0] != 409 and answer)(ask()), "the key is free")
        assert status == 201, (status, body)
        return body["id"]

    try:
        runs = api.submit(job(recon=[{"iterations": 100000, "report_every": 200}] * 32, **{"class": "live"}))["id"]
        api.wait_for_iteration(runs, 1)
        jobs, seen = [], 0
        for number in range(kills):
            with zmq_client.Bridge(daemon, folder, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*") as bridge:
                dealer = zmq_client.Dealer(context, daemon, bridge.ready["zmq_router"])
                if number:  # what was on its way when the last one died: whoever sent it asks again, under its key
                    before = len(jobs)
                    jobs.append(persist(lambda: dealer.ask("submit", body=job(), idempotency_key=f"cut-{number - 1}")))
                    assert len(set(jobs)) == before + 1
                jobs.append(persist(lambda: dealer.ask("submit", body=job(), idempotency_key=f"kill-{number}")))
                # progress comes through every bridge, from where the log is by now
                progress = zmq_client.subscribed(context, daemon, runs, address=bridge.ready["zmq_pub"])
                assert zmq_client.proof(progress, runs)["state"] == "running"
                number_of, kind = 0, b""  # a new bridge tells the log from its beginning
                while number_of <= seen or kind != b"iter":
                    _, number_of, kind, _ = progress.recv_multipart()
                    number_of = int(number_of)
                seen = number_of
                for _ in range(1 + rng.randrange(3)):
                    dealer.send("show", id=runs)
                dealer.send("submit", body=job(), idempotency_key=f"cut-{number}")
                time.sleep(0.05 * rng.random() * (rng.random() < 0.7))
                bridge.process.kill()
                bridge.process.wait()
                bridge.ready_file.unlink()
                progress.close()
                dealer.socket.close()
                counts["kills"] += 1
            if tell and number % 20 == 19:
                tell(f"{number + 1} kills, {len(jobs)} jobs acknowledged")
        assert api.show(runs)["state"] == "running" and api.show(runs)["attempts"] == 0
        api.post(f"/v1/jobs/{runs}/cancel")
        last = xptychod.wait_until(lambda: (lambda r: r.status != 409 and r)(
            api.post("/v1/jobs", job(), Idempotency_Key=f"cut-{kills - 1}")), "the key is free").json()["id"]
        assert {api.finish(one)["state"] for one in jobs + [last]} == {"succeeded"}
        listed = [one["id"] for one in kill_storm.listed(api)]
        assert set(listed) == {*jobs, runs, last} and len(set(listed)) == len(listed), "none twice, none lost"
        counts["jobs"] = len(listed)
        return counts
    finally:
        context.destroy(linger=0)
