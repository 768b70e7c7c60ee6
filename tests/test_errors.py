"""Each error that users meet says its facts in typed attributes, so that no program reads a message."""

from __future__ import annotations

import ast
import copy
import pickle
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import tidegate
from step_support import RecordingPort, context_with
from support import all_final, make_app, until
from tidegate import (
    ApprovalClosedError,
    ApprovalNotFoundError,
    ApprovalTimeoutError,
    ArchiveError,
    ArgumentsError,
    ConfigError,
    Context,
    DataRemovedError,
    DoubtNotFoundError,
    EventTimeoutError,
    KeyConflictError,
    MapNotFoundError,
    NotAcceptedError,
    OperationNotFoundError,
    OptionError,
    Permanent,
    Pool,
    ProviderJobFailedError,
    ProviderJobTimeoutError,
    ResultTimeoutError,
    SchemaError,
    StepChangedError,
    StepInDoubtError,
    StepRejectedError,
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
    TaskCancelledError,
    TaskFailedError,
    TaskNotFoundError,
    Tidegate,
    TidegateError,
    UnknownFunctionError,
    UnknownScheduleError,
    UnknownUpstreamError,
    UpstreamParkedError,
    WrongStateError,
    errors,
)
from tidegate.domain.provider_job import JobState
from tidegate.domain.retention import Data
from tidegate.internals import core_of
from tidegate.store.archive import Archive
from tidegate.store.provider_job_rows import JobAnswer, JobStatus
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.step_rows import BeginStatus, BegunStep

pytestmark = pytest.mark.anyio
SOURCE = Path(tidegate.__file__).parent
ADD = f"{__name__}:app.<locals>.add"
NO_TASK = "00000000-0000-7000-8000-000000000000"
LATER = datetime.now(UTC) + timedelta(days=1)

Provoke = Callable[[Tidegate], Awaitable[Any]]
Case = tuple[Provoke, type[TidegateError], dict[str, Any]]


@pytest.fixture
def app(tmp_path: Path) -> Tidegate:
    app = make_app(tmp_path)

    @app.task(name="add")
    async def add(a: int, b: Any = 0) -> Any:
        return a + b

    @app.task(name="asks")
    async def asks(ctx: Context) -> None:
        await ctx.approve("sure?", key="refund")

    @app.task(name="fails")
    async def fails() -> None:
        raise Permanent("no", reason="content_policy")

    app.upstream("openai", requests_per_minute=60)
    return app


async def call(function: Callable[[], Any]) -> None:
    function()


async def take_key_twice(app: Tidegate) -> None:
    for number in (1, 2):
        await app.function("add").using(key="k").enqueue(number)


async def wait_for_the_end(app: Tidegate, name: str, *, cancel: bool = False) -> None:
    handle = await app.function(name).enqueue(*([1] if name == "add" else []))
    if cancel:
        await handle.cancel()
    else:
        async with app.worker():
            await all_final(app, [handle.id])
    await handle.result(5)


async def get_a_live_dead_letter(app: Tidegate) -> None:
    await app.admin.dead_letters.get((await app.function("add").enqueue(1)).id)


async def get_a_removed_result(app: Tidegate) -> None:
    handle = await app.function("add").enqueue(1)
    async with app.worker():
        await all_final(app, [handle.id])
    await (await core_of(app).opened_store()).delete_task_parts([handle.id], [Data.RESULTS])
    await handle.result(5)


async def read_a_damaged_archive(app: Tidegate) -> None:
    folder = database_of(app).parent / "old"
    (folder / "2027-01-15").mkdir(parents=True)
    (folder / "2027-01-15" / "tasks.ndjson.gz").write_bytes(b"no archive")
    list(Archive(folder).rows())


async def read_stream_of_no_task(app: Tidegate) -> None:
    async for _ in app.handle(NO_TASK).stream():
        pytest.fail("it has a chunk")


async def answer_an_answered_question(app: Tidegate) -> None:
    handle = await app.function("asks").enqueue()
    async with app.worker():
        await until(app.admin.approvals.list)
        for by in ("ada", "bob"):
            await app.admin.approvals.approve(handle.id, by=by)


async def call_a_parked_upstream(app: Tidegate) -> None:
    upstream = app.upstream("openai", requests_per_minute=60)
    async with upstream.call():
        pass
    await app.admin.upstreams.park("openai", "10m", why="invoice")
    async with upstream.call():
        pytest.fail("the call was let through")


