"""Only workers' scratch directories are removed, not other files beside them."""

from __future__ import annotations

import os
import stat
import time
import uuid
from pathlib import Path

import pytest

from tidegate import Context, Tidegate
from tidegate.worker import scratch

pytestmark = pytest.mark.anyio


def test_other_directories_in_the_scratch_base_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_SCRATCH", str(tmp_path))
    old = time.time() - 10 * 86_400
    mine, living, precious = str(uuid.uuid4()), str(uuid.uuid4()), "photographs"
    for name in (mine, living, precious):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
        os.utime(tmp_path / name, (old, old))
    assert scratch.remove_stale({living}, 86_400.0, time.time()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living, precious])


async def test_only_the_user_can_access_a_scratch_directory(app: Tidegate) -> None:
    @app.task(name="t")
    async def body(ctx: Context) -> int:
        return stat.S_IMODE(ctx.scratch().stat().st_mode)

    before = os.umask(0)
    try:
        async with app.worker():
            assert await (await body.enqueue()).result(5) == 0o700
    finally:
        os.umask(before)
