"""Finds the principal of a request, by its token or by the host application's own function."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from starlette.requests import HTTPConnection

from tidegate.domain.access import Principal, Role, digest_of
from tidegate.store.protocol import Store
from tidegate.web.open_access import is_from_this_machine, non_local_names
from tidegate.web.problems import PROBLEM_TYPES, Problem
from tidegate.web.settings import WebSettings

Authenticate = Callable[[HTTPConnection], Awaitable[Principal | None]]
"""A function that returns the principal of a request, or None to refuse the request. An empty tenant is
refused too."""

PROTOCOL = "tidegate.v1"
"""The WebSocket subprotocol. A browser cannot send headers, so it adds `bearer.TOKEN` as a second
subprotocol."""

LOCAL_ADMIN = Principal("anybody here", Role.ADMIN, None)
"""The principal of requests without a token, if such requests are allowed and no token exists yet."""

_MAX_CACHED = 10_000
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="tidegate"'}


class TokenAuthenticator:
    """Looks tokens up by their digests, and caches valid tokens for a short time.

    Args:
        opened_store: Returns the open store.
        settings: How long a token is cached, and whether requests need a token before the first one is
            created.
    """

    def __init__(self, opened_store: Callable[[], Awaitable[Store]], settings: WebSettings) -> None:
        self._opened_store = opened_store
        self._cache_seconds = settings.token_memory
        self._may_be_open = settings.open_without_tokens
        self._public_names = non_local_names(settings)
        self._has_no_token = True
        self._cache: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._checked_at = float("-inf")

    async def __call__(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal of the request's token; None if the token is not valid.

        Raises:
            Problem: The request has no token but needs one.
        """
        token = bearer_token(connection)
        if token is None:
            return await self._without_token(connection) if self._may_be_open else None
        digest = digest_of(token)
        now = asyncio.get_running_loop().time()
        cached = self._cache.get(digest)
        if cached is not None and now < cached[1]:
            return cached[0]
        row = await (await self._opened_store()).find_token(digest)
        if row is None:
            self._cache.pop(digest, None)
            return None
        principal = Principal(f"{row.name} ({row.id})", row.role, row.tenant)
        self._cache[digest] = (principal, now + self._cache_seconds)
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)
        return principal

    async def _without_token(self, connection: HTTPConnection) -> Principal | None:
        if self._public_names:
            raise _no_token("open_without_tokens has no effect: hosts or origins name more than this machine")
        if not is_from_this_machine(connection):
            raise _no_token("requests through a proxy or from another machine always need a token")
        return LOCAL_ADMIN if await self._has_none() else None

    async def _has_none(self) -> bool:
        """Return whether no token was ever created. Once there is a token, the store is not asked again."""
        now = asyncio.get_running_loop().time()
        if self._has_no_token and now - self._checked_at >= self._cache_seconds:
            self._has_no_token = not await (await self._opened_store()).list_tokens()
            self._checked_at = now
        return self._has_no_token


def bearer_token(connection: HTTPConnection) -> str | None:
    """Return the token in a request's Authorization header, or in a WebSocket's subprotocols."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    if connection.scope["type"] == "websocket":
        offered: list[str] = connection.scope.get("subprotocols", [])
        return next((name.removeprefix("bearer.") for name in offered if name.startswith("bearer.")), None)
    return None


async def require_principal(authenticate: Authenticate, connection: HTTPConnection) -> Principal:
    """Return the principal of a request.

    Raises:
        Problem: The request has no valid token.
    """
    principal = await authenticate(connection)
    if (
        principal is None or principal.tenant == ""
    ):  # otherwise a user without a tenant would see the tasks without a tenant
        raise _no_token()
    return principal


def _no_token(detail: str = "") -> Problem:
    fix = PROBLEM_TYPES["token"].fix
    return Problem("token", f"{detail}. {fix}" if detail else fix, headers=_CHALLENGE)
