"""Tasks by id and in pages: status, result, history, cancel, retry, dead letters, figures."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx2
import jsonschema
import pytest
from web_support import UNKNOWN, Served, bearer, direct, make, served

from tidegate import Tidegate
from tidegate.internals import core_of
from tidegate.web import Role

pytestmark = pytest.mark.anyio


async def submit(api: Served, task: str, **asked: Any) -> str:
    async with api.client() as client:
        answer = await client.post("/api/v1/tasks", json={"task": task} | asked)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["task_id"])


async def dead(api: Served, count: int = 1, message: str = "no") -> list[str]:
    ids = [await submit(api, "web:fail", args=[message]) for _ in range(count)]
    async with api.app.worker():
        await asyncio.gather(
            *(core_of(api.app).task_watcher(core_of(api.app).store).final(task_id) for task_id in ids)
        )
    return ids


async def test_an_unchanged_status_is_not_sent_again(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        task_id = await submit(api, "web:add", args=[1])
        first = await client.get(f"/api/v1/tasks/{task_id}")
        known = {"If-None-Match": first.headers["etag"]}
        again = await client.get(f"/api/v1/tasks/{task_id}", headers=known)
        assert (again.status_code, again.content) == (304, b"")
        await client.post(f"/api/v1/tasks/{task_id}/cancel")
        changed = await client.get(f"/api/v1/tasks/{task_id}", headers=known)
        assert (changed.status_code, changed.json()["state"]) == (200, "cancelled")


async def test_a_status_shows_what_the_calls_of_the_task_consumed(app: Tidegate) -> None:
    upstream = app.upstream("model")

    @app.task(name="web:ask")
    async def ask() -> None:
        async with upstream.call() as call:
            call.used({"usage": {"prompt_tokens": 7, "completion_tokens": 3}})

    async with served(app) as api, api.client() as client:
        task_id, other = await submit(api, "web:ask"), await submit(api, "web:add", args=[1])
        async with api.app.worker():
            for each in (task_id, other):
                await core_of(api.app).task_watcher(core_of(api.app).store).final(each)
        shown = (await client.get(f"/api/v1/tasks/{task_id}")).json()["usage"]
        assert (await client.get(f"/api/v1/tasks/{other}")).json()["usage"] is None
        document = (await client.get("/api/v1/openapi.json")).json()
    assert shown == {
        "calls": 1, "input_tokens": 7, "cached_tokens": 0, "cache_write_tokens": 0, "output_tokens": 3,
        "reasoning_tokens": 0,
    }  # fmt: skip
    jsonschema.validate(
        {"usage": shown},
        {
            "type": "object",
            "properties": {"usage": document["components"]["schemas"]["TaskOut"]["properties"]["usage"]},
            "components": document["components"],
        },
    )


async def test_a_dead_tasks_result_gives_the_reason_with_secrets_masked(app: Tidegate) -> None:
    secret = "refused: Authorization: Bearer t-2-secret, key sk-test-1abc, at postgresql://u:hunter2@h/db"
    async with served(app) as api, api.client() as client:
        [task_id] = await dead(api, message=secret)
        result = (await client.get(f"/api/v1/tasks/{task_id}/result")).json()
        assert (result["state"], result["result"]) == ("dead", None)
        assert result["error"]["error_class"] == "tidegate.verdicts.Permanent"
        shown = [
            (await client.get(path)).text
            for path in (
                f"/api/v1/tasks/{task_id}", f"/api/v1/tasks/{task_id}/result", f"/api/v1/tasks/{task_id}/history",
                "/api/v1/dead-letters", "/api/v1/tasks",
            )
        ]  # fmt: skip
    for text in shown:
        assert "refused" in text
        for hidden in ("t-2-secret", "sk-test-1abc", "hunter2"):
            assert hidden not in text


async def test_a_cancel_answers_what_it_did_and_can_be_repeated(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        task_id = await submit(api, "web:add", args=[1])
        answers = [
            await client.post(f"/api/v1/tasks/{task_id}/cancel", json={"why": "late"}) for _ in range(2)
        ]
        assert [answer.json() for answer in answers] == [
            {"task_id": task_id, "answer": "cancelled"},
            {"task_id": task_id, "answer": "finished"},
        ]
        history = (await client.get(f"/api/v1/tasks/{task_id}/history")).json()["history"]
        assert any(entry["kind"] == "cancel requested" and entry["why"] == "late" for entry in history)


async def test_a_dead_task_is_retried_and_one_that_runs_is_not(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        [task_id] = await dead(api)
        assert (await client.post(f"/api/v1/tasks/{task_id}/retry")).status_code == 202
        assert (await client.get(f"/api/v1/tasks/{task_id}")).json()["state"] == "ready"
        refused = await client.post(f"/api/v1/tasks/{task_id}/retry")
        assert (refused.status_code, refused.json()["type"]) == (409, "/api/v1/problems/refused")
        waiting = await submit(api, "web:add", args=[1], delay_seconds=600)
        assert (await client.post(f"/api/v1/tasks/{waiting}/retry")).status_code == 202
        assert (await client.get(f"/api/v1/tasks/{waiting}")).json()["state"] == "ready"


async def test_tasks_are_paged_by_key_and_filtered(app: Tidegate) -> None:
    async with served(app, page_limit=3) as api, api.client() as client:
        ids = [
            await submit(api, "web:add", args=[number], labels={"n": str(number % 2)}) for number in range(7)
        ]
        seen: list[str] = []
        page = (await client.get("/api/v1/tasks?limit=500")).json()
        while True:
            seen += [task["task_id"] for task in page["tasks"]]
            if page["next"] is None:
                break
            page = (await client.get(f"/api/v1/tasks?limit=3&after={page['next']}")).json()
        assert seen == ids[::-1]
        odd = (await client.get("/api/v1/tasks?label=n=1&state=ready&function=web:add")).json()["tasks"]
        assert [task["task_id"] for task in odd] == [ids[5], ids[3], ids[1]]
        assert (await client.get("/api/v1/tasks?state=dead")).json() == {"tasks": [], "next": None}
        for wrong in ("state=gone", "limit=0", "limit=x", "label=n", "queue=" + "q" * 300):
            assert (await client.get(f"/api/v1/tasks?{wrong}")).status_code == 400


async def test_dead_letters_are_listed_without_arguments_redriven_and_purged(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        ids = await dead(api, 3, "because")
        letters = (await client.get("/api/v1/dead-letters?limit=2")).json()
        assert len(letters["dead_letters"]) == 2
        assert "args" not in letters["dead_letters"][0]
        rest = (await client.get(f"/api/v1/dead-letters?limit=2&after={letters['next']}")).json()
        assert {one["task_id"] for one in letters["dead_letters"] + rest["dead_letters"]} == set(ids)
        asked = {"task_ids": [ids[0], ids[0], "unknown"]}
        assert (await client.post("/api/v1/dead-letters/redrive", json=asked)).json()["tasks"] == [
            {"task_id": ids[0], "answer": "done"},
            {"task_id": "unknown", "answer": "unknown"},
        ]
        purged = await client.post("/api/v1/dead-letters/purge", json={"task_ids": ids})
        assert [one["answer"] for one in purged.json()["tasks"]] == ["refused", "done", "done"]
        assert (await client.get(f"/api/v1/tasks/{ids[1]}")).status_code == 404


async def test_deaths_are_counted_by_reason_and_grouped_by_failure(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        *_, last = await dead(api, 2, "page 1 is empty")
        await client.post("/api/v1/dead-letters/purge", json={"task_ids": [last]})
        counts = await client.get("/api/v1/dead-letters/statistics", params={"step": "day"})
        assert [(row["function"], row["deaths"]) for row in counts.json()["deaths"]] == [("web:fail", 2)]
        groups = (await client.get("/api/v1/dead-letters/groups", params={"since": "1h"})).json()["groups"]
        assert [(group["shape"], group["deaths"]) for group in groups] == [("page <number> is empty", 2)]
        assert groups[0]["functions"] == ["web:fail"]
        other = await client.get("/api/v1/dead-letters/groups", params={"queue": "other"})
        assert other.json() == {"groups": []}
        for params, status in (
            ({"since": "soon"}, 422),
            ({"step": "week"}, 400),
            ({"since": "1h", "until": "2h"}, 422),
        ):
            refused = await client.get("/api/v1/dead-letters/statistics", params=params)
            assert refused.status_code == status, params


async def test_counters_are_read_by_period_and_channel(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        await dead(api, 2)
        answer = await client.get("/api/v1/statistics", params={"step": "day", "function": "web:fail"})
        (row,) = answer.json()["statistics"]
        assert (row["enqueued"], row["started"], row["dead"], row["succeeded"]) == (2, 2, 2, 0)
        assert row["upstream"] is None
        assert 0.0 <= row["run_p50"] <= row["run_p95"]
        other = await client.get("/api/v1/statistics", params={"queue": "other"})
        assert other.json() == {"statistics": []}


async def test_the_deaths_of_all_tenants_are_hidden_from_a_token_of_one(app: Tidegate) -> None:
    token = await make(app, Role.OPERATOR, "acme")
    async with direct(app) as client:
        for path in ("dead-letters/statistics", "dead-letters/groups", "statistics"):
            answer = await client.get(f"/api/v1/{path}", headers=bearer(token))
            assert answer.status_code == 403


async def test_dead_tasks_of_another_application_are_retried_and_redriven(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        first, second = await dead(api, 2)
        del core_of(app).functions["web:fail"]
        asked = {"task_ids": [second]}
        for path, body in ((f"tasks/{first}/retry", None), ("dead-letters/redrive", asked)):
            refused = await client.post(f"/api/v1/{path}", json=body)
            assert (refused.status_code, "no application declares web:fail" in refused.text) == (409, True)
        await core_of(app).store.save_manifest("other:app", {"functions": ["web:fail"]})
        assert (await client.post(f"/api/v1/tasks/{first}/retry")).status_code == 202
        redriven = await client.post("/api/v1/dead-letters/redrive", json=asked)
        assert redriven.json() == {"tasks": [{"task_id": second, "answer": "done"}]}


async def test_functions_are_listed_with_a_schema_that_fits_their_arguments(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        functions = {one["name"]: one for one in (await client.get("/api/v1/functions")).json()["functions"]}
    add = functions["web:add"]
    assert (add["signature"], add["doc"], add["queue"]) == (
        "(a: int, b: int = 0) -> int",
        "Add two numbers.",
        "default",
    )
    jsonschema.Draft202012Validator.check_schema(add["arguments"])
    jsonschema.validate({"a": 1}, add["arguments"])
    for wrong in ({}, {"a": "x"}, {"a": 1, "c": 2}, [1]):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, add["arguments"])
    assert "ctx" not in functions["web:tokens"]["arguments"]["properties"]


async def test_queues_and_workers_are_shown_at_a_glance(app: Tidegate) -> None:
    async with served(app, worker=True) as api, api.client() as client:
        await submit(api, "web:add", args=[1], delay_seconds=600)
        queues = (await client.get("/api/v1/queues")).json()["queues"]
        assert [(queue["queue"], queue["scheduled"]) for queue in queues] == [("default", 1)]
        assert (queues[0]["drain"]["kind"], queues[0]["drain"]["seconds"]) == ("seconds", 0.0)
        workers = (await client.get("/api/v1/workers")).json()["workers"]
        assert [(worker["live"], worker["running"]) for worker in workers] == [(True, 0)]


async def test_a_queue_shows_why_its_tasks_wait(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        await submit(api, "web:add", args=[1])
        (queue,) = (await client.get("/api/v1/queues")).json()["queues"]
    assert (queue["ready"], queue["paced"], queue["blocked"]) == (0, 0, 1)
    (wait,) = queue["waits"]
    assert (wait["kind"], wait["by"], wait["tasks"]) == ("blocked", "workers", 1)
    assert wait["reason"].startswith("nothing serves the queue default: no live worker")


async def test_a_short_id_is_taken_among_the_tasks_a_client_may_see(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        first = await submit(api, "web:add", args=[1])
        second = await submit(api, "web:add", args=[1])
        shown = (await client.get(f"/api/v1/tasks/{first[:23]}")).json()
        assert shown["task_id"] == first
        several = await client.get(f"/api/v1/tasks/{first[:8]}")
        assert several.status_code == 422
        assert first in several.text
        assert second in several.text
        cancelled = await client.post(f"/api/v1/tasks/{second[:23]}/cancel")
        assert cancelled.json()["task_id"] == second
        assert (await client.get("/api/v1/tasks/ffff0000")).status_code == 404


async def test_it_reports_liveness_and_readiness(app: Tidegate, monkeypatch: pytest.MonkeyPatch) -> None:
    await make(app, Role.ADMIN)
    async with served(app) as api, api.client() as client:
        assert (await client.get("/livez")).json() == {"status": "alive"}
        assert (await client.get("/readyz")).json() == {"status": "ready"}

        async def away() -> float:
            from tidegate import StoreUnavailableError

            raise StoreUnavailableError("the disk is gone")

        monkeypatch.setattr(core_of(app).store, "now", away)
        assert (await client.get("/livez")).status_code == 200
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "TG301")
        assert "the disk" not in answer.text


async def test_probes_by_the_address_of_the_machine_are_answered(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate import StoreUnavailableError

    async def away() -> float:
        raise StoreUnavailableError("the disk is gone")

    probe = {"Host": "10.1.2.3:4180", "User-Agent": "kube-probe/1.34"}
    async with served(app) as api, api.client() as client:
        assert (await client.get("/livez", headers=probe)).status_code == 200
        assert (await client.get("/readyz", headers=probe)).status_code == 200
        assert (await client.get("/api/v1/queues", headers=probe)).status_code == 421

        monkeypatch.setattr(core_of(app).store, "now", away)
        assert "the disk" in (await client.get("/readyz")).text  # everybody here is an admin
        assert "the disk" not in (await client.get("/readyz", headers=probe)).text


@pytest.mark.parametrize(
    ("role", "tenant", "is_reported"),
    [
        (Role.VIEWER, None, True),
        (Role.ADMIN, None, True),
        (Role.SUBMITTER, None, False),
        (Role.ADMIN, "a", False),
    ],
)
async def test_the_reason_of_unreadiness_is_shown_to_roles_of_all_tenants_only(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch, role: Role, tenant: str | None, is_reported: bool
) -> None:
    from tidegate import StoreUnavailableError

    async def away(*_: Any) -> Any:
        raise StoreUnavailableError("/srv/secret/queue.db is gone")

    token = await make(app, role, tenant)
    async with direct(app) as client:
        assert (await client.get("/api/v1/functions", headers=bearer(token))).status_code == 200
        for method in ("now", "find_token", "list_tokens"):
            monkeypatch.setattr(core_of(app).store, method, away)
        answer = await client.get("/readyz", headers=bearer(token))
        stranger = await client.get("/readyz")
    assert ("/srv/secret" in answer.text) is is_reported
    assert "/srv/secret" not in stranger.text
    assert (stranger.status_code, stranger.json()["code"]) == (503, "TG301")


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("tasks?after=x", "after"), ("tasks?after=", "after"), ("dead-letters?after=1", "after"),
        ("audit?after=zzz", "after"), ("tasks?limit=0", "limit"), ("tasks?limit=x", "limit"),
        ("tasks?state=done", "state"), ("tasks?label=user", "label"), ("tasks?label=a%00=1", "label"),
        ("tasks?queue=%00", "queue"), ("dead-letters?error_class=%00", "error_class"),
        ("tasks?function=" + "f" * 300, "function"), ("tasks?quue=mail", "quue"),
        ("dead-letters?state=dead", "state"), (f"tasks/{UNKNOWN}/events?after=-1", "after"),
    ],
)  # fmt: skip
async def test_a_parameter_that_cannot_be_used_is_refused_by_name(
    shared_client: httpx2.AsyncClient, path: str, parameter: str
) -> None:
    answer = await shared_client.get(f"/api/v1/{path}")
    assert (answer.status_code, answer.json()["type"]) == (400, "/api/v1/problems/parameters")
    assert f"query.{parameter}" in answer.json()["errors"][0]["at"]
    assert answer.json()["detail"]


async def test_a_page_continues_after_any_next_id(app: Tidegate) -> None:
    task = await app.function("web:add").enqueue(1)
    async with direct(app) as client:
        for after in (UNKNOWN, task.id, task.id.upper()):
            answer = await client.get("/api/v1/tasks", params={"after": after})
            assert (answer.status_code, answer.json()["tasks"]) == (200, [])


async def test_a_result_that_could_not_be_stored_is_marked_as_such(app: Tidegate) -> None:
    @app.task(name="web:odd")
    async def odd(kind: str) -> Any:
        return {"object": object(), "same": {"type_name": "object", "reason": "x"}}[kind]

    async with app.worker(), direct(app) as client:
        for kind in ("object", "same"):
            asked = {"task": "web:odd", "args": [kind]}
            waited = await client.post("/api/v1/tasks", json=asked, headers={"Prefer": "wait=10"})
            shown = (await client.get(f"{waited.headers['location']}/result")).json()
            assert shown == waited.json()
            assert shown["state"] == "succeeded"
            if kind == "object":
                assert (shown["result"], shown["unstorable"]["type"]) == (None, "object")
                assert shown["unstorable"]["reason"]
            else:
                assert shown["result"] == {"type_name": "object", "reason": "x"}
                assert shown["unstorable"] is None


async def test_pages_of_named_origins_can_read_every_refusal_also_of_the_server_itself(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    token = await make(app, Role.ADMIN)
    origin = "https://app.example"
    async with direct(app, origins=(origin,)) as client:
        headers = bearer(token) | {"Origin": origin}
        monkeypatch.setattr(core_of(app).store, "list_tasks", broken)
        answers = [
            await client.get("/api/v1/tasks", headers=headers),
            await client.get("/api/v1/tasks", headers={"Origin": origin}),
            await client.get("/api/v1/nothing", headers=headers),
        ]
    assert [answer.status_code for answer in answers] == [500, 401, 404]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == origin


async def test_an_unavailable_store_is_a_503_with_retry_after(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate import StoreBusyError, StoreUnavailableError

    async with served(app) as api, api.client() as client:
        for error, slug in ((StoreBusyError, "store-busy"), (StoreUnavailableError, "store-unavailable")):

            async def away(*_: Any, error: Any = error, **__: Any) -> Any:
                raise error("path /secret/place", fix="try again")

            for method in ("enqueue", "read_tasks", "list_tasks", "get_overview"):
                monkeypatch.setattr(core_of(app).store, method, away)
            answers = [
                await client.post("/api/v1/tasks", json={"task": "web:add", "args": [1]}),
                await client.post("/api/v1/tasks/batch", json={"tasks": [{"task": "web:add", "args": [1]}]}),
                *[
                    await client.get(f"/api/v1/{path}")
                    for path in ("tasks", "tasks/x", "tasks/x/events", "queues")
                ],
            ]
            for answer in answers:
                assert (answer.status_code, answer.json()["type"]) == (503, f"/api/v1/problems/{slug}")
                assert answer.headers["retry-after"]
                assert "/secret" not in answer.text


async def test_an_internal_error_is_a_problem_without_details(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("inner secret")

    async with served(app) as api, api.client() as client:
        monkeypatch.setattr(core_of(app).store, "get_overview", broken)
        answer = await client.get("/api/v1/queues")
        assert (answer.status_code, answer.json()["type"]) == (500, "/api/v1/problems/internal")
        assert "secret" not in answer.text
        assert (await client.get("/nowhere")).status_code == 404
        wrong = await client.delete("/api/v1/tasks")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST") or wrong.status_code == 405


async def test_the_start_page_describes_the_api_and_shows_no_tasks(app: Tidegate) -> None:
    await make(app, Role.ADMIN)
    task = await app.function("web:add").enqueue(1)
    async with direct(app) as client:
        page = await client.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "api/v1" in page.text
        assert task.id not in page.text
        for link in re.findall(r'href="([^"]+)"', page.text):
            assert (await client.get(f"/{link}")).status_code == (401 if "openapi" in link else 200)


async def test_dead_letters_are_exported_as_lines_and_found_by_fingerprint_and_time(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        ids = await dead(api, 3, "because")
        lines = [
            json.loads(line) for line in (await client.get("/api/v1/dead-letters/export")).text.splitlines()
        ]
        assert sorted(line["task_id"] for line in lines[:-1]) == sorted(ids)
        assert lines[-1] == {"complete": True, "count": 3}
        fingerprint = lines[0]["fingerprint"]
        for query, count in (
            (f"fingerprint={fingerprint}", 3),
            ("fingerprint=" + "0" * 16, 0),
            ("since=1h", 3),
            ("before=1h", 0),
        ):
            found = (await client.get(f"/api/v1/dead-letters?{query}")).json()
            assert len(found["dead_letters"]) == count, query
            lines = (await client.get(f"/api/v1/dead-letters/export?{query}")).text.splitlines()
            assert len(lines) == count + 1, query
        assert (await client.get("/api/v1/dead-letters?fingerprint=xyz")).status_code == 422
        (surge,) = (await client.get("/api/v1/dead-letters/surges?by=fingerprint")).json()["surges"]
        assert (surge["key"], surge["count"]["now"], surge["surges"]) == (fingerprint, 3, False)


async def test_groups_of_failures_are_resolved_muted_reopened_and_reviewed(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        await dead(api, 1, "because")
        groups = "/api/v1/dead-letters/groups"
        (group,) = (await client.get(groups)).json()["groups"]
        fingerprint = group["fingerprint"]
        for act, body, state in (
            ("resolve", {"note": "mended"}, "resolved"),
            ("mute", {"seconds": 60}, "muted"),
            ("reopen", None, "open"),
        ):
            done = await client.post(f"{groups}/{fingerprint[:8]}/{act}", json=body)
            assert done.json()["state"] == state, done.text
            (group,) = (await client.get(f"{groups}?state={state}")).json()["groups"]
            assert group["state"] == state
        assert (await client.post(f"{groups}/{'0' * 16}/resolve", json={})).status_code == 422
        assert (await client.get(f"{groups}?tenant=none")).json() == {"groups": []}
        assert (await client.get("/api/v1/failures/unknown")).json() == {"failures": []}
