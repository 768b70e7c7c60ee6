"""The recipes of `docs/how-to/make-a-task-safe-to-repeat.md` keep a second run from repeating an effect."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from pages import ROOT, blocks

from tidegate import Context

FILES = {
    block.file: block.text
    for block in blocks(ROOT / "docs" / "how-to" / "make-a-task-safe-to-repeat.md", "python")
    if block.file
}


class Service(ThreadingHTTPServer):
    """Charges customers, honouring keys, and keeps tickets that can be searched."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.charges: dict[str, str] = {}
        self.tickets: list[dict[str, str]] = []
        self.posts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        wanted = parse_qs(urlsplit(self.path).query)["external_id"][0]
        self._answer([ticket for ticket in self.server.tickets if ticket["external_id"] == wanted])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posts += 1
        if self.path == "/charges":
            key = self.headers["Idempotency-Key"]
            self._answer({"id": self.server.charges.setdefault(key, f"charge-{self.server.posts}")})
        else:
            ticket = {"id": f"ticket-{self.server.posts}", **body}
            self.server.tickets.append(ticket)
            self._answer(ticket)

    def _answer(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Service]:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with Service() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PAYMENTS_URL", server.url)
        monkeypatch.setenv("TICKETS_URL", server.url)
        yield server
        server.shutdown()
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


@pytest.mark.anyio
async def test_a_second_run_with_the_same_key_is_charged_once(service: Service) -> None:
    from payments import app, charge, client  # type: ignore[import-not-found]

    first = await charge(Context.detached(), "ada", 1200)
    second = await charge(Context.detached(), "ada", 1200)

    assert (first, service.posts, len(service.charges)) == (second, 2, 1)
    await client.aclose()
    await app.aclose()


@pytest.mark.anyio
async def test_a_second_run_finds_the_ticket_of_the_first(service: Service) -> None:
    from tickets import app, client, open_ticket  # type: ignore[import-not-found]

    first = await open_ticket(Context.detached(), "The tide is late")
    second = await open_ticket(Context.detached(), "The tide is late")

    assert (first, service.posts) == (second, 1)
    await client.aclose()
    await app.aclose()


@pytest.mark.anyio
async def test_two_runs_that_enqueue_with_the_task_id_make_one_task(service: Service) -> None:
    from mail import app, report  # type: ignore[import-not-found]

    await report(Context.detached(), "ada@example.com")
    await report(Context.detached(), "ada@example.com")

    [queue] = await app.admin.queues.list()
    assert queue.ready + queue.blocked == 1
    await app.aclose()
