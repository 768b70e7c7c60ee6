"""Events over HTTP: they reach the tasks of the token's tenant, and no others."""

from __future__ import annotations

import httpx2
import pytest
from web_support import bearer, direct, make, serve

from tidegate import Tidegate
from tidegate.internals import core_of
from tidegate.web import Role, create_app

pytestmark = pytest.mark.anyio


async def stored(app: Tidegate) -> list[tuple[str, str, bytes]]:
    """Return the tenant, name and data of every stored event."""
    store = await core_of(app).opened_store()
    rows = await store._read(lambda db: db.rows("SELECT tenant, name, data FROM event ORDER BY at, id"))  # type: ignore[attr-defined]
    return [tuple(row) for row in rows]


async def test_an_event_is_stored_with_its_data(app: Tidegate) -> None:
    async with direct(app) as client:
        answer = await client.post("/api/v1/events", json={"name": "order:1:paid", "data": {"cents": 5}})
    assert (answer.status_code, answer.json()) == (202, {"name": "order:1:paid", "delivered": 0})
    assert await stored(app) == [("", "order:1:paid", b'{"cents":5}')]


async def test_a_request_that_is_sent_again_with_its_key_stores_nothing(app: Tidegate) -> None:
    async with direct(app) as client:
        for _ in range(2):
            await client.post("/api/v1/events", json={"name": "paid", "key": "evt_1"})
    assert len(await stored(app)) == 1


async def test_a_token_of_a_tenant_sends_events_of_that_tenant_only(app: Tidegate) -> None:
    async with serve(create_app(app)) as url:
        headers = bearer(await make(app, Role.SUBMITTER, "acme"))
        async with httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
            assert (await client.post("/api/v1/events", json={"name": "paid"})).status_code == 202
            other = await client.post("/api/v1/events", json={"name": "paid", "tenant": "other"})
            nobody = await client.post("/api/v1/events", json={"name": "paid", "tenant": ""})
    assert (other.status_code, nobody.status_code) == (403, 403)
    assert [tenant for tenant, *_ in await stored(app)] == ["acme"]


async def test_a_viewer_may_send_no_events(app: Tidegate) -> None:
    async with serve(create_app(app)) as url:
        headers = bearer(await make(app, Role.VIEWER))
        async with httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
            assert (await client.post("/api/v1/events", json={"name": "paid"})).status_code == 403
    assert await stored(app) == []


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": "x" * 201}, {"name": "a", "keep_seconds": -1}])
async def test_an_invalid_event_is_refused(app: Tidegate, body: dict[str, object]) -> None:
    async with direct(app) as client:
        answer = await client.post("/api/v1/events", json=body)
    assert answer.status_code in (400, 422), answer.text
    assert await stored(app) == []
