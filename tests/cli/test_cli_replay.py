"""`tidegate replay`: the function of a stored task runs here, and the store stays as it is."""

from __future__ import annotations

import importlib
import json
import socket
import threading
from typing import Any

import pytest

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Dead
from tidegate.store.rows import TaskFilter

TASKS = """
import asyncio
import socket
import subprocess
import sys
import threading
import time
import httpx2
from tidegate import Context, Tidegate, Transient

app = Tidegate()
STARTED = []

@app.on_start
async def start():
    STARTED.append("loop")

@app.on_child_start
def child_start():
    STARTED.append("child")

@app.task(max_attempts=1)
async def tags(ctx: Context, doc: dict) -> int:
    print("a line of its own")
    ctx.progress(1, 2, "reading")
    await ctx.emit({"part": "Hello"})
    await count.enqueue(7)
    return len(doc["tags"])

@app.task(max_attempts=3)
def count(number: int) -> list:
    return [number, *STARTED]

@app.task(max_attempts=3)
def busy(ctx: Context) -> str:
    seen = ctx.last_failure and ctx.last_failure.message
    raise Transient(f"run {ctx.run}, attempt {ctx.attempt} of {ctx.max_attempts} after {seen}")

@app.task(timeout=0.2)
def hang() -> None:
    while True:
        time.sleep(0.01)

provider = app.upstream("provider")

@app.task(max_attempts=1, upstream=provider)
def ask() -> None:
    with httpx2.Client(transport=provider.transport(httpx2.HTTPTransport()), timeout=600) as client:
        client.get("http://provider/")

GO_ON, ENDED, TRIED = threading.Event(), threading.Event(), []

@app.task(timeout=0.1)
def outlive(port: int) -> None:
    try:
        GO_ON.wait(60)
    except BaseException:
        pass
    for tries in (lambda: count.enqueue_sync(1), lambda: call.function(port)):
        try:
            TRIED.append(tries())
        except Exception as error:
            TRIED.append(type(error).__name__)
    ENDED.set()

@app.task(timeout=0.2)
async def wait() -> None:
    await asyncio.sleep(60)

@app.task(max_attempts=1)
def elsewhere(path: str) -> str:
    other = Tidegate("sqlite:///" + path)
    other.task(name="other:f")(count.function).enqueue_sync(1)
    return "stored"

@app.task(max_attempts=1)
def in_a_process(path: str) -> str:
    command = [sys.executable, "-m", "tidegate.cli", "db", "upgrade", "--database", "sqlite:///" + path]
    return subprocess.run(command, capture_output=True, text=True).stderr

@app.task(max_attempts=1)
def call(port: int) -> str:
    socket.create_connection(("127.0.0.1", port)).close()
    return "reached"
"""


@pytest.fixture
def shop(workspace: Any) -> Any:
    workspace.module = workspace.module.replace("shop", "replayed")
    (workspace.directory / f"{workspace.module}.py").write_text(TASKS)
    return workspace


def die(shop: Any, name: str, args: str, error: str, message: str, **fields: Any) -> str:
    """Store a dead letter of one function and return its id."""
    failure = Failure(Verdict.UNKNOWN, Reason.UNKNOWN, message, error)
    (task_id,) = shop.die(function=f"{shop.module}:{name}", failure=failure, args=args.encode(), **fields)
    return str(task_id)


