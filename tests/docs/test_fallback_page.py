"""The page on falling back to another provider: what its functions do apart from the tests that it shows."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pages import ROOT, blocks

from tidegate.testing import Kit

PAGE = ROOT / "docs" / "how-to" / "fall-back-to-another-provider.md"

pytestmark = pytest.mark.anyio


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The page's modules, imported from an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    before = dict(sys.modules)
    for block in blocks(PAGE, "python"):
        (tmp_path / str(block.file)).write_text(block.text)
    yield {name: importlib.import_module(name) for name in ("app", "strict", "pages_of_site")}
    for name in set(sys.modules) - set(before):
        if Path(str(getattr(sys.modules[name], "__file__", ""))).parent == tmp_path:
            del sys.modules[name]


async def test_content_that_both_providers_refuse_is_dead_with_that_reason(files: dict[str, Any]) -> None:
    refused = {"error": {"message": "no", "code": "content_policy_violation"}}
    async with Kit(files["app"].app) as kit:
        kit.upstream("openai").answers(refused, status=400)
        kit.upstream("openrouter").answers(refused, status=400)
        task = await files["strict"].describe.enqueue("a")
        await kit.drain()
        status = await task.status()
        assert (status.state, status.reason) == ("dead", "content_policy")


async def test_content_that_one_provider_refuses_goes_to_the_other(files: dict[str, Any]) -> None:
    async with Kit(files["app"].app) as kit:
        kit.upstream("openai").answers({"error": {"code": "content_policy_violation"}}, status=400)
        kit.upstream("openrouter").replies("from the second")
        task = await files["strict"].describe.enqueue("a")
        await kit.drain()
        assert await task.result(0) == "from the second"


async def test_a_caller_whose_task_misses_its_deadline_gets_the_result_of_the_other_function(
    files: dict[str, Any],
) -> None:
    async with Kit(files["app"].app) as kit:
        kit.upstream("openai").rate_limits(retry_after=600)
        waiting = asyncio.create_task(files["pages_of_site"].summary("a text"))
        while not waiting.done():
            await kit.advance(seconds=10)
            await asyncio.sleep(0)  # the caller enqueues
        assert waiting.result() == "a text"