async def open_a_file_of_another_program(app: Tidegate) -> None:
    path = database_of(app)
    with closing(apsw.Connection(str(path))) as db:
        db.execute("CREATE TABLE theirs (id INTEGER)")
    await app.status(NO_TASK)


async def open_after(app: Tidegate, statement: str) -> None:
    await app.function("add").enqueue(1)
    await app.aclose()
    with closing(apsw.Connection(str(database_of(app)))) as db:
        db.execute(statement)
    await app.status(NO_TASK)


async def enqueue_while_another_program_writes(app: Tidegate) -> None:
    await app.function("add").enqueue(1)
    await app.aclose()
    core_of(app).store = SqliteStore(database_of(app), busy_seconds=0.1)
    with closing(apsw.Connection(str(database_of(app)))) as db:
        db.execute("BEGIN IMMEDIATE")
        await app.function("add").enqueue(2)


async def open_in_a_file_instead_of_a_directory(app: Tidegate) -> None:
    path = database_of(app).with_name("file")
    path.touch()
    await Tidegate(f"sqlite:///{path}/queue.db").status(NO_TASK)


async def open_a_server_that_is_away(_: Tidegate) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    await Tidegate(f"postgresql://someone:secret@127.0.0.1:{port}/queue").status(NO_TASK)


async def read_a_wrong_setting(app: Tidegate) -> None:
    database_of(app).with_name("tidegate.toml").write_text("[worker]\nlease = 'soon'\n")
    Tidegate()


def database_of(app: Tidegate) -> Path:
    return Path(app.url.removeprefix("sqlite:///"))


