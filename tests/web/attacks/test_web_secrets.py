"""A secret in each shape, raised by tasks, is then nowhere: not in the database, on any route, in logs or commands."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from web_support import follow, serve

from canaries import CANARIES
from pgserver import Server
from support import EVERYDAY_ON_SQLITE, FAST, all_final
from tidegate import Permanent, Pool, Tidegate, Transient
from tidegate.cli import program
from tidegate.internals import core_of
from tidegate.web import WebSettings, create_app

pytestmark = pytest.mark.anyio
TEXTS = list(CANARIES.values())
SECRETS = {part for _, secret in TEXTS for part in secret.splitlines() if len(part) >= 8}


@pytest.fixture
async def raising(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tidegate]:
    """An application whose tasks raise errors that quote secrets: its own, from a cause, and asked for."""
    monkeypatch.setenv("TIDEGATE_SCRATCH", str(tmp_path / "scratch"))
    app = Tidegate(store_url, pools=[Pool(concurrency=20, poll_interval=0.05)], timings=FAST)
    key = TEXTS[0][1]

    @app.task(name="leak:async", max_attempts=1)
    async def on_the_loop(number: int, api_key: str = key) -> None:
        raise Permanent(TEXTS[number][0])

    @app.task(name="leak:thread", max_attempts=1, runs_in="thread")
    def in_a_thread(number: int) -> None:
        try:
            raise ValueError(TEXTS[number][0])
        except ValueError as error:
            raise Transient(f"it failed: {error}") from error

    await core_of(app).store.migrate()
    yield app
    await app.aclose()


def kept(app: Tidegate, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Everything the database holds."""
    if app.url.startswith("sqlite"):
        for path in tmp_path.glob("queue.db*"):
            yield path.read_bytes().decode("latin-1")
        return
    server: Server = request.getfixturevalue("postgres")
    with server.connect() as admin:
        tables = admin.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        for schema, table in tables:
            rows = admin.execute(f'SELECT t::text FROM "{schema}"."{table}" t').fetchall()
            yield from (str(row[0]) for row in rows)


async def answered(app: Tidegate, ids: list[str]) -> AsyncIterator[str]:
    """What every route answers that reads something, and the streams."""
    api = create_app(app, settings=WebSettings(open_without_tokens=True))
    import httpx2

    async with (
        serve(api) as url,
        httpx2.AsyncClient(base_url=url, timeout=30, trust_env=False, headers={"Prefer": "wait=1"}) as client,
    ):
        paths = [path for path in api.openapi()["paths"].items() if "get" in path[1]]
        for path, _ in paths:
            if "events" in path or "stream" in path or "ws" in path.split("/"):
                continue
            for task_id in ids[:6] if "{" in path else ids[:1]:
                yield (await client.get(re.sub(r"\{[^}]+\}", task_id, path))).text
        for task_id in ids:
            yield (await client.get(f"/api/v1/tasks/{task_id}/history?traceback=true")).text
        for task_id in ids[::10]:
            yield (await client.get(f"/api/v1/tasks/{task_id}/result")).text
        for task_id in ids[:3]:
            yield repr(await follow(client, task_id))
        wrong = {"task": "leak:async", "args": {"number": "x", "api_key": [1]}}
        yield (await client.post("/api/v1/tasks", json=wrong)).text


def printed(app: Tidegate, ids: list[str]) -> Iterator[str]:
    """What commands print that read tasks, for people and as JSON."""
    for words in (
        ["dead", "ls"], ["dead", "ls", "--json"], ["tasks", "ls"], ["tasks", "ls", "--json"], ["status"],
        *(["tasks", "show", one] for one in ids[:3]), *(["dead", "show", one, "--json"] for one in ids[:3]),
    ):  # fmt: skip
        result = CliRunner().invoke(program, [*words, "--database", app.url], prog_name="tidegate")
        assert result.exit_code in (0, 3), result.output
        yield result.output


@EVERYDAY_ON_SQLITE
async def test_a_secret_in_an_error_is_stored_and_shown_nowhere(
    raising: Tidegate,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    functions = core_of(raising).functions
    ids = []
    async with raising.worker():
        for name in ("leak:async", "leak:thread"):
            handles = [await functions[name].enqueue(number) for number in range(len(TEXTS))]
            ids += [handle.id for handle in handles]
        rows: dict[str, Any] = await all_final(raising, ids)
    assert {str(row.state) for row in rows.values()} == {"dead"}
    texts_by_exit: dict[str, list[str]] = {"the log": [caplog.text]}
    texts_by_exit["the API"] = [text async for text in answered(raising, ids)]
    with contextlib.closing(_in_thread(printed, raising, ids)) as texts:
        texts_by_exit["commands"] = list(texts)
    await raising.aclose()
    texts_by_exit["the database"] = list(kept(raising, tmp_path, request))
    for where, texts in texts_by_exit.items():
        all_tenants = "\n".join(texts)
        assert "***" in all_tenants, where
        assert {secret for secret in SECRETS if secret in all_tenants} == set(), where


def _in_thread(function: Any, *args: Any) -> Iterator[str]:
    """Run a generator where no event loop runs, as commands need it."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        yield from pool.submit(lambda: list(function(*args))).result()
