"""`tidegate db move`: what it says, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from cli_support import Place, succeeded
from click.testing import Result

from pgserver import Server
from postgres_support import SCHEMA, emptied
from tidegate.cli.failure import CONFLICT, FAILED, UNREACHABLE, USAGE, WRONG_CONFIG
from tidegate.store.postgres.roles import role
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.rows import TaskFilter


class Mover:
    """Runs the command for a place and a database."""

    def __init__(self, place: Place, url: str) -> None:
        self.place = place
        self.ends = (f"sqlite:///{place.database}", url)

    @property
    def database(self) -> str:
        """The target without its user and options, as it is told of."""
        return urlsplit(self.ends[1]).path

    def run(self, *options: str, code: int = 0) -> Result:
        return self.place.run("db", "move", *self.ends, *options, code=code)

    def json(self, *options: str, code: int = 0) -> dict[str, object]:
        found: dict[str, object] = self.place.json("db", "move", *self.ends, *options, code=code)
        return found

    def there(self) -> list[str]:
        """Return the ids of the tasks at the target, rising."""

        async def ids() -> list[str]:
            store = PostgresStore(self.ends[1])
            try:
                return sorted(row.id for row in await store.list_tasks(TaskFilter()))
            finally:
                await store.close()

        return asyncio.run(ids())

    def stop_workers(self) -> None:
        """Retire all workers of the source."""

        async def retire(store) -> None:
            for worker in await store.workers():
                await store.retire_worker(worker.id, why="stopped", loss=False, only_if_expired=False)

        self.place.ask(retire)


@pytest.fixture
def mover(place: Place, postgres: Server) -> Iterator[Mover]:
    emptied(postgres)
    yield Mover(place, postgres.url(user=role(SCHEMA, "worker")))
    emptied(postgres)


def test_a_move_prints_what_it_moved_and_again_what_was_there(mover: Mover) -> None:
    dead = mover.place.die(2)
    mover.place.work(succeeded)
    waiting = mover.place.add(3)
    mover.stop_workers()

    done = mover.run()

    assert [line.split() for line in done.stdout.splitlines()] == [
        ["state", "tasks", "moved", "there", "kept", "back"],
        ["dead", "2", "2", "0", "0"],
        ["ready", "3", "3", "0", "0"],
    ]
    assert "is sealed" in done.stderr
    assert mover.there() == sorted(dead + waiting)
    assert mover.json()["states"] == [
        {"state": "dead", "tasks": 2, "moved": 0, "there": 2, "kept_back": 0},
        {"state": "ready", "tasks": 3, "moved": 0, "there": 3, "kept_back": 0},
    ]


def test_a_dry_run_prints_the_numbers_and_moves_nothing(mover: Mover) -> None:
    mover.place.add(3)

    assert mover.run("--dry-run").stdout.split() == ["state", "tasks", "ready", "3"]
    assert mover.there() == []
    mover.place.add(1)


def test_finished_tasks_come_along_when_asked_for(mover: Mover) -> None:
    (done,) = mover.place.add(1)
    mover.place.work(succeeded)
    mover.stop_workers()

    mover.run("--finished")

    assert mover.there() == [done]


def test_a_live_worker_is_named(mover: Mover) -> None:
    mover.place.add(1)
    mover.place.work(succeeded)

    refused = mover.run(code=CONFLICT)

    assert "w1 (process 123 on host)" in refused.stderr
    assert "stop them" in refused.stderr


def test_a_sealed_file_tells_who_comes_late_that_its_tasks_have_moved(mover: Mover) -> None:
    mover.run()

    late = mover.place.run("enqueue", mover.place.greet, "Ada", "--app", mover.place.app, code=WRONG_CONFIG)

    assert "have moved to " in late.stderr
    assert mover.database in late.stderr


def test_what_a_sealed_file_shows_is_told_to_be_from_before(mover: Mover) -> None:
    mover.place.add(2)
    assert mover.place.json("status")["moved_to"] is None
    mover.run()

    shown = mover.place.run("status")
    assert "have moved to " in shown.stderr
    assert mover.database in shown.stderr
    assert "from before" in mover.place.run("tasks", "ls").stderr
    doctor = mover.place.run("doctor", "--app", mover.place.app, code=FAILED)
    assert "have moved to " in doctor.stdout
    assert mover.database in mover.place.json("status")["moved_to"]

    mover.run("--undo", code=CONFLICT)
    assert "have moved to " in mover.place.run("status").stderr


def test_a_task_that_was_kept_back_is_named_with_exit_code_1(mover: Mover) -> None:
    (first,) = mover.place.add(1, key="order-7")
    mover.run()
    other = mover.place.directory / "other.db"
    mover.place.database, mover.ends = other, (f"sqlite:///{other}", mover.ends[1])
    mover.place.run("db", "upgrade", "--database", mover.ends[0])
    (second,) = mover.place.add(1, key="order-7")

    assert mover.json(code=FAILED)["kept_back"] == [second]
    assert f"kept back: {second} (ready)" in mover.run(code=FAILED).stderr
    assert mover.there() == [first]


def test_an_undone_move_lets_work_go_on(mover: Mover) -> None:
    mover.run()
    assert mover.json("--undo") == {"unsealed": True}
    assert mover.place.run("status").stderr == ""
    mover.place.add(1)
    assert "was not sealed" in mover.run("--undo").stderr


@pytest.mark.parametrize(("ends", "code", "says"), [
    (("sqlite:///a.db", "sqlite:///b.db"), WRONG_CONFIG, "to PostgreSQL only"),
    (("postgresql://h/a", "postgresql://h/a"), WRONG_CONFIG, "to PostgreSQL only"),
    (("sqlite:///a.db", "mysql://h/b"), WRONG_CONFIG, "mysql"),
    (("sqlite:///nowhere.db", "postgresql://h/a"), UNREACHABLE, "no database at nowhere.db"),
    (("sqlite:///a.db", "postgresql://h/a", "--undo", "--finished"), USAGE, "--undo goes alone"),
])  # fmt: skip
def test_what_cannot_be_moved_is_refused(place: Place, ends: tuple[str, ...], code: int, says: str) -> None:
    assert says in place.run("db", "move", *ends, code=code).stderr