CASES: dict[str, Case] = {
    "an argument that cannot be stored": (
        lambda app: app.function("add").enqueue(1, b=call),
        ArgumentsError,
        {"path": "b", "type": "function", "function": ADD, "signature": "(a: int, b: Any = 0)"},
    ),
    "an argument that is too large": (
        lambda app: app.function("add").enqueue(1, "x" * 2_000_000),
        ArgumentsError,
        {"path": "b", "size": 2_000_027, "limit": 1_048_576},
    ),
    "a missing argument of one of several tasks": (
        lambda app: app.function("add").enqueue_many([(1,), ()]),
        ArgumentsError,
        {"index": 1, "function": ADD},
    ),
    "a wrong option of an enqueue": (
        lambda app: call(lambda: app.function("add").using(delay="soon")),
        OptionError,
        {"option": "delay", "value": "soon"},
    ),
    "two options that exclude each other": (
        lambda app: call(lambda: app.function("add").using(delay=1, run_at=LATER)),
        OptionError,
        {"option": "delay", "value": 1},
    ),
    "a wrong option of a pool": (
        lambda app: call(lambda: Pool("gpu", memory_limit="lots")),
        OptionError,
        {"option": "memory_limit", "value": "lots"},
    ),
    "a wrong limit of an upstream": (
        lambda app: call(lambda: app.upstream("o", requests_per_minute=0)),
        OptionError,
        {"option": "requests_per_minute", "value": 0},
    ),
    "an unknown option": (
        lambda app: app.admin.tasks.list(colour="red"),  # type: ignore[call-arg]
        OptionError,
        {"option": "colour", "value": "red"},
    ),
    "a wrong timeout of a result": (
        lambda app: app.handle(NO_TASK).result(-1),
        OptionError,
        {"option": "timeout", "value": -1},
    ),
    "a key with other arguments": (take_key_twice, KeyConflictError, {"key": "k"}),
    "an unknown function": (
        lambda app: call(lambda: app.function("nope")),
        UnknownFunctionError,
        {"function": "nope"},
    ),
    "an unknown upstream": (
        lambda app: app.admin.upstreams.open("nope"),
        UnknownUpstreamError,
        {"upstream": "nope"},
    ),
    "an unknown schedule": (
        lambda app: app.admin.schedules.pause("nope"),
        UnknownScheduleError,
        {"schedule": "nope"},
    ),
    "a redrive of a function that nobody declares": (
        lambda app: app.admin.dead_letters.redrive(function="nope"),
        NotAcceptedError,
        {"functions": ("nope",)},
    ),
    "an unknown map": (
        lambda app: app.admin.maps.cancel("00000000"),
        MapNotFoundError,
        {"map_id": "00000000"},
    ),
    "an unknown operation": (
        lambda app: app.admin.operations.abort("00000000"),
        OperationNotFoundError,
        {"operation_id": "00000000"},
    ),
    "an approval that was not asked for": (
        lambda app: app.admin.approvals.approve(NO_TASK, "refund"),
        ApprovalNotFoundError,
        {"task_id": NO_TASK, "key": "refund"},
    ),
    "an unknown doubt": (lambda app: app.admin.doubts.get(7), DoubtNotFoundError, {"doubt_id": 7}),
    "the status of no task": (lambda app: app.status(NO_TASK), TaskNotFoundError, {"task_id": NO_TASK}),
    "the result of no task": (lambda app: app.result(NO_TASK, 1), TaskNotFoundError, {"task_id": NO_TASK}),
    "the stream of no task": (read_stream_of_no_task, TaskNotFoundError, {"task_id": NO_TASK}),
    "the wait of no task": (
        lambda app: app.admin.tasks.explain("00000000"),
        TaskNotFoundError,
        {"task_id": "00000000"},
    ),
    "a task that is not dead": (get_a_live_dead_letter, WrongStateError, {"state": "ready"}),
    "a result that is kept no longer": (get_a_removed_result, DataRemovedError, {"data": "results"}),
    "a damaged archive": (read_a_damaged_archive, ArchiveError, {}),
    "a URL of no database": (
        lambda app: call(lambda: Tidegate("sqlite:///")),
        ConfigError,
        {"place": "sqlite:///"},
    ),
    "a wrong setting of the file": (
        read_a_wrong_setting,
        ConfigError,
        {"place": "tidegate.toml [worker]", "option": "lease"},
    ),
    "a file of another program": (open_a_file_of_another_program, SchemaError, {"place": "{database}"}),
    "a database of another generation": (
        lambda app: open_after(app, "UPDATE migration SET name = '001_tasks' WHERE number = 1"),
        SchemaError,
        {"place": "{database}", "generation": "001_tasks", "database_version": None},
    ),
    "a database that is too new": (
        lambda app: open_after(
            app, "INSERT INTO migration VALUES (999, '999_later', 0); UPDATE compatible SET since = 999"
        ),
        SchemaError,
        {"place": "{database}", "generation": "", "database_version": 999},
    ),
    "a database in no directory": (
        open_in_a_file_instead_of_a_directory,
        StoreUnavailableError,
        {"may_pass": False},
    ),
    "a database server that is away": (open_a_server_that_is_away, StoreUnavailableError, {"may_pass": True}),
    "a database that another program writes to": (
        enqueue_while_another_program_writes,
        StoreBusyError,
        {"place": "{database}", "seconds": 0.1},
    ),
    "a result that is not there in time": (
        lambda app: wait_for_nobody(app),
        ResultTimeoutError,
        {"seconds": 0.05},
    ),
    "the result of a dead task": (
        lambda app: wait_for_the_end(app, "fails"),
        TaskFailedError,
        {
            "reason": "content_policy",
            "error_class": "tidegate.verdicts.Permanent",
            "error_message": "no",
        },
    ),
    "the result of a cancelled task": (
        lambda app: wait_for_the_end(app, "add", cancel=True),
        TaskCancelledError,
        {},
    ),
    "a step in doubt": (
        lambda _: do_a_step(BegunStep(BeginStatus.IN_DOUBT)),
        StepInDoubtError,
        {"step": "call"},
    ),
    "a step that must not be repeated": (
        lambda _: do_a_step(BegunStep(BeginStatus.REJECTED)),
        StepRejectedError,
        {"step": "call"},
    ),
    "a step with other arguments": (
        lambda _: do_a_step(BegunStep(BeginStatus.DONE, b"1", "json", arguments="other")),
        StepChangedError,
        {"step": "call"},
    ),
    "an event that was not sent in time": (
        lambda _: context_with(RecordingPort()).wait_event("paid"),
        EventTimeoutError,
        {"event": "paid", "step": "paid"},
    ),
    "a provider job without a result": (
        lambda _: wait_for_a_job(JobState.FAILED),
        ProviderJobFailedError,
        {"job_id": "batch_1", "step": "batch"},
    ),
    "a provider job that took too long": (
        lambda _: wait_for_a_job(JobState.TIMED_OUT),
        ProviderJobTimeoutError,
        {"job_id": "batch_1", "step": "batch"},
    ),
    "a question that nobody answered in time": (
        lambda _: context_with(RecordingPort()).approve("sure?", key="refund"),
        ApprovalTimeoutError,
        {"question": "sure?", "step": "refund"},
    ),
    "a question that was answered before": (
        answer_an_answered_question,
        ApprovalClosedError,
        {"key": "refund", "state": "approved", "by": "ada"},
    ),
    "a call of a parked upstream": (call_a_parked_upstream, UpstreamParkedError, {"upstream": "openai"}),
}


