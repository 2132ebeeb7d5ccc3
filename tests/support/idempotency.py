"""One key, one job (test 18): fifty clients at once, other spellings of the same document, another document, another user,
a restart and a kill in between, and clients that die before they have read their 201."""

import collections
import json
import pathlib
import random
import socket
import struct
import threading

import kill_storm
import scans
import soak
import system_daemon
import xptychod

CLIENTS = 50
ADA, BOB = 4711, 4712


def same(answers):
    """The one document of all answers, of which one made it and the others were told so."""
    documents = {answer.body for answer in answers}
    assert {answer.status for answer in answers} == {201} and len(documents) == 1, answers[:3]
    fresh = [answer for answer in answers if answer.headers.get("Idempotency-Replayed") is None]
    assert all(answer.headers["Idempotency-Replayed"] == "true" for answer in answers if answer not in fresh)
    assert len({answer.headers["Location"] for answer in answers}) == 1
    return json.loads(documents.pop()), len(fresh)


def persist(api, body, key):
    """Asked again while the first of that key is looked at still."""
    return xptychod.wait_until(lambda: (lambda a: a.status != 409 and a)(api.post("/v1/jobs", body, Idempotency_Key=key)), "the key is free")


def together(api, body, key, counts):
    gate, answers = threading.Barrier(CLIENTS), []

    def one():
        gate.wait()
        first = api.post("/v1/jobs", body, Idempotency_Key=key)
        if first.status == 409:
            counts["told to wait"] += 1
            first = persist(api, body, key)
        answers.append(first)

    threads = [threading.Thread(target=one, daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * xptychod.DEADLINE_S)
    assert len(answers) == CLIENTS, "a client hangs"
    document, fresh = same(answers)
    assert fresh == 1, f"{fresh} answers claim to have made the job"
    return document


def die(api, path, body, key, rng):
    """Sends the request, or nearly all of it, and is gone at some moment before the answer is read."""
    text = json.dumps(body).encode()
    address = api.address.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((address[0], int(address[1]))) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not a polite end
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nAuthorization: Bearer {api.token}\r\n"
                  f"Content-Type: application/json\r\nIdempotency-Key: {key}\r\nContent-Length: {len(text)}\r\n\r\n".encode())
        s.sendall(text[:len(text) - (rng.random() < 0.2)])
        if rng.random() < 0.7:  # else at once
            s.settimeout(0.06 * rng.random())
            try:
                s.recv(1)  # the answer is on its way; it is never read
            except OSError:
                pass


def run(folder, rounds, seed=1, tell=None):
    """Returns the counts."""
    path = scans.make(n=16, points=4, step=3, seed=1).write(folder / "small.h5")
    daemon = system_daemon.SystemDaemon(folder / "daemon", f"[roots]\ndata = {pathlib.Path(path).parent}\n[limits]\nrate = 0\n"
                                        "queue_user = 100000\n")
    daemon.add_token("ada", ADA)
    daemon.add_token("bob", BOB)
    rng, counts, wanted = random.Random(seed), collections.Counter(), {}
    try:
        daemon.start()
        ada, bob = daemon.api_of("ada"), daemon.api_of("bob")

        def body(key, **changes):
            return {"scan": {"path": path}, "recon": {"iterations": 2}, "labels": {"key": key}, **changes}

        # in its own class, so that it goes first after every restart, and what is asked for stays as it is
        blocker = ada.submit(body("blocker", recon={"iterations": 100000}, **{"class": "live"}))["id"]
        for number in range(rounds):
            ada.wait_for_iteration(blocker, 1)
            key = f"key-{number}"
            document = together(ada, body(key), key, counts)
            wanted[key] = document["id"]
            # the same document in other words
            spelled = json.dumps(body(key), indent=3, sort_keys=True)
            again = ada.call("POST", "/v1/jobs", spelled, {"Idempotency-Key": f'"{key}"', "Content-Type": "application/json"})
            assert again.status == 201 and again.json()["id"] == document["id"], again
            # another document, and another user
            other = ada.post("/v1/jobs", body(key, priority=1), Idempotency_Key=key)
            assert other.status == 422 and other.json()["type"].endswith(":idempotency-conflict") and other.json()["job"] == document["id"]
            bobs = bob.post("/v1/jobs", body(key, priority=1), Idempotency_Key=key)
            assert bobs.status == 201 and bobs.json()["id"] != document["id"], bobs
            counts["of another user"] += 1
            # who dies before the 201 is read finds it later
            for dead in range(5):
                lost = f"dead-{number}-{dead}"
                die(ada, "/v1/jobs" + rng.choice(("", "?probe=async")), body(lost), lost, rng)
                if dead < 4 or number % 3:
                    found = persist(ada, body(lost), lost)
                    counts["found"] += found.headers.get("Idempotency-Replayed") == "true"
                    counts["died"] += 1
                    wanted[lost] = found.json()["id"]
            # after a stop, and after a kill
            if number % 2:
                daemon.stop()
            else:
                daemon.kill()
            daemon.start()
            ada, bob = daemon.api_of("ada"), daemon.api_of("bob")
            after = persist(ada, body(key), key)
            assert after.headers["Idempotency-Replayed"] == "true", after.headers
            unchanged = {name: value for name, value in after.json().items() if name not in ("queue_position", "pending")}
            assert unchanged == {name: document[name] for name in unchanged}, (unchanged, document)
            if tell and number % 5 == 4:
                tell(f"{number + 1} rounds, {dict(counts)}")
        assert ada.post(f"/v1/jobs/{blocker}/cancel").status == 202
        for key, job in wanted.items():
            assert soak.check_log(ada.events(job, deadline_s=600))["state"] == "succeeded"
        listed = collections.Counter(job["labels"]["key"] for job in kill_storm.listed(ada))
        assert max(listed.values()) == 1, "a key made two jobs"
        assert set(wanted) <= set(listed)
        assert {job["labels"]["key"]: job["id"] for job in kill_storm.listed(ada) if job["labels"]["key"] in wanted} == wanted
        counts["keys"] = len(wanted)
        daemon.stop()
        return counts
    except BaseException:
        print(daemon.log_tail())
        raise
    finally:
        daemon.clean_up()
