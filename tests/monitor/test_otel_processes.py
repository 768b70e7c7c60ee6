"""Traces and log lines through a real worker: its pool process and its child processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import all_final, load_app, worker_process
from tidegate import Tidegate
from tidegate.internals import core_of
from tidegate.store.rows import TaskFilter

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


def lines_of(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


async def test_spans_and_log_lines_of_a_child_process_belong_to_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_app("traced", tmp_path, monkeypatch)
    env = {
        "SPANS": str(tmp_path / "spans.ndjson"),
        "TIDEGATE_RUN_SPANS": "parent",
        "TIDEGATE_LOG_FORMAT": "json",
    }
    with worker_process("traced:app", tmp_path, **env) as worker:
        handle = await module.in_a_child.using(traceparent=TRACEPARENT).enqueue()
        await handle.result(timeout=90)
        await all_final(module.app, await children_of(module.app, handle.id), within=90)
        worker.process.terminate()
        worker.wait(60)
        log = lines_of(worker.log())
    spans = [json.loads(line) for line in (tmp_path / "spans.ndjson").read_text().splitlines()]
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{TRACE}"}
    (inside,) = [span for span in spans if span["name"] == "inside the child"]
    (send,) = [span for span in spans if span["name"] == "send default"]
    runs = {
        span["attributes"]["tidegate.task.name"]: span for span in spans if span["name"] == "process default"
    }
    first, second = runs["traced:in_a_child"], runs["traced:note"]
    assert inside["parent_id"] == send["parent_id"] == first["context"]["span_id"]
    assert second["parent_id"] == send["context"]["span_id"]
    by_message = {line["message"]: line for line in log}
    logged = by_message["logged in the child"]
    assert logged["span_id"] == inside["context"]["span_id"].removeprefix("0x")
    for message, function in (
        ("logged in the child", "traced:in_a_child"),
        ("logged in a thread of the child", "traced:in_a_child"),
        ("logged on the loop", "traced:note"),
    ):
        line = by_message[message]
        assert (line["trace_id"], line["function"], line["run"], line["queue"]) == (
            TRACE, function, 1, "default"
        )  # fmt: skip
    ends = [line for line in log if line["message"].startswith("succeeded: ")]
    assert {line["trace_id"] for line in ends} == {TRACE}
    assert len(ends) == 2


async def test_without_opentelemetry_log_lines_have_the_trace_of_the_enqueue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_app("logging_app", tmp_path, monkeypatch)
    with worker_process("logging_app:app", tmp_path, TIDEGATE_LOG_FORMAT="json") as worker:
        handles = [
            await function.using(traceparent=TRACEPARENT).enqueue("hello")
            for function in (module.on_the_loop, module.in_a_thread, module.in_a_child, module.fails)
        ]
        await all_final(module.app, [handle.id for handle in handles], within=90)
        worker.process.terminate()
        worker.wait(60)
        log = lines_of(worker.log())
    of_tasks = [line for line in log if line.get("task_id")]
    logged_lines = [line for line in of_tasks if line["message"] == "hello"]
    assert {line["function"].partition(":")[2] for line in logged_lines} == {
        "on_the_loop",
        "in_a_thread",
        "in_a_child",
    }
    assert {(line["trace_id"], line.get("span_id")) for line in logged_lines} == {(TRACE, SPAN)}
    assert {line["trace_id"] for line in of_tasks} == {TRACE}
    assert sum(line["message"].startswith(("succeeded: ", "dead: ")) for line in of_tasks) == 4


async def children_of(app: Tidegate, task_id: str) -> list[str]:
    store = await core_of(app).opened_store()
    return [row.id for row in await store.list_tasks(TaskFilter(), after=None, limit=10) if row.id != task_id]
