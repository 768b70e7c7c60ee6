"""A task whose process is killed is followed by its `on_final` task, once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from worker_support import came, notes, service

from support import APPS
from tidegate import Tidegate
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tidegate]:
    monkeypatch.syspath_prepend(str(APPS))
    import finals

    finals.app.function("finals:waits")
    client = Tidegate(f"sqlite:///{tmp_path}/queue.db")
    for name in ("report", "killed", "kills_its_pool", "waits"):
        spec = finals.app.function(f"finals:{name}").spec
        core_of(client).register(finals.app.function(f"finals:{name}").function, spec)
    yield client
    await client.aclose()


async def ends(directory: Path, count: int) -> list[Any]:
    await came(lambda: len(notes(directory, "ends")) >= count, f"{count} ends are noted", within=40.0)
    return notes(directory, "ends")


@pytest.mark.parametrize("name", ["killed", "kills_its_pool"])
async def test_a_killed_process_ends_its_task_with_one_hook(app: Tidegate, tmp_path: Path, name: str) -> None:
    handle = await app.function(f"finals:{name}").enqueue()
    with service(tmp_path, "worker", "finals:app"):
        assert await ends(tmp_path, 1) == [[handle.id, "dead", "crash"]]
        other = await app.function("finals:waits").enqueue()
        assert await ends(tmp_path, 2) == [[handle.id, "dead", "crash"], [other.id, "succeeded", ""]]


async def test_a_command_that_cancels_without_the_application_stores_the_hook(
    app: Tidegate, tmp_path: Path
) -> None:
    handle = await app.function("finals:waits").using(delay="1h").enqueue()
    subprocess.run(
        [sys.executable, "-m", "tidegate.cli", "tasks", "cancel", handle.id],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "TIDEGATE_DATABASE_URL": f"sqlite:///{tmp_path}/queue.db"},
        check=True,
        timeout=60,
    )
    with service(tmp_path, "worker", "finals:app"):
        assert await ends(tmp_path, 1) == [[handle.id, "cancelled", "cancelled"]]
