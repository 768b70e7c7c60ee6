"""Submitting over HTTP: stored and answered at once, checked, and never twice for one key."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from web_support import UNKNOWN, make, served

from support import until
from tidegate import FinalState, Tidegate
from tidegate.internals import core_of
from tidegate.store.rows import ClaimRequest, CrashPolicy, TaskFilter
from tidegate.store.worker_rows import NewWorker
from tidegate.web import Role

pytestmark = pytest.mark.anyio

ADD = {"task": "web:add", "args": {"a": 1, "b": 2}}


async def test_a_submit_is_stored_and_answered_with_where_it_is(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        answer = await client.post("/api/v1/tasks", json=ADD)
        assert answer.status_code == 202
        body = answer.json()
        assert body == {
            "task_id": body["task_id"],
            "created": True,
            "location": f"/api/v1/tasks/{body['task_id']}",
        }
        assert answer.headers["location"] == body["location"]
        assert answer.headers["retry-after"] == "1"
        status = (await client.get(answer.headers["location"])).json()
        assert (status["state"], status["function"], status["task_id"]) == (
            "ready",
            "web:add",
            body["task_id"],
        )


async def test_a_task_continues_the_trace_of_the_request_and_its_status_names_it(app: Tidegate) -> None:
    trace, other = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01", "tracestate": "vendor=1"}
    async with served(app) as api, api.client() as client:
        one = await client.post("/api/v1/tasks", json=ADD, headers=headers)
        batch = await client.post("/api/v1/tasks/batch", json={"tasks": [ADD]}, headers=headers)
        for where in (one.json()["location"], batch.json()["tasks"][0]["location"]):
            status = (await client.get(where)).json()
            assert status["trace_id"] == trace
            assert status["labels"]["tidegate.tracestate"] == "vendor=1"
        twice = [("traceparent", f"00-{each}-00f067aa0ba902b7-01") for each in (trace, other)]
        for wrong in ([("traceparent", "garbage")], twice, []):
            where = (await client.post("/api/v1/tasks", json=ADD, headers=wrong)).headers["location"]
            status = (await client.get(where)).json()
            assert (status["trace_id"], status["labels"]) == (None, {})


async def test_a_request_names_the_function_that_gets_the_end_of_its_task(app: Tidegate) -> None:
    body = {**ADD, "on_final": "web:note_end"}
    ended: list[FinalState] = []

    @app.task(name="web:note_end")
    async def note_end(final: FinalState) -> None:
        ended.append(final)

    async with served(app, worker=True) as api, api.client() as client:
        task_id = (await client.post("/api/v1/tasks", json=body)).json()["task_id"]

        async def came() -> bool:
            return bool(ended)

        await until(came, what="the function got the end of the task")
        assert [(final.task_id, final.state) for final in ended] == [(task_id, "succeeded")]
        for wrong, slug in (("web:nothing", "unknown-function"), ("web:add", "option"), (7, "json")):
            refused = await client.post("/api/v1/tasks", json={**ADD, "on_final": wrong})
            assert refused.json()["type"].rpartition("/")[2] == slug, refused.text


async def test_a_task_runs_and_its_result_is_pending_until_then(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        where = (await client.post("/api/v1/tasks", json=ADD)).headers["location"]
        pending = await client.get(f"{where}/result")
        assert (pending.status_code, pending.json()["state"], pending.headers["retry-after"]) == (
            202,
            "ready",
            "1",
        )
        async with app.worker():
            done = await client.get(f"{where}/result", headers={"Prefer": "wait=10"})
        assert (done.status_code, done.json()["result"], done.json()["state"]) == (200, 3, "succeeded")


@pytest.mark.parametrize("args", [{"a": 1, "b": 2}, [1, 2], [1], {"a": 1}])
async def test_arguments_come_by_name_or_by_position(app: Tidegate, args: Any) -> None:
    async with served(app, worker=True) as api, api.client(prefer="wait=10") as client:
        answer = await client.post("/api/v1/tasks", json={"task": "add", "args": args})
        assert (answer.status_code, answer.json()["result"]) == (
            200,
            sum(args.values() if isinstance(args, dict) else args),
        )
        assert answer.headers["preference-applied"] == "wait=10"


@pytest.mark.parametrize(
    ("body", "status", "slug", "at"),
    [
        ({"task": "web:add", "args": {"a": "x"}}, 422, "arguments", "args.a"),
        ({"task": "web:add", "args": {"b": 1}}, 422, "arguments", None),
        ({"task": "web:add", "args": {"a": 1, "c": 1}}, 422, "arguments", None),
        ({"task": "web:add", "args": [1, 2, 3]}, 422, "arguments", None),
        ({"task": "web:add", "args": 3}, 400, "json", "args"),
        ({"task": "web:nothing"}, 422, "unknown-function", None),
        ({"task": "os.system", "args": ["x"]}, 422, "unknown-function", None),
        ({"args": {}}, 400, "json", None),
        ({"task": "web:add", "args": {"a": 1}, "tenant": "acme"}, 400, "json", None),
        ({"task": "web:add", "args": {"a": 1}, "labels": {"a": 1}}, 400, "json", None),
        ({"task": "web:add", "args": {"a": 1}, "run_at": "tomorrow"}, 422, "option", None),
        ({"task": "web:add", "args": {"a": 1}, "run_at": "2030-01-01T00:00"}, 422, "option", None),
        ({"task": "web:add", "args": {"a": 1}, "delay_seconds": 1e300}, 422, "option", None),
        ({"task": "web:add", "args": {"a": 1}, "key": "k" * 300}, 422, "option", None),
        ({"task": "web:add", "args": {"a": 1}, "max_attempts": 0}, 422, "option", None),
        ([], 400, "json", None),
        (None, 400, "json", None),
    ],
)
async def test_an_invalid_submit_is_refused_with_its_type_and_place(
    shared_client: httpx2.AsyncClient, body: Any, status: int, slug: str, at: str | None
) -> None:
    answer = await shared_client.post("/api/v1/tasks", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = answer.json()
    assert problem["type"] == f"/api/v1/problems/{slug}"
    assert (await shared_client.get(problem["type"])).status_code == 200
    assert {"title", "detail", "status"} <= set(problem)
    assert [fault["at"] for fault in problem.get("errors", [])] == ([] if at is None else [at])
    assert (await shared_client.get("/api/v1/tasks")).json()["tasks"] == []


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"task": "web:echo", "args": {"value": NaN}}', b"\xff", b'{"task":"web:echo"} x', b"null"],
)
async def test_only_strict_json_is_read(shared_client: httpx2.AsyncClient, raw: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await shared_client.post("/api/v1/tasks", content=raw, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (400, "/api/v1/problems/json")
    text = await shared_client.post(
        "/api/v1/tasks", content=json.dumps(ADD), headers={"Content-Type": "text/plain"}
    )
    assert text.status_code == 415


async def test_size_and_depth_are_checked_before_anything_is_parsed(app: Tidegate) -> None:
    async with served(app, body_limit=10_000, depth_limit=20) as api, api.client() as client:
        deep = b'{"task":"web:echo","args":{"value":' + b"[" * 4000 + b"]" * 4000 + b"}}"
        answer = await client.post("/api/v1/tasks", content=deep)
        assert answer.json()["type"].endswith("too-deep")
        brackets = json.dumps({"task": "web:echo", "args": {"value": "[{" * 1000}})
        assert (await client.post("/api/v1/tasks", content=brackets)).status_code == 202
        large = await client.post("/api/v1/tasks", content=b"x" * 20_000)
        assert (large.status_code, large.json()["limit"]) == (413, 10_000)

        async def encode_events() -> Any:
            for _ in range(20):
                yield b"x" * 1000

        assert (await client.post("/api/v1/tasks", content=encode_events())).status_code == 413


async def test_fifty_submits_with_one_key_are_one_task(app: Tidegate) -> None:
    async with served(app) as api, api.client(idempotency_key='"k-1"') as client:
        answers = await asyncio.gather(*(client.post("/api/v1/tasks", json=ADD) for _ in range(50)))
        ids = {answer.json()["task_id"] for answer in answers}
        assert {answer.status_code for answer in answers} == {202}
        assert len(ids) == 1
        assert sum(answer.json()["created"] for answer in answers) == 1
        assert len(await (await core_of(app).opened_store()).list_tasks(TaskFilter())) == 1
        spaced = '{ "args": {"b": 2,\n "a": 1}, "task": "web:add"}'
        again = await client.post("/api/v1/tasks", content=spaced)
        assert {again.json()["task_id"]} == ids


async def test_a_key_with_another_payload_is_refused_and_one_of_another_tenant_is_its_own(
    app: Tidegate,
) -> None:
    a, b = await make(app, Role.SUBMITTER, "a"), await make(app, Role.SUBMITTER, "b")
    async with served(app) as api, api.client(a, idempotency_key="k") as one, api.client(b) as other:
        first = (await one.post("/api/v1/tasks", json=ADD)).json()
        refused = await one.post("/api/v1/tasks", json={"task": "web:add", "args": {"a": 2}})
        assert (refused.status_code, refused.json()["code"]) == (422, "TG109")
        assert "'k'" in refused.json()["detail"]
        second = (await other.post("/api/v1/tasks", json=ADD | {"key": "k"})).json()
        assert second["created"]
        assert second["task_id"] != first["task_id"]


@pytest.mark.parametrize("key", ['""', "k" * 256, '"' + "k" * 300 + '"', '"a', "a b", '"ü"'])
async def test_a_key_that_cannot_be_used_is_refused(shared_client: httpx2.AsyncClient, key: str) -> None:
    answer = await shared_client.post(
        "/api/v1/tasks", json=ADD, headers={"Idempotency-Key": key.encode("latin-1")}
    )  # type: ignore[dict-item]
    assert (answer.status_code, answer.json()["type"]) == (400, "/api/v1/problems/idempotency-key")


async def test_a_key_names_its_task_also_when_that_is_final_and_after_a_restart(app: Tidegate) -> None:
    async with served(app, worker=True) as api, api.client(idempotency_key="k", prefer="wait=10") as client:
        first = (await client.post("/api/v1/tasks", json=ADD)).json()
        assert first["state"] == "succeeded"
    async with served(app) as api, api.client(idempotency_key="k") as client:
        again = (await client.post("/api/v1/tasks", json=ADD)).json()
        assert (again["task_id"], again["created"]) == (first["task_id"], False)


async def test_waiting_is_asked_for_bounded_and_never_holds_a_submit_back(app: Tidegate) -> None:
    async with served(app, wait_limit=0.3, waiters=2) as api, api.client(prefer="wait=20") as client:
        begun = time.monotonic()
        answers = await asyncio.gather(*(client.post("/api/v1/tasks", json=ADD) for _ in range(10)))
        assert {answer.status_code for answer in answers} == {202}
        assert time.monotonic() - begun < 5
        assert api.context.waiters.taken == 0


async def test_a_batch_is_stored_as_a_whole_or_not_at_all(app: Tidegate) -> None:
    async with served(app, batch_limit=5) as api, api.client() as client:
        answer = await client.post("/api/v1/tasks/batch", json={"tasks": [ADD] * 4 + [{"task": "web:echo"}]})
        assert answer.status_code == 202
        ids = [one["task_id"] for one in answer.json()["tasks"]]
        assert len(set(ids)) == 5
        faulty = {"tasks": [ADD, {"task": "web:add", "args": {"a": "x"}}, {"task": "no"}]}
        refused = await client.post("/api/v1/tasks/batch", json=faulty)
        assert refused.status_code == 422
        assert [fault["at"] for fault in refused.json()["errors"]] == ["tasks[1].args.a", "tasks[2]"]
        many = await client.post("/api/v1/tasks/batch", json={"tasks": [ADD] * 6})
        assert (many.status_code, many.json()["limit"]) == (413, 5)
        keyed = await client.post(
            "/api/v1/tasks/batch", json={"tasks": [ADD]}, headers={"Idempotency-Key": "k"}
        )
        assert keyed.status_code == 400
        assert (await client.post("/api/v1/tasks/batch", json={"tasks": []})).json() == {"tasks": []}
        assert len(await (await core_of(app).opened_store()).list_tasks(TaskFilter())) == 5


async def test_options_reach_the_task(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        asked = ADD | {
            "labels": {"user": "ada"}, "delay_seconds": 60, "priority": "interactive", "queue": "q",
            "max_attempts": 7, "key": "k",
        }  # fmt: skip
        where = (await client.post("/api/v1/tasks", json=asked)).headers["location"]
        status = (await client.get(where)).json()
    shown = {name: status[name] for name in ("labels", "state", "priority", "queue", "key")}
    assert shown == {
        "labels": {"user": "ada"}, "state": "scheduled", "priority": "interactive", "queue": "q", "key": "k",
    }  # fmt: skip


async def test_a_submitter_cannot_jump_the_queue(app: Tidegate) -> None:
    token = await make(app, Role.SUBMITTER, "a")
    async with served(app) as api, api.client(token) as client:
        for option in (
            {"priority": "interactive"},
            {"queue": "vip"},
            {"max_attempts": 9},
            {"timeout_seconds": 9},
        ):
            assert (await client.post("/api/v1/tasks", json=ADD | option)).status_code == 403


async def test_large_numbers_and_odd_values_survive_the_wire(app: Tidegate) -> None:
    async with served(app, worker=True) as api, api.client(prefer="wait=10") as client:

        async def echoed(raw: str) -> Any:
            body = f'{{"task":"web:echo","args":{{"value":{raw}}}}}'
            answer = await client.post("/api/v1/tasks", content=body)
            assert answer.status_code == 200, answer.text
            return answer.json()["result"]

        assert await echoed("9007199254740991") == 9007199254740991
        assert await echoed("[9007199254740993, -123456789012345678901234567890]") == [
            "9007199254740993",
            "-123456789012345678901234567890",
        ]
        assert await echoed('"1234567890123456 a\\u0000b"') == "1234567890123456 a\x00b"
        assert await echoed("0.1234567890123456789") == 0.12345678901234568
        assert await echoed('{"k\\u0000": [null, true, 1.5]}') == {"k\x00": [None, True, 1.5]}


async def test_an_answer_to_a_lost_submit_is_found_by_its_key(app: Tidegate) -> None:
    """As if the server was killed between commit and answer."""
    function = app.function("web:add")
    first = await function.using(key="k").enqueue(1, 2)
    async with served(app) as api, api.client(idempotency_key="k") as client:
        assert (await client.post("/api/v1/tasks", json=ADD)).json()["task_id"] == first.id
        assert (await client.get(f"/api/v1/tasks/{UNKNOWN}")).status_code == 404


@pytest.mark.parametrize(
    ("field", "value", "fix"),
    [
        ("priority", 5, "interactive, normal, bulk"),
        ("priority", "urgent", "interactive, normal, bulk"),
        ("delay_seconds", "soon", '"5m"'),
        ("delay_seconds", -5, "from 0"),
        ("deadline_seconds", True, '"5m"'),
        ("timeout_seconds", [1], '"5m"'),
    ],
)
async def test_an_invalid_option_is_refused_with_its_field_and_valid_values(
    shared_client: httpx2.AsyncClient, field: str, value: Any, fix: str
) -> None:
    answer = await shared_client.post("/api/v1/tasks", json=ADD | {field: value})
    assert (answer.status_code, answer.json()["type"]) == (422, "/api/v1/problems/option")
    assert field in answer.json()["detail"]
    assert fix in json.dumps(answer.json(), ensure_ascii=False).replace('\\"', '"')


async def test_durations_come_as_text_too_and_a_deadline_before_the_delay_is_refused(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        late = {"delay_seconds": "1h", "deadline_seconds": "30m"}
        assert (await client.post("/api/v1/tasks", json=ADD | late)).status_code == 422
        batch = {"tasks": [ADD, ADD | late]}
        assert (await client.post("/api/v1/tasks/batch", json=batch)).status_code == 422
        in_time = {"delay_seconds": "30m", "deadline_seconds": "1h", "timeout_seconds": 5}
        answer = await client.post("/api/v1/tasks", json=ADD | in_time)
        status = (await client.get(answer.json()["location"])).json()
        assert round(status["deadline_at"] - status["due_at"]) == 1800


async def test_a_deadline_comes_as_a_moment_too_and_a_total_timeout_is_stored_with_the_task(
    app: Tidegate,
) -> None:
    async with served(app) as api, api.client() as client:
        moment = {"deadline_at": "2100-01-01T00:00:00Z", "total_timeout_seconds": "15m"}
        answer = await client.post("/api/v1/tasks", json=ADD | moment)
        status = (await client.get(answer.json()["location"])).json()
        assert status["deadline_at"] == datetime(2100, 1, 1, tzinfo=UTC).timestamp()
        both = await client.post("/api/v1/tasks", json=ADD | moment | {"deadline_seconds": 60})
        assert (both.status_code, both.json()["type"]) == (422, "/api/v1/problems/option")
    await core_of(app).store.add_worker(NewWorker("w", "w", "default", "here", 1, ("*",), 10, 30.0))
    ((task),) = (
        await core_of(app).store.claim(
            ClaimRequest("w", 10, ("*",), {name: CrashPolicy() for name in core_of(app).functions})
        )
    ).tasks
    assert (task.total_timeout_seconds, task.deadline_at) == (900.0, status["deadline_at"])


async def test_the_document_names_the_priorities_in_their_order(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        schemas = (await client.get("/api/v1/openapi.json")).json()["components"]["schemas"]

    asked = schemas["SubmitRequest"]["properties"]["priority"]
    assert asked["enum"] == ["interactive", "normal", "bulk", None]
    assert "otherwise `normal`" in asked["description"]
    assert schemas["TaskOut"]["properties"]["priority"]["enum"] == ["interactive", "normal", "bulk"]
