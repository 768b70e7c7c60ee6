"""Calls in doubt over HTTP, and the recorded steps of a task."""

from __future__ import annotations

import pytest
from web_support import bearer, direct, make

from tidegate import Context, Fixed, Tidegate
from tidegate.internals import core_of
from tidegate.web import Role

pytestmark = pytest.mark.anyio


async def in_doubt(app: Tidegate, tenant: str | None = None) -> str:
    """Return the id of a task that died because its step may have been done."""
    called = []

    async def plan() -> str:
        return "secret"

    async def pay() -> int:
        called.append(1)
        if len(called) == 1:
            raise TimeoutError
        return 7

    @app.task(name="web:doubtful", backoff=Fixed(0.01))
    async def doubtful(ctx: Context) -> int:
        await ctx.step("plan", plan)
        return await ctx.step("pay", pay, in_doubt="ask")

    task_id = (await app.function("web:doubtful").using(tenant=tenant).enqueue()).id
    await final(app, task_id)
    return task_id


async def final(app: Tidegate, task_id: str) -> None:
    core = core_of(app)
    async with app.worker():
        await core.task_watcher(await core.opened_store()).final(task_id)


async def test_a_doubt_is_listed_and_accepted_and_its_task_goes_on(app: Tidegate) -> None:
    task_id = await in_doubt(app)
    async with direct(app) as client:
        (doubt,) = (await client.get("/api/v1/doubts", params={"task": task_id})).json()["doubts"]
        url = f"/api/v1/doubts/{doubt['doubt_id']}"
        assert (await client.get(url)).json() == doubt
        assert (doubt["step"], doubt["state"], doubt["on_doubt"]) == ("pay", "open", "ask")
        assert doubt["cause"].startswith("TimeoutError")

        resolved = await client.post(
            f"{url}/resolve", json={"decision": "accept", "result": 5, "note": "they have it"}
        )
        assert resolved.json() == {
            "doubt_id": doubt["doubt_id"],
            "status": "done",
            "task_id": task_id,
            "resumed": True,
            "waits_for": 0,
        }
        refused = await client.post(f"{url}/resolve", json={"decision": "fail"})
        assert (refused.status_code, refused.json()["type"].rsplit("/", 1)[1]) == (409, "refused")
        assert (await client.get("/api/v1/doubts")).json() == {"doubts": [], "next": None}
        listed = (await client.get("/api/v1/doubts", params={"state": "all"})).json()["doubts"]
        assert [(each["state"], each["note"]) for each in listed] == [("accepted", "they have it")]

        await final(app, task_id)
        assert (await client.get(f"/api/v1/tasks/{task_id}/result")).json()["result"] == 5
        entries = await (await core_of(app).opened_store()).list_audit_entries()
        target = f"doubt {doubt['doubt_id']}"
        assert [(entry.action, entry.target, entry.answer, entry.why) for entry in entries] == [
            ("doubt rejected", target, "refused", ""),
            ("doubt accepted", target, "done", "they have it"),
        ]


async def test_steps_are_listed_without_their_results(app: Tidegate) -> None:
    task_id = await in_doubt(app)
    async with direct(app) as client:
        response = await client.get(f"/api/v1/tasks/{task_id[:30]}/steps")
        assert [(step["name"], step["state"], step["run"]) for step in response.json()["steps"]] == [
            ("plan", "done", 1),
            ("pay", "open", 1),
        ]
        assert response.json()["steps"][0]["size"] == len('"secret"')
        assert "secret" not in response.text
    assert [step.name for step in await app.admin.tasks.steps(task_id)] == ["plan", "pay"]


async def test_a_token_of_a_tenant_sees_and_decides_its_own_doubts_only(app: Tidegate) -> None:
    theirs = await in_doubt(app, tenant="other")
    async with direct(app) as client:
        (doubt,) = (await client.get("/api/v1/doubts")).json()["doubts"]
        url = f"/api/v1/doubts/{doubt['doubt_id']}"
        ours = bearer(await make(app, Role.OPERATOR, tenant="acme"))
        assert (await client.get("/api/v1/doubts", headers=ours)).json()["doubts"] == []
        asked = {"tenant": "other"}
        assert (await client.get("/api/v1/doubts", params=asked, headers=ours)).json()["doubts"] == []
        assert (await client.get(url, headers=ours)).status_code == 404
        decided = await client.post(f"{url}/resolve", json={"decision": "repeat"}, headers=ours)
        assert decided.status_code == 404
        assert (await client.get(f"/api/v1/tasks/{theirs}/steps", headers=ours)).status_code == 404
        assert (await client.get(url)).json()["state"] == "open"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"decision": "accept"}, 400),
        ({"decision": "repeat", "result": 1}, 400),
        ({"decision": "perhaps"}, 400),
        ({}, 400),
    ],
)
async def test_a_decision_that_is_not_clear_is_refused(
    body: dict[str, object], status: int, app: Tidegate
) -> None:
    await in_doubt(app)
    async with direct(app) as client:
        (doubt,) = (await client.get("/api/v1/doubts")).json()["doubts"]
        response = await client.post(f"/api/v1/doubts/{doubt['doubt_id']}/resolve", json=body)
        assert response.status_code == status
        assert len((await client.get("/api/v1/doubts")).json()["doubts"]) == 1
        assert (await client.get("/api/v1/doubts", params={"state": "lost"})).status_code == 422