def lines(result: Any) -> dict[str, str]:
    """Return the named lines of the printed replay; of several with one name, the last."""
    pairs = [line.partition("  ") for line in result.stdout.splitlines() if not line.startswith(" ")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def test_a_failure_of_the_code_is_reproduced_with_its_traceback(shop: Any) -> None:
    task_id = die(shop, "tags", '{"k": {"doc": {"title": "x"}}}', "KeyError", "'tags'")
    result = shop.run("replay", task_id[:13], "--app", shop.app, code=1)
    shown = lines(result)
    assert shown["task"] == f"{task_id} {shop.module}:tags, dead after run 1"
    assert shown["recorded"] == "unknown: KeyError: 'tags'"
    assert shown["progress"] == "1/2 reading"
    assert shown["chunk"] == '{"part":"Hello"}'
    assert shown["enqueued"] == f"{shop.module}:count, queue default (not in the task's store)"
    assert shown["outcome"].startswith("dead (its only attempt spent) after ")
    assert shown["error"] == "unknown: KeyError: 'tags'"
    assert shown["compare"] == "the same failure as recorded"
    assert '  │     return len(doc["tags"])' in result.stdout
    assert "a line of its own" in result.stderr
    assert "a line of its own" not in result.stdout


def test_the_whole_output_for_people(shop: Any) -> None:
    task_id = die(shop, "tags", '{"k": {"doc": {"title": "x"}}}', "KeyError", "'tags'")
    shown = shop.run("replay", task_id, "--app", shop.app, code=1).stdout
    names = [line.split("  ")[0].rstrip() for line in shown.splitlines() if not line.startswith(" ")]
    assert names == ["task", "recorded", "progress", "chunk", "enqueued", "outcome", "error", "compare"]
    rest = [line for line in shown.splitlines() if line.startswith(" ")]
    assert rest[0] == "  │ Traceback (most recent call last):"
    assert rest[-1] == "  │ KeyError: 'tags'"


def test_json_has_everything_and_nothing_else_is_on_stdout(shop: Any) -> None:
    task_id = die(shop, "tags", '{"k": {"doc": {"title": "x"}}}', "KeyError", "other")
    found = shop.json("replay", task_id, "--app", shop.app, code=1)
    assert found["task_id"] == task_id
    assert (found["outcome"], found["why"]) == ("dead", "its only attempt spent")
    assert found["failure"]["error_class"] == "KeyError"
    assert found["recorded"]["message"] == "other"
    assert found["is_same_failure"] is False
    assert found["progress"] == [{"done": 1.0, "total": 2.0, "note": "reading"}]
    assert found["chunks"] == [{"part": "Hello"}]
    assert found["enqueued"] == [{"function": f"{shop.module}:count", "queue": "default"}]
    assert (found["blocked"], found["result"]) == ([], None)


def test_the_store_of_the_task_is_only_read(shop: Any) -> None:
    task_id = die(shop, "tags", '{"k": {"doc": {"title": "x"}}}', "KeyError", "'tags'")

    def state() -> Any:
        rows = shop.ask(lambda store: store.list_tasks(TaskFilter(), limit=100))
        return rows, shop.ask(lambda store: store.get_history(task_id))

    before = state()
    shop.run("replay", task_id, "--app", shop.app, code=1)
    assert state() == before


def test_a_mended_function_returns_and_the_exit_code_is_0(shop: Any) -> None:
    task_id = die(shop, "tags", '{"k": {"doc": {"tags": ["a", "b"]}}}', "KeyError", "'tags'")
    shown = lines(shop.run("replay", task_id, "--app", shop.app))
    assert shown["outcome"].startswith("succeeded after ")
    assert shown["result"] == "2"
    assert shop.json("replay", task_id, "--app", shop.app)["result"] == 2


def test_the_start_hooks_of_its_process_run_first(shop: Any) -> None:
    task_id = die(shop, "count", '{"k": {"number": 7}}', "KeyError", "x")
    assert shop.json("replay", task_id, "--app", shop.app)["result"] == [7, "child"]


def test_the_function_sees_the_run_that_failed_and_the_failure_before_it(shop: Any) -> None:
    (task_id,) = shop.add(function=f"{shop.module}:busy", args=b"{}")
    for run in (1, 2, 3):
        failure = Failure(Verdict.TRANSIENT, Reason.UNKNOWN, f"failure {run}", "E")
        shop.work(lambda task, failure=failure: Dead(task.fence, failure, Charge.ATTEMPT, "spent"))
        if run < 3:
            shop.run("dead", "redrive", task_id, "--app", shop.app)
    found = shop.json("replay", task_id, "--app", shop.app, code=1)
    assert found["failure"]["message"] == "run 3, attempt 1 of 3 after failure 2"
    assert found["outcome"] == "retrying"


@pytest.mark.parametrize(
    ("name", "place"), [("hang", "time.sleep(0.01)"), ("wait", "await asyncio.sleep(60)")]
)
def test_a_function_that_runs_too_long_is_stopped_and_its_place_is_shown(
    shop: Any, name: str, place: str
) -> None:
    task_id = die(shop, name, "{}", "TimeoutError", "ran longer than its timeout of 0.2 s")
    found = shop.json("replay", task_id, "--app", shop.app, code=1)
    assert found["failure"]["reason"] == "timeout"
    assert place in found["stack"]
    assert "tidegate/" not in found["stack"].partition(place)[0]


def test_a_time_limit_can_be_given(shop: Any) -> None:
    task_id = die(shop, "wait", "{}", "TimeoutError", "x")
    found = shop.json("replay", task_id, "--app", shop.app, "--timeout", "0.05", code=1)
    assert found["failure"]["message"] == "ran longer than its timeout of 0.05 s"


def test_a_second_application_opens_no_store(shop: Any) -> None:
    path = shop.directory / "other.db"
    task_id = die(shop, "elsewhere", json.dumps({"k": {"path": str(path)}}), "KeyError", "x")
    shown = lines(shop.run("replay", task_id, "--app", shop.app, code=1))
    assert "a replay opens no other store" in shown["error"]
    assert not path.exists()


def test_a_process_that_the_function_starts_opens_no_store(shop: Any) -> None:
    path = shop.directory / "other.db"
    task_id = die(shop, "in_a_process", json.dumps({"k": {"path": str(path)}}), "KeyError", "x")
    found = shop.json("replay", task_id, "--app", shop.app)
    assert "a replay opens no other store" in found["result"]
    assert not path.exists()


def test_the_place_of_a_replayed_function_is_not_that_of_a_thread_that_was_there_before(shop: Any) -> None:
    go_on = threading.Event()
    earlier = threading.Thread(target=go_on.wait, name="tidegate-function-of-another-run", daemon=True)
    earlier.start()
    try:
        task_id = die(shop, "hang", "{}", "TimeoutError", "x")
        found = shop.json("replay", task_id, "--app", shop.app, code=1)
    finally:
        go_on.set()
        earlier.join()
    assert "time.sleep(0.01)" in found["stack"]


def test_no_connection_is_made_unless_it_is_allowed(shop: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        task_id = die(shop, "call", f'{{"k": {{"port": {port}}}}}', "KeyError", "x")
        shown = lines(shop.run("replay", task_id, "--app", shop.app, code=1))
        assert shown["blocked"] == f"a connection to 127.0.0.1:{port} (let it through with --allow)"
        assert f"tried to reach 127.0.0.1:{port}" in shown["error"]
        found = shop.json("replay", task_id, "--app", shop.app, "--allow", "127.0.0.1")
        assert (found["result"], found["blocked"]) == ("reached", [])


def test_what_a_function_does_after_its_replay_reaches_no_store_and_no_network(shop: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        task_id = die(shop, "outlive", f'{{"k": {{"port": {port}}}}}', "TimeoutError", "long")
        shop.run("replay", task_id, "--app", shop.app, code=1)
        module = importlib.import_module(shop.module)
        module.GO_ON.set()
        assert module.ENDED.wait(30)
    assert module.TRIED == ["UsageError", "NetworkBlockedError"]
    assert len(shop.ask(lambda store: store.list_tasks(TaskFilter(), limit=100))) == 1


def test_a_recorded_time_out_of_a_plain_function_takes_no_time(shop: Any) -> None:
    failure = Failure(Verdict.TRANSIENT, Reason.TIMEOUT, "no answer", "httpx2.ReadTimeout")
    (task_id,) = shop.die(function=f"{shop.module}:ask", failure=failure, args=b"{}", upstream="provider")
    found = shop.json("replay", task_id, "--app", shop.app, code=1)
    assert found["failure"]["error_class"] == "httpx2.ReadTimeout"
    assert found["seconds"] < 60


def test_arguments_that_do_not_fit_the_code_are_a_failure_of_the_replay_too(shop: Any) -> None:
    task_id = die(shop, "count", '{"k": {"number": "seven"}}', "tidegate.errors.ArgumentsError", "x")
    found = shop.json("replay", task_id, "--app", shop.app, code=1)
    assert found["failure"]["error_class"] == "tidegate.errors.ArgumentsError"
    assert found["failure"]["reason"] == "invalid_request"


def test_debug_examines_the_frame_that_raised(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("pdb.post_mortem", lambda traceback: seen.append(traceback.tb_frame.f_locals["doc"]))
    task_id = die(shop, "tags", '{"k": {"doc": {"title": "x"}}}', "KeyError", "'tags'")
    shop.run("replay", task_id, "--app", shop.app, "--debug", code=1)
    assert seen == [{"title": "x"}]


def test_what_cannot_be_replayed_is_refused_with_the_usual_codes(shop: Any) -> None:
    assert "no task has" in shop.run("replay", "01935c1e", "--app", shop.app, code=3).stderr
    other = die(shop, "gone", "{}", "KeyError", "x")
    assert "no task function is named" in shop.run("replay", other, "--app", shop.app, code=3).stderr
    assert "one of them" in shop.run("replay", other, "--app", shop.app, "--debug", "--json", code=2).stderr
    assert "no application" in shop.run("replay", other, code=78).stderr
