"""Real processes send alerts: also when one is killed in mid-send, and when every worker is dead."""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from worker_support import Service, came, service

from webhook_receiver import Received, Receiver, receiving

pytestmark = pytest.mark.anyio

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
APP = """
from tidegate import Permanent, Tidegate

app = Tidegate()


@app.task
async def ask(number: int) -> None:
    raise Permanent("the provider is broken", reason="server_error")
"""
SETTINGS = """
app = "asking:app"

[alerts]
interval = "1s"
allow_hosts = ["127.0.0.1"]

[alerts.sinks.ops]
kind = "webhook"
url = "{url}/hook"
secret = "{secret}"
timeout = 2

[alerts.rules.unserved]
for = 0

[worker]
lease = 2
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "asking.py").write_text(APP)
    (tmp_path / "tidegate.toml").write_text(SETTINGS.format(url=receiver.url, secret=SECRET))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Iterator[Service]:
    with service(folder, *words, before=("env", "-C", str(folder))) as started:
        yield started


def enqueue(folder: Path, count: int) -> None:
    code = f"import asyncio, asking\nasyncio.run(asking.ask.enqueue_many([(n,) for n in range({count})]))"
    env = {"PYTHONPATH": str(folder), "TIDEGATE_DATABASE_URL": f"sqlite:///{folder}/queue.db"}
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, check=True, timeout=60)


def live_workers(folder: Path) -> int:
    with contextlib.closing(apsw.Connection(str(folder / "queue.db"), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        # The reapers' own row is retired from the start, and may come before any worker's.
        return next(iter(db.execute("SELECT count(*) FROM worker WHERE retired_at IS NULL")))[0]


def about(receiver: Receiver, rule: str) -> list[tuple[Received, Any]]:
    found = [(request, json.loads(request.body)) for request in receiver.requests if request.path == "/hook"]
    return [(request, body) for request, body in found if body["data"]["rule"] == rule]


def require_signed(request: Received) -> None:
    signed = (
        f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    )
    digest = hmac.digest(base64.b64decode(SECRET.removeprefix("whsec_")), signed, "sha256")
    assert request.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 300


async def test_a_broken_provider_is_one_signed_webhook(folder: Path, receiver: Receiver) -> None:
    with running(folder, "worker"):
        enqueue(folder, 50)
        await came(lambda: about(receiver, "dead_surge"), "the alert arrived", within=40.0)
    ((request, body),) = about(receiver, "dead_surge")
    require_signed(request)
    assert (body["type"], body["data"]["subject"], body["data"]["severity"]) == (
        "alert.opened",
        "default",
        "critical",
    )


async def test_a_message_whose_sender_is_killed_comes_again_with_the_same_id(
    folder: Path, receiver: Receiver
) -> None:
    enqueue(folder, 3)
    may_answer = threading.Event()
    receiver.before_answer = lambda: bool(may_answer.wait(20.0)) or None
    with running(folder, "scheduler") as sender:
        await came(lambda: about(receiver, "unserved"), "the first attempt arrived", within=40.0)
        sender.process.send_signal(signal.SIGKILL)
        sender.wait()
    may_answer.set()
    with running(folder, "scheduler"):
        await came(lambda: len(about(receiver, "unserved")) == 2, "the second attempt arrived", within=40.0)
    (first, _), (second, _) = about(receiver, "unserved")
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    require_signed(second)


@pytest.mark.parametrize(
    "survivor",
    [
        pytest.param(("scheduler",), id="scheduler"),
        pytest.param(("web", "--port", "0"), id="web", marks=pytest.mark.slow),
    ],
)
async def test_with_every_worker_dead_an_alert_still_arrives(
    folder: Path, receiver: Receiver, survivor: tuple[str, ...]
) -> None:
    enqueue(folder, 1)
    with running(folder, *survivor):
        with running(folder, "worker"):
            await came(lambda: live_workers(folder), "the worker runs", within=40.0)
        await came(lambda: about(receiver, "worker_gone"), "the alert arrived", within=40.0)
    ((request, body),) = about(receiver, "worker_gone")
    require_signed(request)
    assert body["data"]["text"].startswith("[critical] pool default: ")


async def test_the_dead_man_url_is_called_while_passes_are_made(folder: Path, receiver: Receiver) -> None:
    path = folder / "tidegate.toml"
    path.write_text(path.read_text().replace("[alerts]", f'[alerts]\nping_url = "{receiver.url}/ping"'))
    enqueue(folder, 1)
    with running(folder, "scheduler"):
        pings = await came(
            lambda: [each for each in receiver.requests if each.path == "/ping"], "it was called", within=40.0
        )
    assert pings[0].method == "GET"


async def test_a_program_gets_the_alert_and_its_exit_code_is_not_lost(
    folder: Path, receiver: Receiver
) -> None:
    """Supervisors and schedulers reap orphans: they must leave this process to who waits for it."""
    path, out = folder / "tidegate.toml", folder / "pages"
    program = f"import sys; open({str(out)!r}, 'a').write(sys.stdin.read() + chr(10)); sys.exit(3)"
    sink = (
        f"\n[alerts.sinks.page]\nkind = 'command'\ncommand = {json.dumps([sys.executable, '-c', program])}\n"
    )
    path.write_text(path.read_text() + sink)
    enqueue(folder, 1)
    with running(folder, "scheduler") as scheduler:
        await came(lambda: "its exit code is 3" in scheduler.log(), "the failure was logged", within=40.0)
    assert json.loads(out.read_text().splitlines()[0])["data"]["rule"] == "unserved"
