"""The tutorial, done literally, with a browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pages import ROOT
from sessions import Session

if TYPE_CHECKING:
    from chromium import Page

PAGE = ROOT / "docs" / "tutorial" / "build-a-page.md"
ASK = "document.querySelector('button').click()"
TEXT = "document.querySelector('#answer').textContent"
STATE = "document.querySelector('#state').textContent"


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_the_tutorial_as_printed_shows_the_whole_answer_though_its_worker_is_killed(
    tmp_path: Path, page: Page
) -> None:
    directory = tmp_path / "tide"
    directory.mkdir()
    kill = "Click *Ask*, and kill it when half of the answer is there:"
    restart = "The page waits. Start a worker again:"

    with Session(directory) as session:
        await asyncio.to_thread(session.do, PAGE, before="## 5. Kill the worker")
        await page.open(f"http://127.0.0.1:{session.port('4180')}/")
        await page.run(ASK)
        await page.until(f"{TEXT}.includes('amber')")
        await page.reload()
        await page.until(f"{STATE} === 'succeeded'")
        first = await page.run(TEXT)

        await asyncio.to_thread(session.do, PAGE, after="## 5. Kill the worker", before=kill)
        await page.run(ASK)
        await page.until(f"{STATE} === 'running' && {TEXT}.length > 4 && {TEXT}.length < {len(first)}")
        await asyncio.to_thread(session.do, PAGE, after=kill, before=restart)
        assert await page.run(TEXT) != first
        await asyncio.to_thread(session.do, PAGE, after=restart)

        await page.until(f"{STATE} === 'succeeded'")
        assert await page.run(TEXT) == first
        assert page.complaints == []
