"""Schedules over HTTP: what operators do with them, what is refused, and what is recorded."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from web_support import NO_AUTHORITIES, bearer, direct, make, serve

from tidegate import Tidegate
from tidegate.internals import core_of
from tidegate.web import Role, create_app

pytestmark = pytest.mark.anyio

DAILY = {"task": "web:add", "when": "0 7 * * *", "timezone": "Europe/Berlin", "name": "daily", "args": [1, 2]}


async def ask(
    client: httpx2.AsyncClient, method: str, path: str, status: int = 200, body: dict[str, Any] | None = None
) -> Any:
    answer = await client.request(method, f"/api/v1/schedules{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def test_a_schedule_is_added_shown_changed_and_removed(app: Tidegate) -> None:
    async with direct(app) as client:
        added = await ask(client, "POST", "", body=DAILY | {"queue": "reports"})
        assert (added["name"], added["when"], added["timezone"]) == ("daily", "0 7 * * *", "Europe/Berlin")
        assert (added["function"], added["queue"], added["application"]) == ("web:add", "reports", None)
        assert (added["catch_up"], added["overlap"]) == ("one", "skip")
        assert await ask(client, "GET", "/daily") == added
        assert (await ask(client, "GET", ""))["schedules"] == [added]

        change = {"when": "every 2h", "not_later_than": "30m", "args": {"a": 5, "b": 6}}
        changed = await ask(client, "PATCH", "/daily", body=change)
        assert (changed["when"], changed["timezone"]) == ("every 2h", "UTC")
        assert (changed["not_later_than_seconds"], changed["queue"]) == (1800.0, "reports")
        assert changed["args"] != added["args"]
        unlimited = await ask(client, "PATCH", "/daily", body={"not_later_than": "none"})
        assert (unlimited["not_later_than_seconds"], unlimited["next_at"]) == (None, changed["next_at"])

        assert await ask(client, "DELETE", "/daily", 204) is None
        assert await ask(client, "GET", "") == {"schedules": [], "next": None}


async def test_a_schedule_is_paused_run_and_resumed_under_the_name_of_the_token(app: Tidegate) -> None:
    async with serve(create_app(app)) as url:
        headers = bearer(await make(app, Role.OPERATOR))
        async with httpx2.AsyncClient(
            base_url=url, headers=headers, trust_env=False, verify=NO_AUTHORITIES
        ) as client:
            await ask(client, "POST", "", body=DAILY)
            paused = await ask(client, "POST", "/daily/pause")
            assert paused["paused_at"] is not None
            assert paused["next_at"] is None
            run = await ask(client, "POST", "/daily/run", 202)
            task = (await client.get(run["location"])).json()
            assert (task["state"], task["function"]) == ("ready", "web:add")
            resumed = await ask(client, "POST", "/daily/resume")
            assert resumed["paused_at"] is None
            assert resumed["next_at"] is not None
            (tick,) = (await ask(client, "GET", "/daily/ticks"))["ticks"]
            assert (tick["outcome"], tick["reason"], tick["task_id"]) == ("fired", "by hand", run["task_id"])
    entries = await (await core_of(app).opened_store()).list_audit_entries()
    assert [(entry.action, entry.target) for entry in reversed(entries)] == [
        ("schedule added", "daily"),
        ("schedule paused", "daily"),
        ("schedule run", "daily"),
        ("schedule resumed", "daily"),
    ]
    assert {entry.actor.partition(" ")[0] for entry in entries} == {"operator"}


async def test_a_preview_marks_changes_of_the_clocks(app: Tidegate) -> None:
    async with direct(app) as client:
        await ask(client, "POST", "", body=DAILY | {"when": "30 2 * * *"})
        ticks = (await ask(client, "GET", "/daily/preview?count=400"))["ticks"]
    assert len(ticks) == 400
    marked = [tick["mark"] for tick in ticks if tick["mark"]]
    assert any("does not exist on this date" in mark for mark in marked)
    assert any("comes twice" in mark for mark in marked)
    assert ticks[0]["local"].endswith((":30:00+01:00", ":30:00+02:00"))


async def test_schedules_and_ticks_are_listed_in_pages(app: Tidegate) -> None:
    async with direct(app) as client:
        for name in ("a", "b", "c"):
            await ask(client, "POST", "", body=DAILY | {"name": name})
        first = await ask(client, "GET", "?limit=2")
        rest = await ask(client, "GET", f"?limit=2&after={first['next']}")
        assert [row["name"] for row in (*first["schedules"], *rest["schedules"])] == ["a", "b", "c"]
        assert rest["next"] is None
        for _ in range(3):
            await ask(client, "POST", "/a/run", 202)
        newest = await ask(client, "GET", "/a/ticks?limit=2")
        oldest = await ask(client, "GET", f"/a/ticks?limit=2&before={newest['next']!r}")
        moments = [tick["planned_at"] for tick in (*newest["ticks"], *oldest["ticks"])]
        assert len(moments) == 3
        assert moments == sorted(moments, reverse=True)


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"when": "61 * * * *"}, 422, "the minute is wrong"),
        ({"when": "0 0 30 2 *"}, 422, "a date that exists"),
        ({"when": ""}, 422, "0 7 * * 1-5"),
        ({"timezone": "Mars/Base"}, 422, "Europe/Berlin"),
        ({"timezone": "europe/berlin"}, 422, "Europe/Berlin"),
        ({"catch_up": "some"}, 422, "none, one, all"),
        ({"catch_up": "all", "overlap": "skip"}, 422, "queue"),
        ({"overlap": "never"}, 422, "skip, queue, allow"),
        ({"args": {"c": 1}}, 422, "c"),
        ({"task": "nope"}, 422, "nope"),
        ({"name": "a/b"}, 422, "slash"),
        ({"colour": "red"}, 400, "colour"),
        ({"deadline_seconds": -5}, 422, "deadline"),
    ],
)
async def test_a_wrong_schedule_is_refused_with_what_is_wrong(
    shared_client: httpx2.AsyncClient, change: dict[str, Any], status: int, says: str
) -> None:
    answer = await shared_client.post("/api/v1/schedules", json=DAILY | change)
    assert answer.status_code == status, answer.text
    assert says in answer.text
    assert (await ask(shared_client, "GET", ""))["schedules"] == []


async def test_an_unknown_schedule_is_not_found_and_a_taken_name_is_refused(app: Tidegate) -> None:
    async with direct(app) as client:
        for method, path in (("GET", "/no"), ("DELETE", "/no"), ("POST", "/no/pause"), ("GET", "/no/ticks")):
            await ask(client, method, path, 404)
        await ask(client, "PATCH", "/no", 404, body={"when": "@daily"})
        await ask(client, "POST", "", body=DAILY)
        await ask(client, "POST", "", body=DAILY)
        await ask(client, "POST", "", 409, body=DAILY | {"when": "@daily"})


async def test_a_declared_schedule_can_be_paused_and_run_but_not_changed(app: Tidegate) -> None:
    app.schedule("@hourly", name="declared", args=(1, 2))(app.function("web:add"))
    async with app.worker():
        pass
    async with direct(app) as client:
        await ask(client, "PATCH", "/declared", 409, body={"when": "@daily"})
        await ask(client, "DELETE", "/declared", 409)
        assert (await ask(client, "POST", "/declared/pause"))["application"] is not None
        await ask(client, "POST", "/declared/run", 202)


async def test_a_name_with_a_colon_and_other_letters_can_be_used_in_a_path(app: Tidegate) -> None:
    async with direct(app) as client:
        await ask(client, "POST", "", body=DAILY | {"name": "Täglich: 7 Uhr?"})
        assert (await ask(client, "GET", "/T%C3%A4glich%3A%207%20Uhr%3F"))["name"] == "Täglich: 7 Uhr?"
