"""Requests that bend HTTP, as bytes, with the statuses that they may get; and what must never come of them.

Every case may carry a hidden request, for a path that no other request names: were it served, the daemon's log would
name that path.  `line` is whatever sends bytes and gives back all that comes: a plain socket, or one through a proxy.
"""

import random
import re
import socket

HIDDEN = "hidden"  # /v1/hidden-TAG
REFUSED = {400, 501}


def hidden_request(tag, host):
    return f"GET /v1/{HIDDEN}-{tag} HTTP/1.1\r\nHost: {host}\r\n\r\n"


class Case:
    def __init__(self, name, data, *expected, closes=None):
        """expected: sets of statuses, one an answer, in order; closes: send end of file after the bytes."""
        self.name, self.data, self.closes = name, data if isinstance(data, bytes) else data.encode("latin-1"), closes
        self.expected = expected


def _head(method, path, host, *lines):
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *lines, "", ""])


def cases(host, token, tag):
    auth, last = f"Authorization: Bearer {token}", "Connection: close"
    json_type = "Content-Type: application/json"
    inner = hidden_request(tag, host)
    good = _head("GET", "/v1/version", host, auth, last)

    def post(*lines, body=""):
        return _head("POST", "/v1/jobs", host, auth, json_type, *lines) + body

    ambiguous = [
        ("length and chunks", [f"Content-Length: {len(inner) + 5}", "Transfer-Encoding: chunked"], "0\r\n\r\n" + inner),
        ("chunks and length", ["Transfer-Encoding: chunked", "Content-Length: 4"], "5c\r\n" + inner),
        ("two lengths that differ", [f"Content-Length: {len(inner)}", "Content-Length: 0"], inner),
        ("two lengths that agree", ["Content-Length: 2", "Content-Length: 2"], "{}"),
        ("a list of lengths", ["Content-Length: 2, 2"], "{}" + inner),
        ("a list of codings", ["Transfer-Encoding: gzip, chunked"], "0\r\n\r\n" + inner),
        ("chunked twice", ["Transfer-Encoding: chunked, chunked"], "0\r\n\r\n" + inner),
        ("chunked in two lines", ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], "0\r\n\r\n" + inner),
        ("nearly chunked", ["Transfer-Encoding: xchunked", f"Content-Length: {len(inner)}"], inner),
        ("chunked after a control character", ["Transfer-Encoding: \x0bchunked", f"Content-Length: {len(inner)}"], inner),
        ("identity and length", ["Transfer-Encoding: identity", f"Content-Length: {len(inner)}"], inner),
        ("a length with a sign", ["Content-Length: +2"], "{}" + inner),
        ("a negative length", ["Content-Length: -1"], inner),
        ("a length in hex", ["Content-Length: 0x2"], "{}" + inner),
        ("a length beyond 64 bits", ["Content-Length: 99999999999999999999999"], inner),
        ("a length with a tail", ["Content-Length: 2 2"], "{}" + inner),
    ]
    for name, lines, body in ambiguous:
        yield Case(name, post(*lines, body=body), REFUSED | {411, 413})
    for name, body in (("a chunk size that is none", "zz\r\n{}\r\n0\r\n\r\n"), ("a chunk size beyond 64 bits", "1" + "0" * 20 + "\r\n"),
                       ("a negative chunk size", "-2\r\n{}\r\n0\r\n\r\n"), ("a chunk without its end", "2\r\n{}XX" + inner),
                       ("a chunk size with spaces inside", "2 2\r\n{}\r\n0\r\n\r\n" + inner)):
        yield Case(name, post("Transfer-Encoding: chunked", last, body=body), REFUSED | {413, None, 422}, closes=True)
    yield Case("chunks as they should be", post("Transfer-Encoding: chunked", last, body="2\r\n{}\r\n0\r\n\r\n"), {422})
    yield Case("a chunk extension", post("Transfer-Encoding: chunked", last, body="2;a=b\r\n{}\r\n0\r\n\r\n"), {422, 400})
    yield Case("trailers that look like headers", post("Transfer-Encoding: chunked", last, body="2\r\n{}\r\n0\r\nHost: evil.example\r\nContent-Length: 5\r\n\r\n"), {422, 400})
    yield Case("a GET with a body that is a request", _head("GET", "/v1/version", host, auth, json_type, last, f"Content-Length: {len(inner)}") + inner, {200, 400, 413})
    yield Case("space before the colon", _head("POST", "/v1/jobs", host, auth, json_type, "Transfer-Encoding : chunked", f"Content-Length: {len(inner)}") + inner, {400, 422, None, 415})
    for name, lines in (("a folded header", ["Transfer-Encoding:", " chunked", "Content-Length: 5"]), ("a header that is folded to another", ["Transfer-Encoding: identity", "\tchunked", "Content-Length: 5"]),
                        ("a length that is folded", ["Content-Length: 5", " 7"]), ("a coding inside a folded header", ["X-A: b", " Transfer-Encoding: chunked", "Content-Length: 5"])):
        yield Case(name, post(*lines, body="0\r\n\r\n" + inner), REFUSED)
    yield Case("no Host", f"GET /v1/version HTTP/1.1\r\n{auth}\r\n{last}\r\n\r\n", {400})
    yield Case("two Hosts", f"GET /v1/version HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n{auth}\r\n{last}\r\n\r\n", {400})
    yield Case("an empty Host", f"GET /v1/version HTTP/1.1\r\nHost:\r\n{auth}\r\n{last}\r\n\r\n", {400, 403})
    yield Case("a foreign Host", f"GET /v1/version HTTP/1.1\r\nHost: evil.example\r\n{auth}\r\n{last}\r\n\r\n", {403, 404, 421, None})
    yield Case("an absolute target elsewhere", f"GET http://evil.example/v1/version HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n{last}\r\n\r\n", {400, 403, 404, 421, None})
    yield Case("two credentials", _head("GET", "/v1/version", host, auth, "Authorization: Bearer x", last), {400})
    for name, path, statuses in (("a zero byte in the path", "/v1/jobs/%00", {400, 404}), ("an encoded slash", "/v1/jobs/..%2f..%2fetc", {400, 404}),
                                 ("dots", "/v1/jobs/../../etc/passwd", {400, 404}), ("encoded dots", "/v1/%2e%2e/admin/drain", {400, 404}),
                                 ("doubled slashes", "//v1//queue", {400, 404}), ("broken encoding", "/v1/jobs/%zz", {400, 404}),
                                 ("bytes that are no text", "/v1/jobs/\xff\xfe", {400, 404}), ("a fragment", "/v1/version#/v1/queue", {200, 400, 404}),
                                 ("40 KiB of path", "/v1/jobs/" + "a" * 40960, {400, 404, 414, 431, None}),
                                 ("an argument that repeats", "/v1/jobs?limit=1&limit=200", {200, 400}), ("200 arguments", "/v1/jobs?" + "&".join(f"a{i}=1" for i in range(200)), {400})):
        yield Case(name, _head("GET", path, host, auth, last), statuses)
    yield Case("2,000 headers", _head("GET", "/v1/version", host, auth, last, *(f"X-{i}: y" for i in range(2000))), {200, 400, 431, None})
    yield Case("40 KiB of one header", _head("GET", "/v1/version", host, auth, last, "X-Long: " + "a" * 40960), {400, 413, 431, None})
    yield Case("a zero byte in a header", _head("GET", "/v1/version", host, auth, last, "X-Odd: a\0b"), {200, 400, None})
    yield Case("a carriage return in a header", post("X-A: b\rTransfer-Encoding: chunked", "Content-Length: 5", body="0\r\n\r\n" + inner), {400})
    yield Case("an escape in a header", _head("GET", "/v1/version", host, auth, last, "X-Odd: a\x1b[31m"), {400})
    yield Case("a header without a colon", _head("GET", "/v1/version", host, auth, last, "Nonsense"), {400, 200, None})
    yield Case("bare line feeds", good.replace("\r\n", "\n"), {200, 400, None}, closes=True)
    # RFC 9112 2.2 lets a server take a line feed alone: then these are two requests, and anybody in front sees them so
    yield Case("a request after bare line feeds", f"GET /v1/version HTTP/1.1\r\nHost: {host}\r\n{auth}\r\nX: y\n\nGET /v1/nothing HTTP/1.1\r\nHost: {host}\r\n{last}\r\n\r\n",
               {200, 400, None}, {401, None}, closes=True)
    yield Case("bare carriage returns", good.replace("\r\n", "\r"), {400, 408, None}, closes=True)
    yield Case("empty lines first", "\r\n\r\n" + good, {200, 400})
    yield Case("a version that is none", good.replace("HTTP/1.1", "HTTP/9.9"), {400, 505, 200, None}, closes=True)
    yield Case("no version", f"GET /v1/version\r\n{auth}\r\n\r\n", {400, 505, None, 403}, closes=True)
    yield Case("garbage", bytes(range(256)) * 8, {400, None}, closes=True)
    yield Case("a TLS greeting", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), {400, None}, closes=True)
    for method in ("FOO", "get", "TRACE", "PUT", "A" * 4000):
        yield Case(f"the method {method[:8]}", _head(method, "/v1/version", host, auth, last), {400, 403, 405, 414, 431, 501, None})
    yield Case("CONNECT", f"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n{last}\r\n\r\n", {400, 403, 404, 405, 501, None})
    yield Case("an upgrade", _head("GET", "/v1/version", host, auth, "Connection: Upgrade, close", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"), {200, 400})
    yield Case("a websocket", _head("GET", "/v1/version", host, auth, "Connection: Upgrade, close", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw=="), {200, 400})
    yield Case("a body that is announced and too large", post("Content-Length: 1048577", last), {413, 400, None}, closes=True)
    yield Case("a request after the end", good + inner, {200})


def pipelined(host, token):
    """Three requests in one piece and the statuses of their answers, in order."""
    auth = f"Authorization: Bearer {token}"
    body = '{"x": 1}'
    return Case("pipelining", _head("GET", "/v1/version", host, auth)
                + _head("POST", "/v1/jobs", host, auth, "Content-Type: application/json", f"Content-Length: {len(body)}") + body
                + _head("GET", "/v1/nothing", host, auth, "Connection: close"), {200}, {422}, {404})


def half_closed(host, token):
    """The client says that it will send no more, and still gets its answer."""
    return Case("half close", _head("GET", "/v1/version", host, f"Authorization: Bearer {token}", "Connection: close"), {200}, closes=True)


def statuses_of(answer):
    """Of each answer in the bytes; 100 Continue is none."""
    found, rest = [], answer
    while rest.startswith(b"HTTP/1."):
        head, mark, rest = rest.partition(b"\r\n\r\n")
        if not mark:
            break
        status = int(head.split(None, 2)[1])
        if status != 100:
            found.append(status)
        fields = {name.strip().lower(): value.strip().lower() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])}
        if fields.get(b"transfer-encoding") == b"chunked":
            while True:
                size, _, rest = rest.partition(b"\r\n")
                length = int(size.split(b";")[0] or b"0", 16)
                rest = rest[length + 2:]
                if length == 0:
                    break
        elif status != 100:
            rest = rest[int(fields.get(b"content-length", b"0")):]
    return found


def exchange(line, data, closes=False, wait_s=20.0, idle_s=1.0):
    """Sends the bytes and gives back all that comes until the other side closes, or nothing more does for a while."""
    line.settimeout(wait_s)
    answer = b""
    try:
        line.sendall(data)
        if closes:
            line.shutdown(socket.SHUT_WR)
        while piece := line.recv(65536):
            answer += piece
            line.settimeout(idle_s)
    except (TimeoutError, ConnectionError, BrokenPipeError, OSError):
        pass  # what came, came
    finally:
        line.close()
    return answer


def judge(case, answer):
    """A sentence about what is wrong, or None."""
    found = statuses_of(answer)
    if len(found) > len(case.expected):
        return f"{case.name}: {len(found)} answers, {found}, where {len(case.expected)} are due"
    for got, wanted in zip([*found, *[None] * (len(case.expected) - len(found))], case.expected):
        if got not in wanted:
            return f"{case.name}: {got}, not one of {sorted(map(str, wanted))}; {answer[:200]!r}"
    return None


def whole_set(host, token, tag):
    return [*cases(host, token, tag), pipelined(host, token), half_closed(host, token)]


def judge_behind_a_proxy(case, answer):
    """A proxy may refuse in its own words, or mend what it passes on; it may not make two requests of one."""
    found = statuses_of(answer)
    if len(found) > len(case.expected):
        return f"{case.name}: {len(found)} answers, {found}, where {len(case.expected)} are due"
    if bad := [status for status in found if status >= 500 and status not in (501, 505)]:
        return f"{case.name}: {bad}; {answer[:200]!r}"
    return None


def mutated(host, token, tag, count, seed):
    """Random compositions of the same pieces.  What states the length of its body twice carries the hidden request, which may
    never be served; what follows any other may be a request of its own by every reading."""
    draw = random.Random(seed)
    inner = "INNER"
    lines = [f"Content-Length: {len(hidden_request(tag, host))}", "Content-Length: 0", "Content-Length: 2", "Content-Length:2\t", "content-length: 5", "Transfer-Encoding: chunked",
             "Transfer-encoding:chunked", "Transfer-Encoding: CHUNKED", "Transfer-Encoding: chunked ", "Transfer-Encoding: \tchunked", "Transfer-Encoding: identity",
             "Transfer-Encoding:\x0cchunked", "Transfer_Encoding: chunked", "X-A: b\rTransfer-Encoding: chunked", "X-A: b\nTransfer-Encoding: chunked", " Transfer-Encoding: chunked",
             "Connection: keep-alive", "Connection: Content-Length", "Expect: 100-continue", f"Host: {host}", "Host: evil.example", "Content-Type: application/json",
             "X-Forwarded-For: 1.2.3.4", "Trailer: Content-Length"]
    bodies = [inner, "0\r\n\r\n" + inner, "2\r\n{}\r\n0\r\n\r\n" + inner, "{}" + inner, "5\r\n" + inner, "0\n\n" + inner, "00\r\n\r\n" + inner, "0 \r\n\r\n" + inner, ""]
    ends = ["\r\n", "\r\n", "\r\n", "\n", "\r\r\n"]
    for number in range(count):
        chosen = [f"Host: {host}", f"Authorization: Bearer {token}", *draw.sample(lines, draw.randint(1, 4))]
        draw.shuffle(chosen)
        end = draw.choice(ends)
        head = draw.choice(["POST /v1/jobs", "GET /v1/version", "DELETE /v1/jobs/x", "PATCH /v1/jobs/x"]) + " HTTP/1." + draw.choice("110") + end
        lengths = sum(len(re.findall(r"(?:^|[\r\n])[ \t]*(?:content-length|transfer-encoding)[ \t]*:", line, re.I)) for line in chosen)
        lengths -= chosen[0].startswith(" ")  # RFC 9112 2.2 lets a server pass over such a line after the first one
        body = draw.choice(bodies)
        hidden = hidden_request(f"{tag}-{number}", host)
        body = body.replace(inner, hidden if lengths > 1 else hidden.replace(f"{HIDDEN}-{tag}-{number}", "nothing"))
        yield Case(f"mutation {number}", head + end.join(chosen) + end + end + body, closes=True)
