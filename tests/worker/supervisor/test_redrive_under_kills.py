"""Two supervisors are killed at random while a redrive runs, alerts are sent, and retention archives."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from pathlib import Path

import pytest
from worker_support import Service, came

from support import until
from tidegate import Operation, OperationState, Tidegate
from tidegate.domain.retention import Retention
from tidegate.store.archive import archive_of
from webhook_receiver import Receiver, receiving

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]

LETTERS = 200
KILLS = 6
APP = """
import os
import pathlib

from tidegate import Permanent, Pool, Tidegate

app = Tidegate(pools=[Pool(concurrency=20, poll_interval=0.1)])


@app.task(name="ask", max_attempts=1)
async def ask(number: int) -> None:
    folder = pathlib.Path(os.environ["OUT"])
    if not (folder / "mended").exists():
        raise Permanent("the provider is broken", reason="server_error")
    with open(folder / "runs", "a") as out:
        out.write(f"{number}\\n")
"""
SETTINGS = """
app = "asking:app"

[worker]
lease = 3

[retention]
finished = "1s"
archive = "{folder}/archive"

[alerts]
interval = "1s"
allow_hosts = ["127.0.0.1"]

[alerts.sinks.ops]
kind = "webhook"
url = "{url}/hook"
secret = "whsec_a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
tasks = ["dead"]
"""


class Supervisors:
    """Two worker commands on one store."""

    def __init__(self, folder: Path, url: str) -> None:
        self._start = lambda: Service(
            folder, "worker", before=("env", "-C", str(folder)), TIDEGATE_DATABASE_URL=url
        )
        self._running = [self._start() for _ in range(2)]
        self._rng = random.Random(3)

    async def kill_one(self) -> None:
        """Kill one with its whole process, and start another."""
        await asyncio.sleep(self._rng.uniform(0.5, 3.0))
        victim = self._rng.randrange(2)
        os.kill(self._running[victim].pid, signal.SIGKILL)
        self._running[victim].close()
        self._running[victim] = self._start()

    def close(self) -> None:
        for each in self._running:
            each.close()


async def test_a_redrive_its_alerts_and_the_archive_survive_kills_of_two_supervisors(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asking.py").write_text(APP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    app = Tidegate(store_url)
    with receiving() as receiver:
        (tmp_path / "tidegate.toml").write_text(SETTINGS.format(folder=tmp_path, url=receiver.url))
        supervisors = Supervisors(tmp_path, store_url)
        try:
            ids, done = await _story(app, supervisors, tmp_path, receiver)
            left = {task.task_id for task in await app.admin.tasks.list(limit=LETTERS + 1)}
        finally:
            supervisors.close()
            await app.aclose()

    assert (done.state, done.sent, done.died) == (OperationState.DONE, LETTERS, 0)
    assert done.succeeded + done.cancelled == LETTERS, (
        "retention may remove one before its outcome is recorded"
    )
    assert {int(line) for line in (tmp_path / "runs").read_text().split()} == set(range(LETTERS))
    archive = archive_of(Retention(archive=str(tmp_path / "archive")))
    assert archive is not None
    archived = {row.task_id for row in archive.rows() if row.table == "task"}
    assert archived
    assert left | archived == ids
    bodies: dict[str, set[bytes]] = {}
    for request in receiver.requests:
        bodies.setdefault(request.headers["webhook-id"], set()).add(request.body)
    assert all(len(each) == 1 for each in bodies.values()), "a repeated message is the same"
    assert _deaths(receiver) == ids


async def _story(
    app: Tidegate, supervisors: Supervisors, folder: Path, receiver: Receiver
) -> tuple[set[str], Operation]:
    """Let all tasks die, mend the cause, and redrive them under kills; return the ids and the operation."""

    @app.task(name="ask")
    async def ask(number: int) -> None: ...

    ids = {handle.id for handle in await ask.enqueue_many([(number,) for number in range(LETTERS)])}
    while await app.admin.dead_letters.count() < LETTERS:
        await supervisors.kill_one()
    await came(lambda: _deaths(receiver) == ids, "every death was sent", within=120.0)
    (folder / "mended").touch()
    report = await app.admin.dead_letters.redrive(everything=True, by="ada")
    for _ in range(KILLS):
        await supervisors.kill_one()

    async def ended() -> Operation | None:
        found = await app.admin.operations.get(report.operation_id)
        return found if found.ended_at is not None and not found.unfinished else None

    return ids, await until(ended, within=200.0, what="the redrive ended")


def _deaths(receiver: Receiver) -> set[str]:
    """Return the ids of the tasks about whose death a message came."""
    messages = [json.loads(request.body) for request in list(receiver.requests)]
    return {each["data"]["task_id"] for each in messages if each["type"] == "task.dead"}
