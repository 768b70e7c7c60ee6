"""A real worker stores the schedules of its application, and fires them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from worker_support import Service, came, service

pytestmark = pytest.mark.anyio

APP = """
import os
import pathlib

from tidegate import Context, Tidegate

app = Tidegate()


@app.schedule("every 1s", overlap="allow", args=("Ada",), queue="nightly")
@app.task
def note(ctx: Context, name: str) -> None:
    line = f"{ctx.schedule} {ctx.scheduled_for.isoformat()} {name} {ctx.queue}\\n"
    with open(pathlib.Path(os.environ["OUT"]) / "ticks", "a") as out:
        out.write(line)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scheduled.py").write_text(APP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def worker(folder: Path, *words: str) -> Iterator[Service]:
    with service(folder, "worker", "scheduled:app", *words) as running:
        yield running


def ticks(folder: Path) -> list[str]:
    path = folder / "ticks"
    return path.read_text().splitlines() if path.exists() else []


def rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    path = folder / "queue.db"
    if not path.exists():
        return []
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        has_tables = next(db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'schedule'"))[0]
        return list(db.execute(sql)) if has_tables else []


async def test_a_worker_fires_the_schedules_of_its_application(folder: Path) -> None:
    with worker(folder) as running:
        await came(lambda: len(ticks(folder)) >= 3, "the schedule fired", within=20.0)
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0

    found = [line.split() for line in ticks(folder)]
    assert {(name, word, queue) for name, _, word, queue in found} == {("scheduled:note", "Ada", "nightly")}
    moments = [moment for _, moment, _, _ in found]
    assert all(moment.endswith("+00:00") and "." not in moment for moment in moments)
    assert len(set(moments)) == len(moments)


async def test_a_scheduler_fires_what_a_worker_without_maintenance_declared(folder: Path) -> None:
    with worker(folder, "--no-maintenance"), service(folder, "scheduler"):
        await came(lambda: len(ticks(folder)) >= 2, "the schedule fired", within=20.0)


async def test_a_worker_whose_schedule_has_wrong_arguments_does_not_start(folder: Path) -> None:
    (folder / "scheduled.py").write_text(APP.replace('args=("Ada",)', 'args=("Ada", "Alan")'))
    with worker(folder) as running:
        assert running.wait(20.0) == 78
        assert "schedule scheduled:note" in running.log()
    assert rows(folder, "SELECT 1 FROM schedule") == []


async def test_a_reload_of_the_code_replaces_its_schedules(folder: Path) -> None:
    with worker(folder) as running:
        await came(lambda: len(ticks(folder)) >= 1, "the schedule fired", within=20.0)
        (folder / "scheduled.py").write_text(APP.replace('"every 1s"', '"every 2h", name="rare"'))
        running.process.send_signal(signal.SIGHUP)
        await came(
            lambda: rows(folder, "SELECT name FROM schedule WHERE removed_at IS NULL") == [("rare",)],
            "the new set is stored",
            within=20.0,
        )
        assert rows(folder, "SELECT max(generation) FROM schedule_set") == [(2,)]


ROLLING = """
import os

from tidegate import Tidegate

app = Tidegate()


@app.task
async def report() -> None: ...


if os.environ["RELEASE"] == "old":
    app.schedule("@daily", name="report")(report)
    app.schedule("@daily", name="gone")(report)
else:
    app.schedule("@hourly", name="report")(report)
"""


async def test_an_old_worker_that_restarts_during_a_rolling_deploy_changes_no_schedule(folder: Path) -> None:
    (folder / "scheduled.py").write_text(ROLLING)

    def stored() -> list[tuple[object, ...]]:
        return rows(
            folder, "SELECT name, json_extract(rule, '$.cron') FROM schedule WHERE removed_at IS NULL"
        )

    def live() -> int:
        return len(rows(folder, "SELECT 1 FROM worker WHERE retired_at IS NULL"))

    with service(folder, "worker", "scheduled:app", RELEASE="old"):
        await came(lambda: live() == 1, "the old worker is registered", within=20.0)
        assert sorted(stored()) == [("gone", "0 0 * * *"), ("report", "0 0 * * *")]
        with service(folder, "worker", "scheduled:app", RELEASE="new"):
            await came(lambda: live() == 2, "the new worker is registered", within=20.0)
            assert stored() == [("report", "0 * * * *")]
            with service(folder, "worker", "scheduled:app", RELEASE="old") as restarted:
                await came(lambda: live() == 3, "the old worker has restarted", within=20.0)
                assert stored() == [("report", "0 * * * *")]
                assert "stay those of a newer version" in restarted.log()
