"""The chat example as a visitor meets it: in a real browser, through a reload and the loss of the worker."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from chromium import Page
from tidegate import Tidegate
from tidegate.internals import core_of
from tidegate.store.rows import TaskFilter

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(420)]  # the first one may have to install Chromium

APP = Path(__file__).parents[2] / "examples" / "fastapi_chat" / "app.py"
AMBER = "Amber is not a stone but the hardened resin of trees that died millions of years ago."
ANSWER = "(document.querySelector('article.assistant:last-of-type .text')?.textContent ?? '')"
IS_OVER = "document.querySelector('article.assistant') && !document.querySelector('article.live')"


@dataclass
class Chat:
    """The example, started by its one command."""

    url: str
    queue: Tidegate
    process: asyncio.subprocess.Process

    async def pids(self) -> list[int]:
        """Return the pids of the worker: its pool processes, and the supervisor that started them."""
        store = await core_of(self.queue).opened_store()
        pools = [row.pid for row in await store.list_workers() if row.retired_at is None]
        return [*pools, *map(_parent, pools)]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@asynccontextmanager
async def a_chat(directory: Path, tokens_per_second: float) -> AsyncIterator[Chat]:
    url = f"sqlite:///{directory}/queue.db"
    env = {name: text for name, text in os.environ.items() if not name.startswith(("TIDEGATE_", "OPENAI_"))}
    env |= {
        "TIDEGATE_DATABASE_URL": url,
        "TIDEGATE_SCRATCH": str(directory / "scratch"),
        "CHAT_TOKENS_PER_SECOND": str(tokens_per_second),
    }
    with (directory / "chat.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, APP, "0", env=env, stdout=asyncio.subprocess.PIPE, stderr=log
        )
    queue = Tidegate(url)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while not (found := re.match(r"open (http://\S+)", (await process.stdout.readline()).decode())):
                assert process.returncode is None, (directory / "chat.log").read_text()
        yield Chat(found[1], queue, process)
    finally:
        await queue.aclose()
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await process.wait()


async def test_an_answer_streams_in_and_survives_a_reload_and_the_loss_of_the_worker(
    page: Page, tmp_path: Path
) -> None:
    async with a_chat(tmp_path, tokens_per_second=8) as chat:
        await page.set_size(1000, 760)
        await page.open(chat.url)
        await page.screenshot(tmp_path / "welcome.png")
        await page.run("question.focus()")
        await page.type("What is amber?\n")
        await page.until(f"{ANSWER}.split(' ').length > 4")
        assert not await page.run(f"{ANSWER}.includes('smells of pine')"), "it came whole, not in pieces"
        await page.screenshot(tmp_path / "streaming.png")

        await page.reload()
        await page.until(f"{ANSWER}.startsWith('Amber is not a stone')")

        for pid in await chat.pids():
            os.kill(pid, signal.SIGKILL)
        await page.until("document.body.innerText.includes('An earlier try was lost')", within=60)
        await page.screenshot(tmp_path / "lost.png")
        await page.until(IS_OVER, within=60)
        assert (await page.run(ANSWER)).startswith(AMBER)

        await page.set_size(1000, 760, dark=True)
        await page.type("How clever is an octopus?\n")
        await page.until(f"{ANSWER}.includes('octopus')")
        await page.screenshot(tmp_path / "dark.png")
        await page.run("document.getElementById('stop').click()")
        await page.until("document.body.innerText.includes('Stopped.')")
        await page.reload()
        assert await page.run("document.querySelectorAll('article').length") == 4
        await page.set_size(390, 760)
        await page.screenshot(tmp_path / "narrow.png")

        second, first = await (await core_of(chat.queue).opened_store()).list_tasks(TaskFilter(), limit=10)
        assert (first.state, first.run) == ("succeeded", 2)
        assert second.state == "cancelled"
    assert page.complaints == []
