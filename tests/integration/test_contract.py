"""The judge of every answer (support/contract.py) is on duty, and is no rubber stamp."""

import json

import pytest

import xptychod

contract = pytest.importorskip("contract", reason="python3-jsonschema is not installed")


class Answer(xptychod.Response):
    def __init__(self, status, body, kind="application/json"):
        super().__init__(status, {"X-Request-Id": "1", "Content-Type": kind}, json.dumps(body).encode())


PROBLEM = {"type": "urn:xptychod:problem:bad-request", "title": "t", "status": 400, "detail": "d"}


def test_the_judge_is_on_duty():
    assert xptychod.Api.contract is contract


def test_good_answers_pass():
    contract.check("GET", "/v1/jobs?limit=3", Answer(200, {"jobs": [], "next": None}))
    contract.check("GET", "/v1/jobs", Answer(400, PROBLEM, "application/problem+json"))
    contract.check("GET", "/v1/nowhere", Answer(404, {**PROBLEM, "status": 404}, "application/problem+json"))
    contract.check_event({"seq": 1, "t": "2026-01-31T09:15:02.123Z", "type": "warning", "text": "x"})


@pytest.mark.parametrize("method, path, answer", [
    ("GET", "/v1/jobs", Answer(200, {"jobs": []})),
    ("GET", "/v1/jobs", Answer(200, {"jobs": [{"id": "x"}], "next": None})),
    ("GET", "/v1/jobs", Answer(202, {"jobs": [], "next": None})),
    ("GET", "/v1/jobs", Answer(200, {"jobs": [], "next": None}, "text/html")),
    ("GET", "/v1/jobs", Answer(400, PROBLEM)),
    ("GET", "/v1/jobs", Answer(401, PROBLEM, "application/problem+json")),
    ("GET", "/v1/jobs", Answer(400, {"type": "about:blank"}, "application/problem+json")),
    ("GET", "/v1/nowhere", Answer(200, {}))])
def test_bad_answers_do_not(method, path, answer):
    with pytest.raises(AssertionError):
        contract.check(method, path, answer)


def test_bad_events_do_not():
    for event in ({"seq": 0, "t": "2026-01-31T09:15:02.123Z", "type": "iter"}, {"seq": 1, "type": "iter"},
                  {"seq": 1, "t": "2026-01-31T09:15:02.123Z", "type": "surprise"}):
        with pytest.raises(AssertionError):
            contract.check_event(event)
