"""What tests of the command line share: a directory with an application and a real database."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import program
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.ids import IdMaker
from tidegate.domain.outcome import Charge, Dead, Outcome, Retrying, Succeeded
from tidegate.domain.spec import Priority
from tidegate.store.connect import open_store
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimedTask, ClaimRequest, CrashPolicy, NewTask
from tidegate.store.worker_rows import NewWorker

T = TypeVar("T")

APP = """
from dataclasses import dataclass
from datetime import datetime
from tidegate import Tidegate

app = Tidegate()

@dataclass
class Doc:
    title: str
    pages: int = 1

@app.task
async def greet(name: str, times: int = 1) -> str:
    return " ".join([f"hello {name}"] * times)

@app.task(queue="docs", priority="bulk")
async def read(doc: Doc, at: datetime | None = None) -> int:
    return doc.pages

@app.task
def big(number: int) -> int:
    return number
"""

_names = itertools.count()


class Workspace:
    """A directory with an application, `MODULE:app`, and a database."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.module = f"cli_shop_{next(_names)}"
        (directory / f"{self.module}.py").write_text(APP)
        self.database = directory / ".tidegate" / "tidegate.db"
        self._make_id = IdMaker(lambda: time.time_ns() // 1_000_000, lambda bits: next(_names) % (1 << bits))

    @property
    def app(self) -> str:
        return f"{self.module}:app"

    @property
    def greet(self) -> str:
        """The full name of a task function of the application."""
        return f"{self.module}:greet"

    def run(self, *args: str, code: int = 0, **env: str) -> Result:
        """Run a command here and check its exit code."""
        result = CliRunner().invoke(program, args, env=env, prog_name="tidegate")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, f"exit code {result.exit_code}\n{result.output}"
        return result

    def json(self, *args: str, code: int = 0) -> Any:
        """Run a command with --json and return its one object."""
        return json.loads(self.run(*args, "--json", code=code).stdout, parse_constant=pytest.fail)

    def lines(self, *args: str, code: int = 0) -> list[Any]:
        """Run a command with --json and return its objects, one a line."""
        text = self.run(*args, "--json", code=code).stdout
        return [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]

    def ask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        """Ask the store itself."""

        async def answer() -> T:
            store = open_store(f"sqlite:///{self.database}")
            await store.open()
            try:
                return await question(store)
            finally:
                await store.close()

        return asyncio.run(answer())

    def add(
        self, count: int = 1, *, function: str | None = None, queue: str = "default", **fields: Any
    ) -> list[str]:
        """Store tasks and return their ids."""
        values = {"args": b'{"a":[],"k":{"name":"Ada"}}', "codec_tag": "json/1", "priority": Priority.NORMAL}
        values |= {"function": function or self.greet, "queue": queue} | fields
        tasks = [NewTask(id=self._make_id(), **values) for _ in range(count)]
        self.ask(lambda store: store.enqueue(tasks))
        return [task.id for task in tasks]

    def work(
        self,
        end: Callable[[ClaimedTask], Outcome | None],
        *,
        slots: int = 10_000,
        functions: Sequence[str] = (),
    ) -> str:
        """Claim all ready tasks as a worker would and end them so; None leaves one running. Return its id."""
        worker_id = self._make_id()
        terms = {name: CrashPolicy() for name in functions or self.ask(_functions_of_ready)}

        async def claim_and_finish(store: Store) -> None:
            await store.add_worker(
                NewWorker(
                    worker_id, "w1", "default", "host", 123, ("*",), slots, lease_seconds=30.0, version="0"
                )
            )
            claim = await store.claim(ClaimRequest(worker_id, slots, ("*",), terms))
            outcomes = [outcome for task in claim.tasks if (outcome := end(task)) is not None]
            await store.finish(outcomes)

        self.ask(claim_and_finish)
        return worker_id

    def die(
        self,
        ids_or_count: int = 1,
        *,
        function: str | None = None,
        failure: Failure | None = None,
        **fields: Any,
    ) -> list[str]:
        """Store tasks and end them as dead letters; return their ids."""
        ids = self.add(ids_or_count, function=function, **fields)
        self.work(lambda task: dead(task, failure))
        return ids

    def declare(self, *functions: str) -> None:
        """Keep a manifest with these functions, as a worker does when it starts."""
        self.ask(lambda store: store.save_manifest("an:app", {"functions": {name: {} for name in functions}}))


async def _functions_of_ready(store: Store) -> list[str]:
    from tidegate.domain.states import State
    from tidegate.store.rows import TaskFilter

    rows = await store.list_tasks(TaskFilter(states=(State.READY,)), limit=1000)
    return sorted({row.function for row in rows})


def dead(task: ClaimedTask, failure: Failure | None = None) -> Outcome:
    failure = failure or Failure(
        Verdict.PERMANENT, Reason.CONTENT_POLICY, "not allowed", "shop.Refused", status=400
    )
    return Dead(task.fence, failure, Charge.ATTEMPT, f"permanent: {failure.reason}")


def retrying(task: ClaimedTask) -> Outcome:
    failure = Failure(
        Verdict.TRANSIENT, Reason.SERVER_ERROR, "try later", "shop.Busy", status=503, traceback="Traceback…"
    )
    return Retrying(task.fence, failure, 600.0, Charge.ATTEMPT, 0.0, why="backoff 600 s after attempt 1 of 3")


def succeeded(task: ClaimedTask) -> Succeeded:
    return Succeeded(task.fence, b'"hello Ada"', "json/1")
