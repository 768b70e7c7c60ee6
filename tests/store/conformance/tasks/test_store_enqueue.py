"""Enqueue: all tasks of a call are stored, complete and in order, or none is."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_build import START, Build, SettableClock, ids_of

from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.errors import ArgumentsError, OptionError
from tidegate.store.protocol import Store
from tidegate.store.rows import EnqueueResult, TaskFilter

NUL_PAYLOADS = [b'{"text":"a\\u0000b"}', b"\x00", b'{"k\x00":1}', b"", b"\xff\xfe", b"x" * 1_048_576]


async def test_an_enqueued_task_is_ready_with_everything_it_was_given(build: Build) -> None:
    new = build.new(
        priority=Priority.INTERACTIVE,
        upstream="openai:gpt",
        tenant="acme",
        key="order-7",
        deadline_seconds=90.0,
        timeout_seconds=12.5,
        max_attempts=9,
        labels={"user": "u1", "kind": "summary"},
    )
    assert await build.store.enqueue([new]) == [EnqueueResult(new.id, created=True)]
    row = await build.row(new.id)
    assert row.id == new.id
    assert (row.function, row.queue, row.upstream, row.tenant) == ("app:work", "main", "openai:gpt", "acme")
    assert row.priority is Priority.INTERACTIVE
    assert row.state is State.READY
    assert (row.run, row.redrives) == (0, 0)
    assert (row.enqueued_at, row.due_at) == (START, START)
    assert (row.started_at, row.finished_at, row.worker_id) == (None, None, None)
    assert (row.key, row.max_attempts, row.deadline_at) == ("order-7", 9, START + 90.0)
    assert row.labels == {"user": "u1", "kind": "summary"}


async def test_enqueueing_no_tasks_is_allowed(store: Store) -> None:
    assert await store.enqueue([]) == []


async def test_results_come_in_the_order_of_the_tasks(build: Build) -> None:
    new = [build.new() for _ in range(200)]
    answers = await build.store.enqueue(list(reversed(new)))
    assert [answer.task_id for answer in answers] == [task.id for task in reversed(new)]
    assert all(answer.created for answer in answers)


@pytest.mark.parametrize("args", NUL_PAYLOADS, ids=range(len(NUL_PAYLOADS)))
async def test_arguments_are_stored_byte_for_byte(build: Build, args: bytes) -> None:
    task_id = await build.one(args=args, codec_tag="json/1")
    assert await build.store.get_payload(task_id) == (args, "json/1")
    assert (await build.claim(await build.worker()))[0].args == args


async def test_a_resend_stores_nothing_and_gets_the_first_result(build: Build) -> None:
    new = [build.new() for _ in range(3)]
    await build.store.enqueue(new)
    assert await build.store.enqueue(new) == [EnqueueResult(task.id, created=True) for task in new]
    assert len(await build.claim(await build.worker())) == 3


@pytest.mark.parametrize("names", [{"key": "k"}, {"unique": "u"}, {"key": "k", "unique": "u"}], ids=str)
async def test_a_resend_is_distinguished_from_another_task_with_the_same_name(
    build: Build, names: dict[str, str]
) -> None:
    first, other = build.new(**names), build.new(**names)
    for new in (first, first, other, first):
        assert await build.store.enqueue([new]) == [EnqueueResult(first.id, created=new is first)]


async def test_a_resend_of_a_part_stores_the_rest(build: Build) -> None:
    new = [build.new() for _ in range(4)]
    await build.store.enqueue(new[:2])
    assert await build.store.enqueue(new) == [EnqueueResult(task.id, created=True) for task in new]
    assert len(await build.claim(await build.worker())) == 4


async def test_the_same_id_twice_in_one_call_is_one_task(build: Build) -> None:
    new = build.new()
    assert await build.store.enqueue([new, new]) == [EnqueueResult(new.id, created=True)] * 2
    assert len(await build.claim(await build.worker())) == 1


async def test_a_resend_after_the_end_does_not_run_the_task_again(build: Build) -> None:
    task_id = await build.in_state(State.SUCCEEDED)
    assert await build.store.enqueue([build.new(id=task_id)]) == [EnqueueResult(task_id, created=True)]
    assert await build.state(task_id) is State.SUCCEEDED


@pytest.mark.parametrize(
    ("when", "state", "due_in"),
    [
        ({"delay_seconds": 60.0}, State.SCHEDULED, 60.0),
        ({"run_at": START + 60.0}, State.SCHEDULED, 60.0),
        ({"run_at": START + 60.0, "delay_seconds": 5.0}, State.SCHEDULED, 60.0),
        ({"run_at": START - 60.0, "delay_seconds": 5.0}, State.READY, 0.0),
        ({"delay_seconds": 0.0}, State.READY, 0.0),
        ({"delay_seconds": -5.0}, State.READY, 0.0),
    ],
)
async def test_a_task_due_later_is_scheduled(
    build: Build, when: dict[str, float], state: State, due_in: float
) -> None:
    row = await build.row(await build.one(**when))
    assert row.state is state
    assert row.due_at == START + due_in


@pytest.mark.parametrize(
    "when", [{"delay_seconds": math.nan}, {"run_at": math.inf}, {"delay_seconds": math.inf}]
)
async def test_a_due_moment_that_is_not_a_number_is_refused(build: Build, when: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        await build.one(**when)
    assert await build.store.list_tasks(TaskFilter()) == []


@pytest.mark.parametrize("task_id", ["", "7", "not-a-uuid", "\ud800", "0" * 36])
async def test_an_id_that_is_not_a_uuid_is_refused(build: Build, task_id: str) -> None:
    with pytest.raises(OptionError):
        await build.store.enqueue([build.new(), build.new(id=task_id)])
    assert await build.store.list_tasks(TaskFilter()) == []


async def test_more_than_5000_at_once_are_refused_whole(build: Build) -> None:
    with pytest.raises(OptionError):
        await build.store.enqueue([build.new() for _ in range(5_001)])
    assert await build.store.get_queue_stats() == []


async def test_a_task_with_a_tenant_is_ready_like_any_other(build: Build) -> None:
    assert await build.state(await build.one(tenant="acme")) is State.READY


@pytest.mark.parametrize("bad", ["a\ud800", "a\0"])
@pytest.mark.parametrize("field", ["key", "unique", "tenant", "upstream"])
async def test_a_call_with_text_that_cannot_be_stored_stores_nothing(
    build: Build, field: str, bad: str
) -> None:
    with pytest.raises(ArgumentsError):
        await build.store.enqueue([build.new(), build.new(**{field: bad})])
    assert await build.store.list_tasks(TaskFilter()) == []


@pytest.mark.parametrize("labels", [{"a": "\ud800"}, {"\ud800": "a"}, {"a": "\0"}, {"\0": "a"}])
async def test_labels_that_cannot_be_stored_are_refused(build: Build, labels: dict[str, str]) -> None:
    with pytest.raises(ArgumentsError):
        await build.one(labels=labels)
    assert await build.store.list_tasks(TaskFilter()) == []


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(queue=TEXT, tenant=TEXT, key=TEXT, upstream=TEXT, labels=st.dictionaries(TEXT, TEXT, max_size=3))
async def test_any_storable_text_is_returned_and_matches_only_its_own_task(
    build: Build, queue: str, tenant: str, key: str, upstream: str, labels: dict[str, str]
) -> None:
    task_id = await build.one(
        queue=queue, tenant=tenant, key=f"{build.id()}{key}", upstream=upstream, labels=labels
    )
    row = await build.row(task_id)
    assert (row.queue, row.tenant, row.upstream, row.labels) == (queue, tenant, upstream, labels)
    found = await build.store.list_tasks(TaskFilter(queue=queue, tenant=tenant, labels=labels), limit=1000)
    assert task_id in [other.id for other in found]
    assert all((other.queue, other.tenant) == (queue, tenant) for other in found)


async def test_tasks_are_claimed_in_the_order_they_were_enqueued(build: Build, clock: SettableClock) -> None:
    expected = []
    for _ in range(20):
        expected += await build.enqueue(5)
        clock.advance(0.01)
    assert ids_of(await build.claim(await build.worker())) == expected
