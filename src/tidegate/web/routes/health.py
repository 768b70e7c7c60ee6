"""Routes that need no token: the start page, the health probes and the pages about problems."""

from __future__ import annotations

import asyncio
import logging

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from tidegate.errors import StoreUnavailableError, TidegateError
from tidegate.web.access_middleware import known_hosts, require_host
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.problems import NO_STORE, PAGES, PROBLEM_TYPES, Problem
from tidegate.web.protected_routes import READERS, ProtectedRouter, ResponseSpec
from tidegate.web.schemas import HealthOut

log = logging.getLogger("tidegate.web")

READY_SECONDS = 5.0

_START_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Tidegate</title>
<h1>Tidegate</h1>
<p>This is the HTTP API of a task queue. Its routes are below <code>api/v1</code> and need a token:
<code>Authorization: Bearer TOKEN</code>.
An operator creates tokens with <code>tidegate tokens create</code>.</p>
<ul>
<li><a href="api/v1/openapi.json">api/v1/openapi.json</a>: every route (needs a token)</li>
<li><a href="api/v1/tidegate.js">api/v1/tidegate.js</a>: the JavaScript module for web pages</li>
<li><a href="livez">livez</a>, <a href="readyz">readyz</a>: whether the server is alive and ready</li>
</ul>
"""


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""

    @api.public_route("/", {200: ResponseSpec("The page", str)}, media_type="text/html")
    async def start_page(request: Request) -> Response:
        """Return a page that describes this API."""
        return HTMLResponse(_START_PAGE, headers=NO_STORE)

    @api.public_route("/livez", {200: ResponseSpec("The event loop runs", HealthOut)})
    async def livez(request: Request) -> Response:
        """Report that this process is alive. The store is not checked: a restart would not bring it back."""
        return json_response(HealthOut("alive"))

    @api.public_route(
        "/readyz", {200: ResponseSpec("The store answers and has this version's schema", HealthOut)}
    )
    async def readyz(request: Request) -> Response:
        """Report whether requests can be served."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                store = await context.store()
                await store.open()
                await store.now()
        except TimeoutError:
            detail = f"the store did not answer within {READY_SECONDS:g} s"
            raise Problem("not-ready", detail, code=StoreUnavailableError.code) from None
        except TidegateError as error:
            log.warning("not ready: %s", error)
            detail = error.message if await _may_see_detail(context, request) else ""
            raise Problem("not-ready", detail, code=error.code) from error
        return json_response(HealthOut("ready"))

    @api.public_route(PAGES + "{slug}", {200: ResponseSpec("The page", str)}, media_type="text/plain")
    async def problem_page(request: Request, slug: str) -> Response:
        """Describe a type of problem and how to fix it."""
        kind = PROBLEM_TYPES.get(slug)
        if kind is None:
            raise Problem("not-found", "there is no problem of this type")
        return PlainTextResponse(f"{kind.status} {kind.title}\n\n{kind.fix}\n", headers=NO_STORE)


async def _may_see_detail(context: ApiContext, request: Request) -> bool:
    """Return whether a request may see the store's error, which names files and hosts of the installation.

    While the store cannot be reached, only recently used tokens are known. Under a foreign host name no
    request may: a page of another site may have sent it to its own name for this machine.
    """
    try:
        require_host(request, known_hosts(context.settings))
        async with asyncio.timeout(READY_SECONDS):
            principal = await context.authenticate(request)
    except (TimeoutError, TidegateError, Problem):
        return False
    return principal is not None and principal.tenant is None and principal.role in READERS
