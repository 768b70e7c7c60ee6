"""Fixtures that every room's tests may use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidegate import Tidegate


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tidegate]:
    from support import make_app

    monkeypatch.setenv("TIDEGATE_SCRATCH", str(tmp_path / "scratch"))
    application = make_app(tmp_path)
    yield application
    await application.aclose()
