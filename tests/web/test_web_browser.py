"""`tidegate.js` in a real browser, on a page that allows nothing but its own site's scripts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from web_support import make, serve

from chromium import Page
from tidegate import Tidegate
from tidegate.domain.access import Role
from tidegate.internals import core_of
from tidegate.store.rows import TaskFilter
from tidegate.web import WebSettings, create_app

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(420)]  # the first one may have to install Chromium

POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'"

TOOLS = """
(async () => {
  const { Tidegate } = await import("/queue/api/v1/tidegate.js");
  window.queue = new Tidegate(OPTIONS);
  window.told = [];
  window.refused = null;
  window.followed = async (id, options) => {
    try {
      for await (const event of queue.follow(id, options)) told.push(event);
    } catch (error) {
      refused = { name: error.name, kind: error.kind, status: error.status };
    }
  };
  window.failure = (promise) => promise.then(() => null, ({ name, kind, status }) => ({ name, kind, status }));
})()
"""

Meddle = Callable[[ASGIApp, Scope, Receive, Send], Awaitable[None]]


async def straight(api: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await api(scope, receive, send)


@asynccontextmanager
async def a_site(app: Tidegate, *, port: int = 0, meddle: Meddle = straight) -> AsyncIterator[str]:
    """Serve a site with one empty page, and the API mounted below it behind something that may meddle."""
    site = FastAPI()
    api = create_app(app, settings=WebSettings(open_without_tokens=True))

    @site.get("/")
    async def empty() -> Response:
        icon = '<!doctype html><link rel="icon" href="data:,"><title>empty</title>'
        return HTMLResponse(icon, headers={"Content-Security-Policy": f"{POLICY}; img-src data:"})

    async def between(scope: Scope, receive: Receive, send: Send) -> None:
        await meddle(api, scope, receive, send)

    site.mount("/queue", between)
    async with serve(site, port) as url:
        yield url


async def opened(page: Page, url: str, options: str = "{}") -> None:
    await page.open(url)
    await page.run(TOOLS.replace("OPTIONS", options))


async def submitted(page: Page, task: str, args: Any, options: str = "{}") -> dict[str, Any]:
    return await page.run(f"queue.submit({json.dumps(task)}, {json.dumps(args)}, {options})")


async def chunks(page: Page) -> list[str]:
    return await page.run("told.filter((event) => event.type === 'chunk').map((event) => event.data)")


async def count(app: Tidegate) -> int:
    return len(await (await core_of(app).opened_store()).list_tasks(TaskFilter(), limit=100))


def encode_events(last: int) -> list[str]:
    return [f"p{number}" for number in range(1, last + 1)]


ENDED = "told.at(-1)?.type === 'end'"


async def test_a_page_submits_with_its_token_follows_to_the_end_and_reads_the_result(
    app: Tidegate, page: Page
) -> None:
    token = await make(app, Role.SUBMITTER, "acme")
    async with a_site(app) as url, app.worker():
        await opened(page, url, f"{{ token: async () => {token!r} }}")
        task = await submitted(page, "web:tokens", {"count": 12, "gap": 0.02})
        await page.run(f"followed({task['task_id']!r})")
        assert await chunks(page) == encode_events(12)
        assert await page.run("told.at(-1)") == {"type": "end", "state": "succeeded", "run": 1}
        assert (await page.run(f"queue.result({task['task_id']!r})"))["result"] == 12
        row = (await (await core_of(app).opened_store()).read_tasks([task["task_id"]]))[task["task_id"]]
        assert row.tenant == "acme"
    assert page.complaints == []


async def test_a_reload_follows_the_same_task_instead_of_submitting_again(app: Tidegate, page: Page) -> None:
    async with a_site(app) as url, app.worker():
        await opened(page, url)
        args = {"count": 30, "gap": 0.05}
        task = await submitted(page, "web:tokens", args)
        await page.run(f"void followed({task['task_id']!r})")
        await page.until("told.length > 3")

        await page.reload()
        await page.run(TOOLS.replace("OPTIONS", "{}"))
        assert (await page.run("queue.resume('web:tokens')"))["task_id"] == task["task_id"]
        again = await submitted(page, "web:tokens", args)
        assert (again["task_id"], again["created"]) == (task["task_id"], False)
        await page.run(f"followed({task['task_id']!r})")
        assert await chunks(page) == encode_events(30)

        assert await page.run("queue.resume('web:tokens')") is None, "the key of a final task is given up"
        assert await count(app) == 1
        other = await submitted(page, "web:tokens", {"count": 1})
        assert other["created"]
        await page.run("queue.forget('web:tokens')")
        assert (await submitted(page, "web:tokens", {"count": 1}))["task_id"] != other["task_id"]


async def test_a_submit_whose_answer_is_lost_is_sent_again_and_stored_once(app: Tidegate, page: Page) -> None:
    lost: list[str] = []

    async def lose(api: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST" or lost:
            await api(scope, receive, send)
            return

        async def swallow(message: Message) -> None:
            lost.append(message["type"])

        await api(scope, receive, swallow)
        await Response(status_code=502)(scope, receive, send)

    async with a_site(app, meddle=lose) as url:
        await opened(page, url)
        assert (await submitted(page, "web:add", [1, 2]))["created"] is False
    assert lost
    assert await count(app) == 1


async def test_following_survives_a_restart_of_the_server_with_every_chunk_once(
    app: Tidegate, page: Page
) -> None:
    async with app.worker():
        async with a_site(app) as url:
            await opened(page, url)
            task = await submitted(page, "web:tokens", {"count": 40, "gap": 0.05})
            await page.run(f"void followed({task['task_id']!r})")
            await page.until("told.length > 5")
        before = len(await chunks(page))
        async with a_site(app, port=int(url.rpartition(":")[2])):
            await page.until(ENDED)
    assert 0 < before < 40
    assert await chunks(page) == encode_events(40)


async def test_a_task_is_polled_if_a_proxy_buffers_streams_and_its_chunks_come_with_its_end(
    app: Tidegate, page: Page
) -> None:
    asked: list[str] = []

    async def hold_up(api: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].rpartition("/")[2]
        asked.append(path)
        if path == "events" and asked.count("events") <= 2:
            await HTMLResponse("please wait")(scope, receive, send)
        else:
            await api(scope, receive, send)

    async with a_site(app, meddle=hold_up) as url, app.worker():
        await opened(page, url)
        task = await submitted(page, "web:tokens", {"count": 60, "gap": 0.05})
        await page.run(f"void followed({task['task_id']!r})")
        await page.until("told.some((event) => event.type === 'progress')")
        assert await chunks(page) == []
        await page.until(ENDED)
    assert asked.count("events") == 3
    assert asked.count(task["task_id"]) >= 2
    assert await chunks(page) == encode_events(60)


async def test_a_cancelled_task_ends_and_refusals_give_a_reason(app: Tidegate, page: Page) -> None:
    async with a_site(app) as url, app.worker():
        await opened(page, url)
        task = await submitted(page, "web:nap", [500], "{ place: 'bed', labels: { a: 'b' } }")
        await page.run(f"void followed({task['task_id']!r})")
        await page.until("told.some((event) => event.state === 'running')")
        assert await page.run(f"queue.cancel({task['task_id']!r}, {{ why: 'enough' }})") == "requested"
        await page.until(ENDED)
        assert await page.run("told.at(-1).state") == "cancelled"

        await page.run("followed('01890000-0000-7000-8000-000000000000')")
        assert await page.run("refused") == {"name": "TidegateError", "kind": "not-found", "status": 404}
        refused = await page.run("failure(queue.submit('web:nobody'))")
        assert (refused["kind"], refused["status"]) == ("unknown-function", 422)
        assert await page.run("queue.resume('web:nobody')") is None
        await make(app, Role.ADMIN)
        await opened(page, url, "{ token: 'tg_wrong_wrong' }")
        assert (await page.run("failure(queue.submit('web:add', [1]))"))["kind"] == "token"


async def test_leaving_a_stream_closes_it_and_an_abort_is_thrown(app: Tidegate, page: Page) -> None:
    async with a_site(app) as url, app.worker():
        await opened(page, url)
        task = await submitted(page, "web:nap", [500])
        await page.run("window.stop = new AbortController()")
        await page.run(f"void followed({task['task_id']!r}, {{ signal: stop.signal }})")
        await page.until("told.length > 0")
        await page.run("stop.abort()")
        await page.until("refused?.name === 'AbortError'")
        await page.run(
            f"(async () => {{ for await (const _ of queue.follow({task['task_id']!r})) break; }})()"
        )
        await page.run(f"queue.cancel({task['task_id']!r})")
    assert page.complaints == []


async def test_a_page_of_another_site_that_is_named_uses_the_module_with_its_token(
    app: Tidegate, page: Page
) -> None:
    elsewhere = FastAPI()

    @elsewhere.get("/")
    async def empty() -> Response:
        return HTMLResponse('<!doctype html><link rel="icon" href="data:,"><title>elsewhere</title>')

    token = await make(app, Role.SUBMITTER, "acme")
    async with serve(elsewhere) as origin, app.worker():
        api = create_app(app, settings=WebSettings(origins=(origin,)))
        async with serve(api) as url:
            await page.open(origin)
            tools = TOOLS.replace("/queue", url).replace("OPTIONS", f"{{ token: {token!r} }}")
            await page.run(tools)
            task = await submitted(page, "web:tokens", [5])
            await page.run(f"followed({task['task_id']!r})")
            assert await chunks(page) == encode_events(5)
    assert page.complaints == []
