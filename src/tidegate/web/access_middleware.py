"""Checks every request before it reaches a route: host, origin, token and the size of the body."""

from __future__ import annotations

import re

from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from tidegate.domain.links import PATH as LINKS
from tidegate.errors import TidegateError
from tidegate.web.open_access import TEST_CLIENT
from tidegate.web.problems import PAGES, PROBLEM_TYPES, Problem, problem_of, refuse
from tidegate.web.settings import LOOPBACK, WebSettings
from tidegate.web.tokens import Authenticate, require_principal

PROBES = ("/livez", "/readyz")
"""Paths that may be requested under any host name: Kubernetes and load balancers use the machine's
address."""
PUBLIC = ("/", *PROBES, "/api/v1/tidegate.js")
"""Paths that need no token. The pages that describe problems need none either, nor do the pages of signed
links: their address is the credential."""

BATCH = "/api/v1/tasks/batch"
_LENGTH_DIGITS = 15
_MAX_SHOWN = 100
_PORT = re.compile(r":\d*$")


class AccessMiddleware:
    """Passes admitted requests on, with their `Principal` in `scope["tidegate"]`; refuses all others.

    Args:
        app: The ASGI application that handles admitted requests.
        authenticate: Returns the principal of a request.
        settings: Allowed hosts and origins, and size limits.
    """

    def __init__(self, app: ASGIApp, *, authenticate: Authenticate, settings: WebSettings) -> None:
        self._app = app
        self._authenticate = authenticate
        self._settings = settings
        self._hosts = known_hosts(settings)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or respond with a problem."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        is_http = scope["type"] == "http"
        connection = Request(scope, receive, send) if is_http else WebSocket(scope, receive, send)
        try:
            await self._admit(connection)
        except Problem as problem:
            response = await refuse(connection, problem)
            if response is not None:
                await response(scope, receive, send)
            return
        await self._app(scope, self._with_size_limit(scope, receive) if is_http else receive, send)

    async def _admit(self, connection: HTTPConnection) -> None:
        path = _path(connection.scope)
        if path not in PROBES:
            require_host(connection, self._hosts)
        is_link = path.startswith(LINKS)
        if not (is_link and connection.scope.get("method") == "GET"):  # people follow links from other sites
            self._require_origin(connection)
        if not (is_link or path in PUBLIC or path.startswith(PAGES)):
            try:
                connection.scope["tidegate"] = await require_principal(self._authenticate, connection)
            except TidegateError as error:
                raise problem_of(error) from error
        limit = self._limit(connection.scope)
        length = connection.headers.get("content-length", "0").lstrip("0")
        if len(length) > _LENGTH_DIGITS or (length.isascii() and length.isdigit() and int(length) > limit):
            raise _too_large(limit)

    def _require_origin(self, connection: HTTPConnection) -> None:
        """Refuse a request from a page of another site. Browsers send the origin in each such request."""
        headers = connection.headers
        origin = headers.get("origin")
        if origin is not None:
            own = origin.partition("://")[2].lower() == headers.get("host", "").lower()
            if not own and origin.lower() not in self._origins:
                raise Problem("wrong-origin")
        elif headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Problem("wrong-origin")

    def _limit(self, scope: Scope) -> int:
        is_batch = _path(scope) == BATCH
        return self._settings.batch_body_limit if is_batch else self._settings.body_limit

    def _with_size_limit(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` that refuses a body larger than the limit."""
        limit, size = self._limit(scope), 0

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > limit:
                raise _too_large(limit)
            return message

        return receive_limited


def known_hosts(settings: WebSettings) -> frozenset[str]:
    """Return the host names that requests may use."""
    return LOOPBACK | {host.lower() for host in settings.hosts}


def require_host(connection: HTTPConnection, hosts: frozenset[str]) -> None:
    """Raise `wrong-host` unless the request is for one of these host names.

    Raises:
        Problem: The request is for another host.
    """
    host = _PORT.sub("", connection.headers.get("host", "").lower())
    if host in hosts or "*" in hosts or _is_test_client(connection, host):
        return
    detail = f"the request is for host {host[:_MAX_SHOWN]!r}. {PROBLEM_TYPES['wrong-host'].fix}"
    raise Problem("wrong-host", detail)


def _is_test_client(connection: HTTPConnection, host: str) -> bool:
    """Return whether Starlette's TestClient sent the request with its default host."""
    return host == "testserver" and connection.client is not None and connection.client.host == TEST_CLIENT


def _path(scope: Scope) -> str:
    """Return the request's path relative to the mount point of this API."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _too_large(limit: int) -> Problem:
    return Problem("body-too-large", f"the limit is {limit:,} bytes", limit=limit)
