"""Holds every answer that a test sees against protocol/openapi.json: status, type, and body by its schema."""

import json
import pathlib
import re

import jsonschema

API = json.loads((pathlib.Path(__file__).resolve().parents[2] / "protocol" / "openapi.json").read_text())
RESOLVER = jsonschema.RefResolver.from_schema(API)
PATHS = [(re.compile("".join("[^/]+" if part[:1] == "{" else re.escape(part) for part in re.split(r"(\{\w+\})", path)) + r"\Z"), path)
         for path in API["paths"]]


def _validate(schema, value, where):
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema, resolver=RESOLVER).iter_errors(value))
    assert error is None, f"{where}: {'/'.join(map(str, error.absolute_path))}: {error.message}"


def _described(response, documented):
    found = documented.get(str(response.status), documented["default"])
    while "$ref" in found:
        found = RESOLVER.resolve(found["$ref"])[1]
    return found


def check(method, path, response):
    """Raises AssertionError where the answer is not as documented.  Answers of a proxy or of the HTTP library are not ours."""
    if "X-Request-Id" not in response.headers:
        return
    plain = path.partition("?")[0]
    where = f"{method} {plain}: {response.status}"
    template = next((name for pattern, name in PATHS if pattern.match(plain)), None)
    operation = API["paths"].get(template, {}).get("get" if method == "HEAD" else method.lower())
    if method == "OPTIONS" and response.status == 204:
        return  # what a browser asks first is told in docs/protocol.md
    kind = (response.headers["Content-Type"] or "").partition(";")[0]
    if response.status >= 400 and method != "HEAD":
        assert kind == "application/problem+json", f"{where}: an error of type '{kind}'"
        _validate({"$ref": "#/components/schemas/Problem"}, response.json(), where)
        assert response.json()["status"] == response.status, where
    if operation is None:
        assert response.status in (400, 401, 403, 404, 405, 429, 503), f"{where}: not in the document at all"
        return
    assert response.status >= 400 or str(response.status) in operation["responses"], f"{where}: the status is not documented"
    if not response.body or response.status >= 400:
        return
    content = _described(response, operation["responses"]).get("content", {})
    assert kind in content, f"{where}: type '{kind}' is not documented"
    schema = content[kind].get("schema")
    if schema and kind == "application/x-ndjson":
        for line in filter(None, response.text.splitlines()):
            _validate(schema, json.loads(line), where)
    elif schema and kind.endswith("json"):
        _validate(schema, response.json(), where)


def check_event(event):
    if event.get("type") != "gap":  # a hole in the log, without a number of its own
        _validate({"$ref": "#/components/schemas/Event"}, event, "an event")
