"""An application whose tasks really die, and whose dead letters are written as tests."""

from __future__ import annotations

import asyncio
import importlib
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

import pytest

from tidegate.domain.failure import Failure
from tidegate.errors import TaskFailedError

TASKS = '''
import asyncio
import os
from dataclasses import dataclass
from datetime import datetime

import httpx2
import openai

from tidegate import Context, Permanent, Tidegate

app = Tidegate()
provider = app.upstream("openai")


def production(request):
    """The provider, as it was in production."""
    kind = os.environ.pop("PROVIDER")  # once: a test does not reach it
    if kind == "silent":
        raise httpx2.ReadTimeout("nothing came", request=request)
    return httpx2.Response(400, json={"error": {"message": "bad model", "type": "invalid_request_error", "code": "model"}})


def client():
    transport = provider.transport(httpx2.MockTransport(production))
    return openai.AsyncOpenAI(
        api_key="none", base_url="http://provider/v1", max_retries=0, http_client=httpx2.AsyncClient(transport=transport)
    )


class Refused(Exception):
    pass


@dataclass
class Document:
    title: str
    at: datetime
    meta: dict


@app.task(max_attempts=1)
def tag(ctx: Context, document: Document, words: int = 3) -> list[str]:
    ctx.progress(1, 2)
    if ctx.tenant != "acme":
        raise RuntimeError(f"a task of {ctx.tenant}")
    return document.meta["tags"][:words]


@app.task(max_attempts=5)
async def refuse(text: str) -> None:
    raise Refused(f"no: {text}")


@app.task(name="own.name")
async def named(text: str) -> None:
    raise Refused(f"no: {text}")


@app.task(max_attempts=1, upstream=provider)
async def ask(question: str) -> str:
    answer = await client().chat.completions.create(
        model="m", messages=[{"role": "user", "content": question}]
    )
    return answer.choices[0].message.content


@app.task(max_attempts=1, timeout=0.3)
async def wait_long(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.task(max_attempts=1, timeout=600)
async def wait_longer(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.task(max_attempts=1)
def old(number: int) -> int:
    return number
'''


NAME = "<the written test>"


class Shop:
    """An application in the workspace, whose tasks really die."""

    def __init__(self, workspace: Any) -> None:
        self.workspace = workspace
        self.name = workspace.module.replace("shop", "exported")
        workspace.module = self.name
        self.write(TASKS)

    def write(self, text: str) -> None:
        """Write the code of the application, as in another release."""
        (self.workspace.directory / f"{self.name}.py").write_text(text)
        sys.modules.pop(self.name, None)
        importlib.invalidate_caches()

    def change(self, old: str, new: str) -> None:
        """Change the code of the application."""
        assert old in TASKS
        self.write(TASKS.replace(old, new))

    def dies(self, function: str, *args: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> str:
        """Run a task in a worker until it is dead, and return its id."""
        module = importlib.import_module(self.name)

        async def run() -> str:
            try:
                async with module.app.worker():
                    task = getattr(module, function)
                    given = [value(module) if callable(value) else value for value in args]
                    handle = await task.using(max_attempts=1, **(options or {})).enqueue(*given, **kwargs)
                    with pytest.raises(TaskFailedError):
                        await handle.result(20)
                    return str(handle.id)
            finally:
                await module.app.aclose()

        return asyncio.run(run())

    def export(self, task_id: str) -> str:
        """Write the test into the directory of the application; return its source."""
        sys.modules.pop(self.name, None)
        command = ("dead", "export", task_id, "--as-test", "--out", ".", "--app", self.workspace.app)
        return (self.workspace.directory / self.workspace.run(*command).stdout.strip()).read_text()

    def run_test(self, source: str) -> str:
        """Run a written test with the present code; return why it failed, or an empty text."""
        sys.modules.pop(self.name, None)
        names: dict[str, Any] = {}
        exec(compile(source, NAME, "exec"), names)
        (test,) = (value for name, value in names.items() if name.startswith("test_"))
        try:
            test()
        except AssertionError as error:
            frames = traceback.extract_tb(error.__traceback__)
            (line,) = [frame.lineno or 0 for frame in frames if frame.filename == NAME]
            return source.splitlines()[line - 1]
        return ""


def document(**meta: Any) -> Any:
    """Return what makes a document of the application."""
    return lambda module: module.Document("T", datetime(2026, 3, 4, tzinfo=UTC), meta)


def store_dead(shop: Shop, function: str, args: str, failure: Failure, **fields: Any) -> str:
    """Store a dead letter with this failure and return its id."""
    name = f"{shop.name}:{function}"
    (task_id,) = shop.workspace.die(function=name, args=args.encode(), failure=failure, **fields)
    return str(task_id)
