"""A web server on this machine that records what it gets, and gives the answers that a test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Received:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """What the server got, and what it answers."""

    url: str = ""
    requests: list[Received] = field(default_factory=list)
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    before_answer: Callable[[], None] = lambda: None

    async def opened(self, rule: str) -> Received | None:
        """Return the message that opens the alert of a rule, if it has come."""
        for request in list(self.requests):
            message = json.loads(request.body or b"{}")
            if message.get("type") == "alert.opened" and message["data"]["rule"] == rule:
                return request
        return None


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Serve on a free port of the loopback address while the block runs."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.requests.append(Received(self.command, self.path, headers, body))
            receiver.before_answer()
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
