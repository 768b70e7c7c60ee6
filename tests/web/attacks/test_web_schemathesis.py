"""Generated requests, fitting and unfitting, by the OpenAPI document: no 5xx, and answers as documented."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance
from web_support import declare, served

from support import make_app
from tidegate import Tidegate
from tidegate.internals import core_of
from tidegate.web import create_app

CHECKS = [not_a_server_error, response_schema_conformance, content_type_conformance]
EVERYDAY, SLOW = 200, 7_000
"""Spread over all operations; one without parameters runs out of new requests early."""


class ApiServer:
    """An API on a loop of its own, in a thread, with tasks in several states."""

    def __init__(self, directory: Path) -> None:
        self.app = make_app(directory)
        declare(self.app)
        self.url = ""
        self.final_ids: list[str] = []
        self.live_ids: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._serve(),), daemon=True
        )
        self._thread.start()
        assert self._ready.wait(20)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(20)
        self._loop.close()

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(served(self.app, wait_limit=0.01))
            async with self.app.worker():
                for name, args in (("add", [1]), ("fail", ["no"]), ("tokens", [3])):
                    handle = await self.app.function(f"web:{name}").enqueue(*args)
                    await core_of(self.app).task_watcher(core_of(self.app).store).final(handle.id)
                    self.final_ids.append(handle.id)
            self.live_ids = [(await self.app.function("web:add").enqueue(1)).id for _ in range(5)]
            self.url = api.url
            self._ready.set()
            await self._over.wait()
        await self.app.aclose()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path_factory.mktemp("schemathesis"))
    yield running
    running.close()


def document(directory: Path) -> dict[str, Any]:
    return create_app(Tidegate(f"sqlite:///{directory}/none.db")).openapi()


def bombard(server: ApiServer, count: int, tmp_path: Path) -> int:
    """Send `count` generated requests, spread over all operations; return how many were sent."""
    schema = schemathesis.openapi.from_dict(document(tmp_path))
    operations = [result.ok() for result in schema.get_all_operations()]
    each = -(-count // len(operations))
    dice = random.Random(7)
    sent = 0

    for operation in operations:

        @seed(7)
        @given(case=operation.as_strategy())
        @settings(max_examples=each, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        def one(case: Any) -> None:
            nonlocal sent
            if "task_id" in (case.path_parameters or {}) and dice.random() < 0.5:
                known = (
                    server.final_ids if case.path.endswith("/events") else server.final_ids + server.live_ids
                )
                case.path_parameters["task_id"] = dice.choice(known)
            response = case.call(base_url=server.url, timeout=10)
            sent += 1
            case.validate_response(response, checks=CHECKS)

        one()
    return sent


def test_generated_requests_meet_no_fault_of_the_server(server: ApiServer, tmp_path: Path) -> None:
    assert bombard(server, EVERYDAY, tmp_path) >= 150


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_thousands_of_generated_requests_meet_no_fault_of_the_server(
    server: ApiServer, tmp_path: Path
) -> None:
    assert bombard(server, SLOW, tmp_path) >= 5_000
