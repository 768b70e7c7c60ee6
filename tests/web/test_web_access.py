"""Who may do what: every route × every role × tenants, from the document and the socket list."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from typing import Any

import httpx2
import pytest
import websockets
from web_support import NO_AUTHORITIES, UNKNOWN, bearer, events_of, make, serve, served

from tidegate import Tidegate
from tidegate.errors import ConfigError
from tidegate.internals import core_of
from tidegate.store.map_rows import NewMap
from tidegate.store.operation_rows import NewOperation, OperationKind, OperationState
from tidegate.store.rows import TaskFilter
from tidegate.web import Principal, Role, WebSettings, create_app

pytestmark = pytest.mark.anyio

PUBLIC = {"/", "/livez", "/readyz", "/api/v1/problems/{slug}", "/api/v1/tidegate.js"}
SIGNED = {("GET", "/approve/{token}"), ("POST", "/approve/{token}")}
"""Routes whose path is the credential."""
BODIES: dict[str, Any] = {
    "/api/v1/tasks": {"task": "web:add", "args": [1]},
    "/api/v1/events": {"name": "paid"},
    "/api/v1/tasks/batch": {"tasks": [{"task": "web:add", "args": [1]}]},
    "/api/v1/dead-letters/redrive": {"task_ids": []},
    "/api/v1/dead-letters/purge": {"task_ids": []},
    "/api/v1/operations/redrive": {"reason": "auth"},
    "/api/v1/operations/purge": {"reason": "auth"},
    "/api/v1/forget": {"tenant": "nobody", "dry_run": True},
}
TABLE: dict[tuple[str, str], str] = {
    ("POST", "/api/v1/tasks"): "submitter operator admin",
    ("POST", "/api/v1/tasks/batch"): "submitter operator admin",
    ("POST", "/api/v1/events"): "submitter operator admin",
    ("GET", "/api/v1/tasks"): "viewer operator admin",
    ("GET", "/api/v1/tasks/{task_id}"): "submitter viewer operator admin",
    ("GET", "/api/v1/tasks/{task_id}/result"): "submitter viewer operator admin",
    ("GET", "/api/v1/tasks/{task_id}/events"): "submitter viewer operator admin",
    ("WEBSOCKET", "/api/v1/tasks/{task_id}/socket"): "submitter viewer operator admin",
    ("GET", "/api/v1/tasks/{task_id}/history"): "viewer operator admin",
    ("GET", "/api/v1/tasks/{task_id}/steps"): "viewer operator admin",
    ("GET", "/api/v1/tasks/{task_id}/provider-jobs"): "viewer operator admin",
    ("GET", "/api/v1/approvals"): "viewer operator admin",
    ("POST", "/api/v1/tasks/{task_id}/approvals/{key}"): "operator admin",
    ("GET", "/api/v1/doubts"): "viewer operator admin",
    ("GET", "/api/v1/doubts/{doubt_id}"): "viewer operator admin",
    ("POST", "/api/v1/doubts/{doubt_id}/resolve"): "operator admin",
    ("POST", "/api/v1/tasks/{task_id}/cancel"): "submitter operator admin",
    ("POST", "/api/v1/tasks/{task_id}/retry"): "operator admin",
    ("GET", "/api/v1/dead-letters"): "viewer operator admin",
    ("POST", "/api/v1/dead-letters/redrive"): "operator admin",
    ("POST", "/api/v1/dead-letters/purge"): "operator admin",
    ("GET", "/api/v1/dead-letters/export"): "viewer operator admin",
    ("GET", "/api/v1/dead-letters/groups"): "viewer operator admin, whole",
    ("POST", "/api/v1/dead-letters/groups/{fingerprint}/resolve"): "operator admin, whole",
    ("POST", "/api/v1/dead-letters/groups/{fingerprint}/mute"): "operator admin, whole",
    ("POST", "/api/v1/dead-letters/groups/{fingerprint}/reopen"): "operator admin, whole",
    ("GET", "/api/v1/failures/unknown"): "viewer operator admin, whole",
    ("POST", "/api/v1/failures/unknown/{fingerprint}/reviewed"): "operator admin, whole",
    ("GET", "/api/v1/dead-letters/summary"): "viewer operator admin, whole",
    ("GET", "/api/v1/dead-letters/surges"): "viewer operator admin, whole",
    ("GET", "/api/v1/dead-letters/statistics"): "viewer operator admin, whole",
    ("GET", "/api/v1/statistics"): "viewer operator admin, whole",
    ("GET", "/api/v1/operations"): "viewer operator admin",
    ("GET", "/api/v1/operations/{operation_id}"): "viewer operator admin",
    ("GET", "/api/v1/operations/{operation_id}/letters"): "viewer operator admin",
    ("POST", "/api/v1/operations/redrive"): "operator admin",
    ("POST", "/api/v1/operations/purge"): "operator admin",
    ("GET", "/api/v1/database/sizes"): "admin, whole",
    ("POST", "/api/v1/forget"): "admin, whole",
    ("POST", "/api/v1/operations/{operation_id}/abort"): "operator admin",
    ("POST", "/api/v1/operations/{operation_id}/undo"): "operator admin",
    ("GET", "/api/v1/maps"): "viewer operator admin",
    ("POST", "/api/v1/maps"): "submitter operator admin",
    ("GET", "/api/v1/maps/{map_id}"): "viewer operator admin",
    ("GET", "/api/v1/maps/{map_id}/items"): "viewer operator admin",
    ("POST", "/api/v1/maps/{map_id}/cancel"): "operator admin",
    ("POST", "/api/v1/maps/{map_id}/retry"): "operator admin",
    ("GET", "/api/v1/functions"): "submitter viewer operator admin",
    ("GET", "/api/v1/queues"): "viewer operator admin, whole",
    ("GET", "/api/v1/pauses"): "viewer operator admin, whole",
    ("POST", "/api/v1/queues/pause"): "operator admin, whole",
    ("POST", "/api/v1/queues/resume"): "operator admin, whole",
    ("POST", "/api/v1/functions/pause"): "operator admin, whole",
    ("POST", "/api/v1/functions/resume"): "operator admin, whole",
    ("GET", "/api/v1/controls"): "viewer operator admin, whole",
    ("POST", "/api/v1/workers/quiet"): "operator admin, whole",
    ("POST", "/api/v1/workers/resume"): "operator admin, whole",
    ("POST", "/api/v1/workers/reload"): "operator admin, whole",
    ("POST", "/api/v1/pools/set"): "operator admin, whole",
    ("POST", "/api/v1/functions/rate-limit"): "operator admin, whole",
    ("GET", "/api/v1/schedules"): "viewer operator admin, whole",
    ("POST", "/api/v1/schedules"): "operator admin, whole",
    ("GET", "/api/v1/schedules/{name}"): "viewer operator admin, whole",
    ("PATCH", "/api/v1/schedules/{name}"): "operator admin, whole",
    ("DELETE", "/api/v1/schedules/{name}"): "operator admin, whole",
    ("POST", "/api/v1/schedules/{name}/pause"): "operator admin, whole",
    ("POST", "/api/v1/schedules/{name}/resume"): "operator admin, whole",
    ("POST", "/api/v1/schedules/{name}/run"): "operator admin, whole",
    ("GET", "/api/v1/schedules/{name}/preview"): "viewer operator admin, whole",
    ("GET", "/api/v1/schedules/{name}/ticks"): "viewer operator admin, whole",
    ("GET", "/api/v1/alerts"): "viewer operator admin, whole",
    ("POST", "/api/v1/alerts/mute"): "operator admin, whole",
    ("POST", "/api/v1/alerts/unmute"): "operator admin, whole",
    ("POST", "/api/v1/alerts/test"): "operator admin, whole",
    ("GET", "/api/v1/workers"): "viewer operator admin, whole",
    ("GET", "/api/v1/audit"): "admin, whole",
    ("GET", "/api/v1/autoscale/{pool}"): "viewer operator admin, whole",
    ("GET", "/metrics"): "viewer operator admin, whole",
    ("GET", "/api/v1/openapi.json"): "submitter viewer operator admin",
}
"""The roles of each route as people wrote them down, apart from the code."""
OWNED = ("{task_id}", "{operation_id}", "{map_id}")
"""Parts of paths that name something of one tenant."""
SCHEDULE = "seen"


def expected(method: str, path: str, role: str, tenant: str | None, owner: str) -> str:
    roles, _, all_tenants = TABLE[method, path].partition(", ")
    if role not in roles.split() or (all_tenants and tenant is not None):
        return "forbidden"
    if any(each in path for each in OWNED) and tenant is not None and tenant != owner:
        return "not found"
    return "let in"


async def answered(
    client: httpx2.AsyncClient, method: str, path: str, token: str | None, task_id: str
) -> str:
    """Use a route; return how it was taken."""
    target = path
    for each in OWNED:
        target = target.replace(each, task_id)
    target = target.replace("{name}", SCHEDULE).replace("{pool}", "default")
    headers = bearer(token) if token else {}
    if method == "WEBSOCKET":
        url = str(client.base_url).replace("http", "ws").rstrip("/") + target
        try:
            async with websockets.connect(url, additional_headers=headers, proxy=None):
                return "let in"
        except websockets.InvalidStatus as refusal:
            code = refusal.response.status_code
    else:
        async with client.stream(method, target, json=BODIES.get(path), headers=headers) as answer:
            code = answer.status_code
    assert code < 500
    return {401: "unknown", 403: "forbidden", 404: "not found"}.get(code, "let in")


async def declare_schedule(app: Tidegate) -> None:
    """Store a schedule that no request can remove."""
    app.schedule("@yearly", name=SCHEDULE, args=(1, 2))(app.function("web:add"))
    async with app.worker():
        pass


async def store_task(app: Tidegate, tenant: str) -> str:
    function = app.function("web:add")
    prepared = function.using(tenant=tenant) if tenant else function
    task_id = (await prepared.enqueue(1)).id
    store = await core_of(app).opened_store()
    # An operation and a map of the same tenant, with the same id.
    await store.commit_map(NewMap(task_id, "n", "web:add", 0, tenant), None)
    ended = (OperationKind.REDRIVE, OperationState.DONE)
    await store.add_operation(NewOperation(task_id, *ended, "ada", 0, None, tenant or None))
    return task_id


async def test_every_route_and_socket_of_the_document_is_in_the_table(app: Tidegate) -> None:
    api = create_app(app)
    documented = {
        (method.upper(), path) for path, methods in api.openapi()["paths"].items() for method in methods
    }
    sockets = {key for key in api.state.protected.access_rules if key[0] == "WEBSOCKET"}
    assert documented - {("GET", path) for path in PUBLIC} - SIGNED | sockets == set(TABLE)


@pytest.mark.timeout(180)  # hundreds of requests
async def test_every_route_takes_its_roles_and_shows_a_tenant_its_own_only(app: Tidegate) -> None:
    principals = list(itertools.product(Role, ("acme", "other", None)))
    tokens = {one: await make(app, *one) for one in principals}
    await declare_schedule(app)
    async with served(app) as api, api.client() as client:
        for (method, path), owner in itertools.product(TABLE, ("acme", "")):
            if owner == "" and "{task_id}" not in path:
                continue
            for (role, tenant), token in tokens.items():
                task_id = await store_task(app, owner)
                taken = await answered(client, method, path, token, task_id)
                wanted = expected(method, path, role.value, tenant, owner)
                assert taken == wanted, (method, path, role, tenant, owner)
                if taken != "let in":
                    assert (await app.status(task_id)).state.value == "ready"


async def test_without_a_token_only_health_and_the_pages_on_problems_answer(app: Tidegate) -> None:
    await make(app, Role.ADMIN)
    task_id = await store_task(app, "")
    async with served(app) as api, api.client() as client:
        for method, path in [*TABLE, ("GET", "/nowhere"), ("DELETE", "/api/v1/tasks")]:
            for token in (None, "tg_wrong_wrong"):
                assert await answered(client, method, path, token, task_id) == "unknown", (method, path)
        for path in PUBLIC:
            assert (await client.get(path.replace("{slug}", "token"))).status_code == 200
        refused = await client.get("/api/v1/tasks")
        assert refused.headers["www-authenticate"].startswith("Bearer")


async def test_a_tenant_sees_only_its_own_tasks_in_lists_and_bulk_actions(app: Tidegate) -> None:
    mine, theirs = await make(app, Role.OPERATOR, "acme"), await make(app, Role.OPERATOR, "ACME")
    fail = app.function("web:fail")
    async with served(app, worker=True) as api, api.client(mine) as me, api.client(theirs) as them:
        handle = await fail.using(tenant="acme", key="k").enqueue("x")
        alone = await fail.enqueue("x")
        store = await core_of(app).opened_store()
        for task in (handle, alone):
            await core_of(app).task_watcher(store).final(task.id)
        for path, field in (("tasks", "tasks"), ("dead-letters", "dead_letters")):
            assert [one["task_id"] for one in (await me.get(f"/api/v1/{path}")).json()[field]] == [handle.id]
            assert (await them.get(f"/api/v1/{path}")).json()[field] == []
        for act in ("redrive", "purge"):
            reported = await them.post(
                f"/api/v1/dead-letters/{act}", json={"task_ids": [handle.id, alone.id]}
            )
            assert {one["answer"] for one in reported.json()["tasks"]} == {"unknown"}
        assert (await app.status(handle.id)).state.value == "dead"
        replay = await them.post("/api/v1/tasks", json={"task": "web:fail", "args": ["x"], "key": "k"})
        assert replay.json()["task_id"] != handle.id
        assert (await them.get(f"/api/v1/tasks/{replay.json()['task_id']}")).json()["tenant"] == "ACME"


async def test_a_revoked_token_stops_working_and_the_first_token_ends_open_access(
    app: Tidegate,
) -> None:
    async with served(app, token_memory=0.0) as api, api.client() as anybody:
        assert (await anybody.get("/api/v1/tasks")).status_code == 200
        token = await make(app, Role.ADMIN)
        assert (await anybody.get("/api/v1/tasks")).status_code == 401
        async with api.client(token) as admin:
            assert (await admin.get("/api/v1/tasks")).status_code == 200
            await core_of(app).store.revoke_token(token.split("_")[1])
            assert (await admin.get("/api/v1/tasks")).status_code == 401
        assert (await anybody.get("/api/v1/tasks")).status_code == 401


async def test_a_stream_ends_when_its_token_is_revoked(app: Tidegate) -> None:
    token = await make(app, Role.VIEWER, "acme")
    task_id = await store_task(app, "acme")
    async with served(app, token_memory=0.0, heartbeat=0.1) as api, api.client(token) as client:
        url = f"{api.url.replace('http', 'ws')}/api/v1/tasks/{task_id}/socket"
        async with (
            asyncio.timeout(10),
            websockets.connect(url, additional_headers=bearer(token), proxy=None) as socket,
            client.stream("GET", f"/api/v1/tasks/{task_id}/events") as response,
        ):
            events = events_of(response)
            names = {(await anext(events)).name}
            await socket.recv()
            assert await core_of(app).store.revoke_token(token.split("_")[1])
            rest = [event async for event in events]
            assert names | {event.name for event in rest[:-1]} <= {"state", ":"}
            assert (rest[-1].name, rest[-1].data) == ("closed", {"reason": "token"})
            printed: list[str] = []
            with contextlib.suppress(websockets.ConnectionClosed):
                while True:
                    printed.append(str(await socket.recv()))
            assert json.loads(printed[-1]) == {"event": "closed", "data": {"reason": "token"}}
            assert (socket.close_code, socket.close_reason) == (1008, "token")


@pytest.mark.parametrize(("token_memory", "reads"), [(600.0, 1), (0.0, 20)])
async def test_a_valid_token_is_cached_between_store_reads(
    app: Tidegate, token_memory: float, reads: int
) -> None:
    token = await make(app, Role.VIEWER)
    asked = 0
    real = core_of(app).store.find_token

    async def counted(digest: bytes) -> Any:
        nonlocal asked
        asked += 1
        return await real(digest)

    core_of(app).store.find_token = counted  # type: ignore[method-assign]
    async with served(app, token_memory=token_memory) as api, api.client(token) as client:
        for _ in range(20):
            assert (await client.get("/api/v1/functions")).status_code == 200
    assert asked == reads
    assert WebSettings().token_memory > 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
    ],
)
async def test_pages_of_other_origins_and_other_hosts_get_nothing_by_any_method(
    app: Tidegate, headers: dict[str, str]
) -> None:
    task_id = await store_task(app, "")
    async with served(app) as api, api.client() as client:
        for method, path in (
            ("GET", "/api/v1/tasks"), ("GET", "/livez"), ("OPTIONS", "/api/v1/tasks"), ("HEAD", "/api/v1/tasks"),
            ("POST", f"/api/v1/tasks/{task_id}/cancel"), ("GET", f"/api/v1/tasks/{task_id}/events"),
        ):  # fmt: skip
            if "Host" in headers and path == "/livez":
                continue  # a probe
            answer = await client.request(method, path, headers=headers)
            assert answer.status_code == (421 if "Host" in headers else 403), (method, path)
        url = f"{api.url.replace('http', 'ws')}/api/v1/tasks/{task_id}/socket"
        if "Host" not in headers:
            with pytest.raises(websockets.InvalidStatus) as caught:
                async with websockets.connect(url, additional_headers=headers, proxy=None):
                    pass
            assert caught.value.response.status_code == 403
    assert (await app.status(task_id)).state.value == "ready"


async def test_its_own_pages_and_named_origins_may_call(app: Tidegate) -> None:
    token = await make(app, Role.VIEWER)
    async with (
        served(app, origins=("https://app.example",), hosts=("queue.example",)) as api,
        api.client(token) as client,
    ):
        own = await client.get("/api/v1/tasks", headers={"Origin": api.url, "Sec-Fetch-Site": "same-origin"})
        assert own.status_code == 200
        assert "access-control-allow-origin" not in own.headers
        named = await client.get("/api/v1/tasks", headers={"Origin": "https://app.example"})
        assert named.headers["access-control-allow-origin"] == "https://app.example"
        asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
        assert (await client.options("/api/v1/tasks", headers=asked)).status_code == 200
        assert (await client.get("/livez", headers={"Host": "queue.example:8080"})).status_code == 200


async def test_no_get_changes_anything(app: Tidegate) -> None:
    task_id = await store_task(app, "")
    async with served(app) as api, api.client() as client:
        for method, path in TABLE:
            if method == "POST":
                answer = await client.get(path.replace("{task_id}", task_id))
                assert answer.status_code in (200, 404, 405), path
    assert (await app.status(task_id)).state.value == "ready"
    assert len(await core_of(app).store.list_tasks(TaskFilter())) == 1


async def test_a_browser_gives_its_token_to_a_socket_as_a_subprotocol(app: Tidegate) -> None:
    token = await make(app, Role.SUBMITTER, "acme")
    task_id = await store_task(app, "acme")
    async with served(app) as api:
        url = f"{api.url.replace('http', 'ws')}/api/v1/tasks/{task_id}/socket"
        protocols: Any = ["tidegate.v1", f"bearer.{token}"]
        async with websockets.connect(url, subprotocols=protocols, proxy=None) as socket:
            assert socket.subprotocol == "tidegate.v1"
            assert "state" in str(await socket.recv())


async def test_the_host_application_may_authenticate_requests_itself(app: Tidegate) -> None:
    async def by_header(connection: Any) -> Principal | None:
        user = connection.headers.get("x-user")
        return None if user is None else Principal(user, Role.SUBMITTER, user)

    await make(app, Role.ADMIN)
    api = create_app(app, settings=WebSettings(), authenticate=by_header)
    async with (
        serve(api) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False, verify=NO_AUTHORITIES) as client,
    ):
        assert (await client.get("/api/v1/functions")).status_code == 401
        made = await client.post("/api/v1/tasks", json=BODIES["/api/v1/tasks"], headers={"X-User": "ada"})
        where = made.headers["location"]
        assert (await client.get(where, headers={"X-User": "ada"})).json()["tenant"] == "ada"
        assert (await client.get(where, headers={"X-User": "bob"})).status_code == 404
        assert (await client.get("/api/v1/queues", headers={"X-User": "ada"})).status_code == 403


async def test_every_change_is_in_the_audit_log_with_its_actor(app: Tidegate) -> None:
    operator, admin = await make(app, Role.OPERATOR, "acme"), await make(app, Role.ADMIN)
    async with served(app) as api, api.client(operator) as client, api.client(admin) as boss:
        task_id = (await client.post("/api/v1/tasks", json=BODIES["/api/v1/tasks"])).json()["task_id"]
        await client.post(f"/api/v1/tasks/{task_id}/cancel", json={"why": "mistake"})
        await client.post(f"/api/v1/tasks/{task_id}/retry")
        await client.get(f"/api/v1/tasks/{task_id}")
        await client.post(f"/api/v1/tasks/{UNKNOWN}/cancel")

        async with asyncio.timeout(10):
            while len(entries := (await boss.get("/api/v1/audit")).json()["entries"]) < 3:
                await asyncio.sleep(0.02)
        assert sorted((entry["action"], entry["answer"], entry["why"]) for entry in entries) == [
            ("cancel", "cancelled", "mistake"),
            ("retry", "refused", ""),
            ("submit", "created", ""),
        ]
        assert {(entry["target"], entry["tenant"], entry["role"]) for entry in entries} == {
            (task_id, "acme", "operator")
        }
        assert all(operator.split("_")[1] in entry["actor"] for entry in entries)
        assert operator not in str(entries)


async def test_queued_audit_entries_are_written_at_shutdown(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        await client.post("/api/v1/tasks/batch", json={"tasks": [BODIES["/api/v1/tasks"]] * 40})
    entries = await (await core_of(app).opened_store()).list_audit_entries(limit=100)
    assert [entry.action for entry in entries] == ["submit"] * 40


async def test_a_route_without_an_access_rule_cannot_be_served(app: Tidegate) -> None:
    api = create_app(app)

    @api.get("/api/v1/forgotten")
    async def forgotten() -> None: ...

    with pytest.raises(ConfigError, match="forgotten"):
        async with api.router.lifespan_context(api):
            pass