async def do_a_step(recorded: BegunStep) -> None:
    """Do a step of which the store says this."""
    port = RecordingPort()
    port.answers["call"] = recorded
    await context_with(port).step("call", abs, 1, key="a", on_change="error")


async def wait_for_a_job(state: JobState) -> None:
    """Wait for a provider job of which the store says that it ended so."""
    port = RecordingPort()
    port.job = JobAnswer(JobStatus.KNOWN, state, job_id="batch_1", error="no result")
    await context_with(port).remote("batch", lambda: "batch_1", lambda job_id: job_id)


async def wait_for_nobody(app: Tidegate) -> None:
    await (await app.function("add").enqueue(1)).result(0.05)


@pytest.mark.parametrize("case", CASES)
async def test_an_error_says_its_facts_in_attributes(
    app: Tidegate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    provoke, kind, expected = CASES[case]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as caught:
        await provoke(app)
    assert type(caught.value) is kind
    found = {name: getattr(caught.value, name) for name in expected}
    assert found == {
        name: str(database_of(app)) if value == "{database}" else value for name, value in expected.items()
    }
    for name in ("task_id",) if "task_id" in fields_of(kind) else ():
        assert getattr(caught.value, name)
    if issubclass(kind, StoreError | ConfigError):
        assert caught.value.place
    assert "secret" not in f"{caught.value} {vars(caught.value)}"
    for again in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
        assert {name: getattr(again, name) for name in found} == found
    await app.aclose()


def test_every_error_is_provoked() -> None:
    bases = {"TidegateError", "StepError", "StoreError", "UpstreamError"}
    without_facts = {"UsageError"}
    raised_by_nothing = {"CallTooLargeError"}  # upstreams have no limits of tokens
    provoked = {kind.__name__ for _, kind, _ in CASES.values()}
    kinds = {kind.__name__ for kind in vars(errors).values() if is_error(kind)}
    assert kinds - provoked == bases | without_facts | raised_by_nothing


async def test_a_parked_upstream_says_when_it_opens(app: Tidegate) -> None:
    with pytest.raises(UpstreamParkedError) as caught:
        await call_a_parked_upstream(app)
    assert caught.value.wait_seconds is not None
    assert 590 < caught.value.wait_seconds <= 600


def test_a_value_that_cannot_be_pickled_is_text_in_another_process(app: Tidegate) -> None:
    with pytest.raises(OptionError) as caught:
        app.function("add").using(priority=lambda: None)  # type: ignore[arg-type]
    assert callable(caught.value.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.option, str(again)) == ("priority", str(caught.value))
    assert again.value.startswith("<function")


# --- the code --------------------------------------------------------------------------------------------

REQUIRED = {
    "ArchiveError": {"place"},
    "DataRemovedError": {"task_id", "data"},
    "OptionError": {"option"},
    "ResultTimeoutError": {"task_id", "seconds"},
    "SchemaError": {"place"},
    "StoreBusyError": {"place"},
    "StoreUnavailableError": {"place"},
    "TaskCancelledError": {"task_id"},
    "TaskFailedError": {"task_id", "reason", "error_class", "error_message"},
    "TaskNotFoundError": {"task_id"},
    "UnknownFunctionError": {"function"},
    "UnknownScheduleError": {"schedule"},
    "UnknownUpstreamError": {"upstream"},
    "UpstreamParkedError": {"upstream", "reason", "wait_seconds"},
}
"""What each place that makes such an error must say."""


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, TidegateError)


def fields_of(kind: type[TidegateError]) -> set[str]:
    return {name for each in kind.__mro__ for name in vars(each).get("__annotations__", {})}


def test_every_place_that_makes_an_error_gives_it_facts_that_its_class_declares() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        if SOURCE / "testing" in path.parents:  # for programs that test themselves
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            kind = getattr(errors, node.func.id, None)
            if not is_error(kind):
                continue
            given = {keyword.arg for keyword in node.keywords} - {"fix"}
            unknown = given - {None} - fields_of(kind)
            missing = set() if None in given else REQUIRED.get(node.func.id, set()) - given
            if unknown or missing:
                wrong.append((f"{path.name}:{node.lineno}", node.func.id, unknown, missing))
    assert wrong == []
