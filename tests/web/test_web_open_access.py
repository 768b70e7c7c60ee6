"""An API without tokens is open to requests from this machine only, never to those a proxy hands on."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse
from web_support import direct, make

from tidegate import StoreUnavailableError, Tidegate
from tidegate.domain.access import Role
from tidegate.internals import core_of
from tidegate.web import WebSettings, create_app

pytestmark = pytest.mark.anyio

TASKS = "/api/v1/tasks"


async def status(client: httpx2.AsyncClient, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client:
        return (await client.get(TASKS, headers=named)).status_code


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
async def test_a_request_from_this_machine_needs_no_token_while_none_exists(app: Tidegate, peer: str) -> None:
    assert await status(direct(app, peer=peer)) == 200


@pytest.mark.parametrize("peer", ["192.0.2.7", "10.0.0.1", "::ffff:192.0.2.7", "2001:db8::1", "", "unix"])
async def test_a_request_from_another_machine_needs_a_token(app: Tidegate, peer: str) -> None:
    assert await status(direct(app, peer=peer)) == 401


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Server", "X-Real-IP",
        "Forwarded", "Via", "CF-Connecting-IP", "True-Client-IP", "X-Envoy-External-Address",
        "Tailscale-User-Login", "X-Original-For", "x-amzn-trace-id",
    ],
)  # fmt: skip
async def test_a_request_that_a_proxy_handed_on_needs_a_token(app: Tidegate, header: str) -> None:
    client = direct(app)
    async with client:
        refused = await client.get(TASKS, headers={header: "203.0.113.9"})
    assert refused.status_code == 401
    assert "proxy" in refused.json()["detail"]


async def test_a_request_of_http_1_0_needs_a_token_since_proxies_speak_it(app: Tidegate) -> None:
    api = create_app(app, settings=WebSettings(open_without_tokens=True))

    async def older(scope: Any, receive: Any, send: Any) -> None:
        await api(scope | {"http_version": "1.0"}, receive, send)

    transport = httpx2.ASGITransport(app=older)
    assert await status(httpx2.AsyncClient(transport=transport, base_url="http://localhost")) == 401


@pytest.mark.parametrize(
    "settings",
    [
        {"hosts": ("queue.example",)},
        {"hosts": ("*",)},
        {"hosts": ("localhost", "10.0.0.5")},
        {"origins": ("https://app.example",)},
        {"origins": ("null",)},
    ],
)
async def test_an_api_with_a_public_name_or_origin_is_never_open(
    app: Tidegate, settings: dict[str, Any]
) -> None:
    client = direct(app, **settings)
    async with client:
        refused = await client.get(TASKS)
    assert refused.status_code == 401
    assert "open_without_tokens" in refused.json()["detail"]


@pytest.mark.parametrize(
    "settings", [{"hosts": ("localhost", "[::1]")}, {"origins": ("http://localhost:5173",)}]
)
async def test_loopback_names_and_origins_leave_it_open(app: Tidegate, settings: dict[str, Any]) -> None:
    assert await status(direct(app, **settings)) == 200


async def test_a_socket_that_a_proxy_handed_on_needs_a_token(app: Tidegate) -> None:
    task = await app.function("web:add").enqueue(1)
    client = TestClient(create_app(app, settings=WebSettings(open_without_tokens=True)))
    path = f"{TASKS}/{task.id}/socket"
    with pytest.raises(WebSocketDenialResponse) as caught:
        client.websocket_connect(path, headers={"X-Forwarded-For": "203.0.113.9"}).__enter__()
    assert caught.value.status_code == 401


async def test_nobody_is_admitted_while_the_store_cannot_count_tokens(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(app, Role.ADMIN)

    async def away() -> Any:
        raise StoreUnavailableError("gone")

    client = direct(app)
    async with client:
        with monkeypatch.context() as patch:
            patch.setattr(core_of(app).store, "list_tokens", away)
            assert (await client.get(TASKS)).status_code == 503
            assert (await client.get(TASKS)).status_code == 503
        assert (await client.get(TASKS)).status_code == 401


async def test_the_refusal_for_want_of_a_token_names_the_switch_for_development(app: Tidegate) -> None:
    async with direct(app, open_without_tokens=False) as client:
        refused = await client.get(TASKS)
    assert "WebSettings(open_without_tokens=True)" in refused.json()["detail"]


async def test_starlettes_test_client_works_as_it_is(app: Tidegate) -> None:
    client = TestClient(create_app(app, settings=WebSettings(open_without_tokens=True)))
    assert client.get(TASKS).status_code == 200
    assert client.get(TASKS, headers={"X-Forwarded-For": "testclient"}).status_code == 401


async def test_the_refusal_of_a_host_names_it_and_the_setting(app: Tidegate) -> None:
    async with direct(app, url="http://testserver") as client:
        refused = await client.get(TASKS)
    assert refused.status_code == 421
    for part in ("'testserver'", "WebSettings(hosts=", "base_url"):
        assert part in refused.json()["detail"]
