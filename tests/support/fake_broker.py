"""A stand-in for the broker that misbehaves on purpose, for tests of clients.

It knows one job.  It can lose the answer of a submission, break the event stream after some events,
and hand out text that a terminal must not see raw.  Standard library only.
"""

import http.server
import json
import threading

JOB_ID = "01KG7Q3N6W8Y2M4T6V8X0Z1A3C"


def problem(status, name, detail, **more):
    return status, {"type": f"urn:xptychod:problem:{name}", "title": name, "status": status, "detail": detail, **more}


class FakeBroker:
    """Use as a context manager; `url` is its address.

    lose_submissions   so many POSTs are carried out and then not answered
    break_after        a stream's connection is cut after so many events, each time
    stop_after         after so many streams the broker is gone: connections are closed unanswered
    end                members of the event `end`
    pending            why the job waits, in its document; of a list each look at it gets the next one, and the stream stays
                       at its first event until the last one was looked at
    garbage            bytes sent instead of the event stream
    """

    def __init__(self, lose_submissions=0, break_after=None, stop_after=None, iterations=10, name="fake", end=None,
                 garbage=None, pending=None):
        self.garbage = garbage
        self.pending = pending if isinstance(pending, list) else [pending]
        self.told = threading.Event()  # all of them
        if not isinstance(pending, list):
            self.told.set()
        self.lose_submissions, self.break_after, self.stop_after = lose_submissions, break_after, stop_after
        self.requests = []  # (method, path, headers as a dictionary, body)
        self.streams = 0
        self.name = name
        self.events = [{"type": "state", "state": "queued", "reason": "", "detail": ""},
                       {"type": "state", "state": "running", "reason": "", "detail": ""}]
        self.events += [{"type": "iter", "stage": 0, "iter": i + 1, "data_error": 0.5 / (i + 1), "modes": 1,
                         "seconds": 0.01} for i in range(iterations)]
        self.events.append({"type": "warning", "text": "a \x1b[31mred\x1b[0m warning"})
        self.events.append({"type": "end", "state": "succeeded", "reason": "", "detail": "", "result": None,
                            **(end or {})})
        for seq, event in enumerate(self.events, 1):
            event.update(seq=seq, t="2026-01-31T09:15:02.123Z")
        broker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_GET(self):
                broker.answer(self, "GET")

            def do_POST(self):
                broker.answer(self, "POST")

            def do_DELETE(self):
                broker.answer(self, "DELETE")

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.server.shutdown()
        self.server.server_close()

    def next_pending(self):
        if len(self.pending) > 1:
            return self.pending.pop(0)
        self.told.set()
        return self.pending[0]

    def job(self):
        return {"id": JOB_ID, "rev": 1, "name": self.name, "labels": {}, "priority": 0, "state": "queued",
                "terminal": False, "reason": "", "detail": "", "user": "ada", "created": "2026-01-31T09:15:02.123Z",
                "started": None, "finished": None, "attempts": 0, "progress": None, "queue_position": 1, "pending": self.next_pending(),
                "result": None, "job": {"scan": {"path": "/scan.h5"}, "recon": {"iterations": 10}}, "links": {}}

    def answer(self, handler, method):
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length)
        self.requests.append((method, handler.path, dict(handler.headers), body))
        path = handler.path.partition("?")[0]
        if path.endswith("/events"):
            return self.stream(handler)
        if method == "POST" and path == "/v1/jobs":
            if self.lose_submissions > 0:
                self.lose_submissions -= 1
                handler.close_connection = True
                return None
            return self.reply(handler, 201, self.job())
        if path == f"/v1/jobs/{JOB_ID}":
            return self.reply(handler, 200, self.job())
        if path == "/v1/jobs":
            return self.reply(handler, 200, {"jobs": [self.job()], "next": None})
        return self.reply(handler, *problem(404, "not-found", f"no {path} here"))

    @staticmethod
    def reply(handler, status, document):
        data = json.dumps(document).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def stream(self, handler):
        self.streams += 1
        handler.close_connection = True
        if self.stop_after is not None and self.streams > self.stop_after:
            return
        last = int(handler.headers.get("Last-Event-ID") or 0)
        wanted = [e for e in self.events if e["seq"] > last]
        handler.send_response(200 if wanted else 204)
        handler.send_header("Content-Type", "application/x-ndjson")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        if self.garbage is not None:
            self.chunk(handler, self.garbage)
            return
        for event in wanted[:self.break_after]:
            self.chunk(handler, json.dumps(event).encode() + b"\n\n")
            self.told.wait(60)
        if self.break_after is None or len(wanted) <= self.break_after:
            self.chunk(handler, b"")

    @staticmethod
    def chunk(handler, data):
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        handler.wfile.flush()
