"""What the API's tests share: an application, an API served on a free port, tokens, and readers of streams."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import uvicorn

from tidegate import Context, Permanent, Tidegate
from tidegate.domain.access import Role, digest_of, make_token
from tidegate.internals import core_of
from tidegate.store.access import NewToken
from tidegate.web import WebSettings, create_app

NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of `http://`: to load the certificates of every authority takes each of them 30 ms."""
UNKNOWN = "01890000-0000-7000-8000-000000000000"


def declare(app: Tidegate) -> None:
    """Declare the task functions that the tests submit."""

    @app.task(name="web:add")
    async def add(a: int, b: int = 0) -> int:
        """Add two numbers.

        And nothing else.
        """
        return a + b

    @app.task(name="web:echo")
    async def echo(value: Any = None) -> Any:
        return value

    @app.task(name="web:tokens")
    async def tokens(ctx: Context, count: int, gap: float = 0.0) -> int:
        for number in range(1, count + 1):
            await ctx.emit(f"p{number}")
            ctx.progress(number, count)
            await asyncio.sleep(gap)
        return count

    @app.task(name="web:flood")
    async def flood(ctx: Context, count: int) -> None:
        for _ in range(count):
            await ctx.emit("x" * 60_000)

    @app.task(name="web:fail")
    async def fail(message: str = "no") -> None:
        raise Permanent(message)

    @app.task(name="web:nap", timeout=600)
    async def nap(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "rested"


async def make(app: Tidegate, role: Role | str, tenant: str | None = None, **changes: Any) -> str:
    """Make a token and return it."""
    token_id = secrets.token_hex(4)
    token = make_token(token_id, secrets.token_urlsafe(32))
    store = await core_of(app).opened_store()
    await store.add_token(
        NewToken(token_id, digest_of(token), f"{role} of {tenant}", Role(role), tenant, **changes)
    )
    return token


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass
class Served:
    """An API that answers at a port."""

    url: str
    app: Tidegate
    context: Any

    def client(self, token: str | None = None, **headers: str) -> httpx2.AsyncClient:
        """Return a client of the API, with a token."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx2.AsyncClient(
            base_url=self.url,
            headers=(bearer(token) if token else {}) | named,
            timeout=30,
            trust_env=False,
            verify=NO_AUTHORITIES,
        )


def direct(
    app: Tidegate, *, peer: str = "127.0.0.1", url: str = "http://localhost", **settings: Any
) -> httpx2.AsyncClient:
    """Return a client of an API, open to everybody unless told otherwise, without a server in between."""
    api = create_app(app, settings=WebSettings(**{"open_without_tokens": True} | settings))
    transport = httpx2.ASGITransport(app=api, client=(peer, 50_000), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=url)


@asynccontextmanager
async def serve(asgi: Any, port: int = 0, **options: Any) -> AsyncIterator[str]:
    """Serve an ASGI application on a port of this machine, a free one unless told; give its address."""
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(
        asgi,
        log_level="warning",
        lifespan="on",
        ws="websockets-sansio",
        timeout_graceful_shutdown=1,
        **options,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server._serve([listening]))
    try:
        async with asyncio.timeout(10):
            while not server.started:
                await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listening.close()


@asynccontextmanager
async def served(app: Tidegate, *, worker: bool = False, **settings: Any) -> AsyncIterator[Served]:
    """Serve the API of an application, open to everybody unless told otherwise, perhaps beside a worker."""
    api = create_app(app, settings=WebSettings(**{"open_without_tokens": True} | settings))
    async with serve(api) as url:
        if worker:
            async with app.worker():
                yield Served(url, app, api.state.context)
        else:
            yield Served(url, app, api.state.context)


@dataclass
class Sse:
    """One server-sent event."""

    name: str
    data: Any
    id: str = ""


async def events_of(response: httpx2.Response) -> AsyncIterator[Sse]:
    """Yield the events of a stream as they come; comments as events named `:`."""
    name, data, number = "", "", ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line.startswith(":"):
            yield Sse(":", value)
        elif field == "event":
            name = value
        elif field == "data":
            data = value
        elif field == "id":
            number = value
        elif not line and name:
            yield Sse(name, json.loads(data), number)
            name, data, number = "", "", ""


async def follow(client: httpx2.AsyncClient, task_id: str, within: float = 20.0, **headers: str) -> list[Sse]:
    """Follow a task by SSE to the end of the stream."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        asyncio.timeout(within),
        client.stream("GET", f"/api/v1/tasks/{task_id}/events", headers=named) as response,
    ):
        assert response.status_code == 200, await response.aread()
        return [event async for event in events_of(response)]
