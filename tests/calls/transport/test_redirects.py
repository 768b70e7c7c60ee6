"""Redirects: no key of a ring is sent to another origin, and other calls are not affected."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest
from permits_in_memory import MemoryPermitSource

from tidegate.calls.settings import CallSettings
from tidegate.calls.transport.transport import UpstreamTransport

pytestmark = pytest.mark.anyio

LEADS_TO = {
    "http://a/to-b": "http://b/",
    "http://a/away": "http://elsewhere/",
    "http://a/there-and-back": "http://elsewhere/back",
    "http://elsewhere/back": "http://a/",
    "http://a/over-there": "/here",
}
"""The providers `a` and `b`, and a stranger; every other address answers."""


class Caller:
    """Makes calls of upstreams `a` and `b`, each with a key of its own, all in one context.

    Args:
        library: Whose clients are used.
        is_sync: Whether they are the sync ones.
    """

    def __init__(self, library: ModuleType, *, is_sync: bool) -> None:
        self._library = library
        self._is_sync = is_sync
        self.sent: list[tuple[str, str | None]] = []
        """The host and key of each request."""

    async def post(self, *calls: tuple[str, str], follow: str) -> None:
        """Make calls, given as upstream and address; redirects are followed by "client", "hand" or "nobody"."""
        if self._is_sync:
            await asyncio.to_thread(self._post_plainly, calls, follow)
            return
        for upstream, url in calls:
            async with self._library.AsyncClient(**self._options(upstream, follow)) as client:
                answer = await client.post(url, json={})
                while follow == "hand" and answer.next_request is not None:
                    answer = await client.send(answer.next_request)

    def _post_plainly(self, calls: tuple[tuple[str, str], ...], follow: str) -> None:
        for upstream, url in calls:
            with self._library.Client(**self._options(upstream, follow)) as client:
                answer = client.post(url, json={})
                while follow == "hand" and answer.next_request is not None:
                    answer = client.send(answer.next_request)

    def _options(self, upstream: str, follow: str) -> dict[str, Any]:
        permits, inner = MemoryPermitSource(f"key-{upstream}"), self._library.MockTransport(self._answer)
        transport = UpstreamTransport(permits, CallSettings(upstream), inner)
        return {"transport": transport, "follow_redirects": follow == "client"}

    def _answer(self, request: Any) -> Any:
        self.sent.append((request.url.host, request.headers.get("authorization")))
        target = LEADS_TO.get(str(request.url))
        if target is None:
            return self._library.Response(200, json={})
        return self._library.Response(307, headers={"location": target}, json={})


@pytest.fixture(params=[(httpx2, False), (httpx2, True), (httpx, False), (httpx, True)], ids=[
    "httpx2", "httpx2-sync", "httpx", "httpx-sync",
])  # fmt: skip
def caller(request: pytest.FixtureRequest) -> Caller:
    library, is_sync = request.param
    return Caller(library, is_sync=is_sync)


A, B, NOBODYS = ("a", "Bearer key-a"), ("b", "Bearer key-b"), ("elsewhere", None)


async def test_a_redirect_that_is_not_followed_does_not_remove_the_next_calls_key(caller: Caller) -> None:
    await caller.post(("a", "http://a/to-b"), ("b", "http://b/"), ("a", "http://a/"), follow="nobody")
    assert caller.sent == [A, B, A]


@pytest.mark.parametrize("follow", ["client", "hand"])
async def test_a_key_is_removed_only_if_a_redirect_leads_to_another_origin(
    caller: Caller, follow: str
) -> None:
    await caller.post(("a", "http://a/away"), ("b", "http://b/"), ("a", "http://a/over-there"), follow=follow)
    assert caller.sent == [A, NOBODYS, B, A, A]


@pytest.mark.parametrize("follow", ["client", "hand"])
async def test_a_redirect_back_to_the_origin_carries_the_key_again(caller: Caller, follow: str) -> None:
    await caller.post(("a", "http://a/there-and-back"), follow=follow)
    assert caller.sent == [A, NOBODYS, A]


@pytest.mark.parametrize("follow", ["client", "hand"])
async def test_the_key_of_one_upstream_is_not_sent_to_another_that_it_redirects_to(
    caller: Caller, follow: str
) -> None:
    await caller.post(("a", "http://a/to-b"), ("b", "http://b/"), follow=follow)
    assert caller.sent == [A, ("b", None), B]
