"""`tidegate db move`: what it says, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from cli_support import Workspace, succeeded
from click.testing import Result

from pgserver import Server
from postgres_support import SCHEMA, emptied
from tidegate.cli.error_report import CONFLICT, FAILED, UNREACHABLE, USAGE, WRONG_CONFIG
from tidegate.store.postgres.roles import role
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.rows import TaskFilter


class MoveCommand:
    """Runs the command for a place and a database."""

    def __init__(self, workspace: Workspace, url: str) -> None:
        self.workspace = workspace
        self.ends = (f"sqlite:///{workspace.database}", url)

    @property
    def database(self) -> str:
        """The target without its user and options, as it is told of."""
        return urlsplit(self.ends[1]).path

    def run(self, *options: str, code: int = 0) -> Result:
        return self.workspace.run("db", "move", *self.ends, *options, code=code)

    def json(self, *options: str, code: int = 0) -> dict[str, object]:
        found: dict[str, object] = self.workspace.json("db", "move", *self.ends, *options, code=code)
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
            for worker in await store.list_workers():
                await store.retire_worker(worker.id, why="stopped", is_loss=False, only_if_expired=False)

        self.workspace.ask(retire)


@pytest.fixture
def mover(workspace: Workspace, postgres: Server) -> Iterator[MoveCommand]:
    emptied(postgres)
    yield MoveCommand(workspace, postgres.url(user=role(SCHEMA, "worker")))
    emptied(postgres)


def test_a_move_prints_what_it_moved_and_again_what_was_there(mover: MoveCommand) -> None:
    dead = mover.workspace.die(2)
    mover.workspace.work(succeeded)
    waiting = mover.workspace.add(3)
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


def test_a_dry_run_prints_the_numbers_and_moves_nothing(mover: MoveCommand) -> None:
    mover.workspace.add(3)

    assert mover.run("--dry-run").stdout.split() == ["state", "tasks", "ready", "3"]
    assert mover.there() == []
    mover.workspace.add(1)


def test_finished_tasks_come_along_when_asked_for(mover: MoveCommand) -> None:
    (done,) = mover.workspace.add(1)
    mover.workspace.work(succeeded)
    mover.stop_workers()

    mover.run("--finished")

    assert mover.there() == [done]


def test_a_live_worker_is_named(mover: MoveCommand) -> None:
    mover.workspace.add(1)
    mover.workspace.work(succeeded)

    refused = mover.run(code=CONFLICT)

    assert "w1 (process 123 on host)" in refused.stderr
    assert "stop them" in refused.stderr


def test_a_sealed_file_refuses_late_users_and_names_the_new_database(mover: MoveCommand) -> None:
    mover.run()

    late = mover.workspace.run(
        "enqueue", mover.workspace.greet, "Ada", "--app", mover.workspace.app, code=WRONG_CONFIG
    )

    assert "have moved to " in late.stderr
    assert mover.database in late.stderr


def test_output_of_a_sealed_file_is_marked_as_outdated(mover: MoveCommand) -> None:
    mover.workspace.add(2)
    assert mover.workspace.json("status")["moved_to"] is None
    mover.run()

    shown = mover.workspace.run("status")
    assert "have moved to " in shown.stderr
    assert mover.database in shown.stderr
    assert "before the move" in mover.workspace.run("tasks", "ls").stderr
    doctor = mover.workspace.run("doctor", "--app", mover.workspace.app, code=FAILED)
    assert "have moved to " in doctor.stdout
    assert mover.database in mover.workspace.json("status")["moved_to"]

    mover.run("--undo", code=CONFLICT)
    assert "have moved to " in mover.workspace.run("status").stderr


def test_a_task_that_was_not_moved_is_named_with_exit_code_1(mover: MoveCommand) -> None:
    (first,) = mover.workspace.add(1, key="order-7")
    mover.run()
    other = mover.workspace.directory / "other.db"
    mover.workspace.database, mover.ends = other, (f"sqlite:///{other}", mover.ends[1])
    mover.workspace.run("db", "upgrade", "--database", mover.ends[0])
    (second,) = mover.workspace.add(1, key="order-7")

    assert mover.json(code=FAILED)["kept_back"] == [second]
    assert f"kept back: {second} (ready)" in mover.run(code=FAILED).stderr
    assert mover.there() == [first]


def test_an_undone_move_lets_work_go_on(mover: MoveCommand) -> None:
    mover.run()
    assert mover.json("--undo") == {"unsealed": True}
    assert mover.workspace.run("status").stderr == ""
    mover.workspace.add(1)
    assert "was not sealed" in mover.run("--undo").stderr


@pytest.mark.parametrize(("ends", "code", "says"), [
    (("sqlite:///a.db", "sqlite:///b.db"), WRONG_CONFIG, "to PostgreSQL only"),
    (("postgresql://h/a", "postgresql://h/a"), WRONG_CONFIG, "to PostgreSQL only"),
    (("sqlite:///a.db", "mysql://h/b"), WRONG_CONFIG, "mysql"),
    (("sqlite:///nowhere.db", "postgresql://h/a"), UNREACHABLE, "no database at nowhere.db"),
    (("sqlite:///a.db", "postgresql://h/a", "--undo", "--finished"), USAGE, "--undo excludes"),
])  # fmt: skip
def test_what_cannot_be_moved_is_refused(
    workspace: Workspace, ends: tuple[str, ...], code: int, says: str
) -> None:
    assert says in workspace.run("db", "move", *ends, code=code).stderr
