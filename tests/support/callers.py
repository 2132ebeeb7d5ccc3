"""Every call of openapi.json by every kind of caller, and what each may get: reliability test 17."""

import http.client
import math
import random
import statistics
import time

import xptychod

ADA, BOB = 4711, 4712
TOKENS = (("ada", ADA), ("reads", ADA, "read"), ("bob", BOB), ("operator", 0, "read,submit,admin"), ("old", ADA, "submit", "2020-01-01"))


def operations(document, job):
    """(method, path, whether it names a job) of everything below /v1."""
    for path, item in document["paths"].items():
        for method in sorted(set(item) & {"get", "post", "put", "patch", "delete"}):
            if path.startswith("/v1/"):
                follow = "?follow=0" if path.endswith("/events") else ""
                yield method.upper(), path.replace("{id}", job).replace("{session}", "0" * 26) + follow, "{id}" in path


class Caller:
    def __init__(self, name, api, may, **headers):
        """may(method, path, of_job) -> the statuses that are due; None = any but 401, 403 and 5xx."""
        self.name, self.api, self.may = name, api, may
        self.headers = {key.replace("_", "-"): value for key, value in headers.items()}


def cookie_of(daemon, name, scope, **headers):
    """The cookie of a session that the token opens."""
    answer = daemon.api_of(name).post("/v1/session", {"scope": scope}, **headers)
    assert answer.status == 201, answer
    return answer.headers["Set-Cookie"].partition(";")[0]


def callers(daemon):
    """daemon: a SystemDaemon with TOKENS, all of whose jobs are ada's."""
    url = daemon.ready["http"]
    nobody, own = xptychod.Api(url), url  # the origin of the daemon's own pages

    def never(status):
        return lambda method, path, of_job: {status}

    def reader(method, path, of_job):
        return None if method == "GET" or path.startswith("/v1/session") else {403}

    def reader_by_cookie(method, path, of_job):
        return {403} if method == "POST" and path in ("/v1/session", "/v1/session/link") else reader(method, path, of_job)

    def other(method, path, of_job):
        return {404} if of_job else None

    def anything(method, path, of_job):
        return None

    def changes_refused(method, path, of_job):
        return None if method == "GET" else {403}

    yield Caller("no token", nobody, never(401))
    yield Caller("a token that is not known", xptychod.Api(url, "0" * 64), never(401))
    yield Caller("an expired token", daemon.api_of("old"), never(401))
    yield Caller("an empty token", nobody, never(401), Authorization="Bearer ")
    yield Caller("the hash instead of the token", nobody, never(401), Authorization="Bearer " + daemon.tokens.read_text().splitlines()[0].split(":")[2])
    yield Caller("another scheme", nobody, never(401), Authorization=f"Basic {daemon.secrets['ada']}")
    yield Caller("the header of a proxy", nobody, never(401), X_Remote_User="ada", X_Forwarded_User="ada", Remote_User="ada", Forwarded="for=127.0.0.1;by=ada")
    yield Caller("a cookie that is not known", nobody, never(401), Cookie=f"xptycho-{url.rpartition(':')[2]}={'0' * 64}", Origin=own)
    yield Caller("a page of another site", daemon.api_of("ada"), never(403), Origin="http://evil.example")
    yield Caller("a sandboxed page", daemon.api_of("ada"), never(403), Origin="null")
    yield Caller("another name of this machine", daemon.api_of("ada"), never(403), Host="evil.example")
    yield Caller("a token that reads", daemon.api_of("reads"), reader)
    yield Caller("another user", daemon.api_of("bob"), other)
    yield Caller("a session that reads", nobody, reader_by_cookie, Cookie=cookie_of(daemon, "ada", "read"), Origin=own)
    yield Caller("a session without an origin", nobody, changes_refused, Cookie=cookie_of(daemon, "bob", "submit"))
    yield Caller("a session from another site", nobody, never(403), Cookie=cookie_of(daemon, "ada", "submit"), Origin="http://evil.example")
    yield Caller("a session fetched across sites", nobody, never(403), Cookie=cookie_of(daemon, "ada", "submit"), Origin=own, Sec_Fetch_Site="cross-site")
    yield Caller("the unix socket", daemon.unix, lambda method, path, of_job: {404} if of_job else None)


def check_matrix(daemon, job):
    """How many calls were made; raises with every one that was answered wrongly."""
    document = daemon.api_of("ada").get("/openapi.json").json()
    wrong, count = [], 0
    for caller in callers(daemon):
        for method, path, of_job in operations(document, job):
            if caller.name.startswith("a session") and path == "/v1/session" and method == "DELETE":
                continue  # it would end the session of the other calls
            body = {} if method in ("POST", "PUT", "PATCH") else None
            answer = caller.api.call(method, path, body, dict(caller.headers))
            due = caller.may(method, path, of_job)
            good = answer.status in due if due else answer.status not in (401, 403) and answer.status < 500
            if answer.status == 401 and not answer.headers["WWW-Authenticate"]:
                good = False
            if answer.status == 404 and of_job and "job" in answer.json():
                good = False
            if not good:
                wrong.append(f"{caller.name}: {method} {path}: {answer.status}, due {due}")
            count += 1
    assert not wrong, "\n".join(wrong)
    assert daemon.api_of("ada").show(job)["state"] == "succeeded", "nothing was changed on the way"
    return count


# ------------------------------------------------------------------------------------------ time


def welch(a, b):
    """Student's t of two samples of unequal variance."""
    return (statistics.fmean(a) - statistics.fmean(b)) / math.sqrt(statistics.variance(a) / len(a) + statistics.variance(b) / len(b))


def time_tokens(url, tokens, rounds, seed=17):
    """{name: seconds of each answer}: every token once in each round, in random order, over one connection."""
    host = url.removeprefix("http://")
    line, draw = http.client.HTTPConnection(host, timeout=60), random.Random(seed)
    times, names = {name: [] for name in tokens}, list(tokens)
    for _ in range(rounds):
        draw.shuffle(names)
        for name in names:
            begin = time.perf_counter()
            line.request("GET", "/v1/version", headers={"Authorization": f"Bearer {tokens[name]}"})
            line.getresponse().read()
            times[name].append(time.perf_counter() - begin)
    line.close()
    return times


def compare(a, b):
    """(t of the faster 80 % of both, difference of their medians in microseconds): what others do on the machine is in the rest."""
    limit = sorted(a + b)[int(0.8 * (len(a) + len(b)))]
    a, b = [x for x in a if x <= limit], [x for x in b if x <= limit]
    return welch(a, b), (statistics.median(a) - statistics.median(b)) * 1e6
