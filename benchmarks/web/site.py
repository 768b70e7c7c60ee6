"""The sites: Tidegate's HTTP API, and bare FastAPI endpoints that make the same calls of the store.

python -m benchmarks.web.site tidegate|bare       serves at a free port and prints it

The worker of the streams imports `app` from here: its tasks emit the moments at which they emit.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from dataclasses import asdict
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from tidegate import Context, Pool, Tidegate
from tidegate.internals import core_of
from tidegate.web import Role, WebSettings, create_app

app = Tidegate(pools=[Pool(concurrency=100, poll_interval=0.1)])
TOKEN = "tg_bench_0123456789abcdefghijklmnopqrstuv"


@app.task
async def note(number: int, text: str) -> None:
    """Do nothing: only stored, never run."""


@app.task(timeout=600)
async def tick(ctx: Context, first_at: float, gap: float, until: float) -> None:
    """Emit the present time at a steady rate, without drift."""
    at = first_at
    while at < until:
        await asyncio.sleep(at - time.time())
        await ctx.emit(time.time())
        at += gap


class SubmitBody(BaseModel):
    """What a submit brings."""

    task: str
    args: dict[str, Any]


def bare() -> FastAPI:
    """Return what people write by hand: the same store calls, and no access, limits, problems or tags."""
    site = FastAPI()

    @site.post("/api/v1/tasks", status_code=202)
    async def submit(asked: SubmitBody) -> dict[str, Any]:
        handle = await app.function(asked.task).enqueue(**asked.args)
        return {"task_id": handle.id}

    @site.get("/api/v1/tasks/{task_id}")
    async def status(task_id: str) -> dict[str, Any]:
        [row] = (await (await core_of(app).opened_store()).read_tasks([task_id])).values()
        return asdict(row)

    return site


def tidegate() -> FastAPI:
    """Return the API as it is, with tokens."""
    return create_app(app, settings=WebSettings())


async def make_token() -> None:
    """Put the token that all requests carry into the store."""
    from tidegate.domain.access import digest_of
    from tidegate.store.access import NewToken

    store = await core_of(app).opened_store()
    await store.add_token(NewToken("bench", digest_of(TOKEN), "bench", Role.SUBMITTER, "bench"))
    await app.aclose()


def main(which: str) -> None:
    """Serve until SIGTERM."""
    asyncio.run(make_token())
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listening.getsockname()[1], flush=True)
    site = bare() if which == "bare" else tidegate()
    config = uvicorn.Config(site, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1])
