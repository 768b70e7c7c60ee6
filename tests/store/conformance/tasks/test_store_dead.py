"""Dead letters: stored, found, redriven, purged."""

from __future__ import annotations

from typing import Any

import pytest
from store_build import FAILED, START, Build, SettableClock, dead, ids_of, retrying

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.fingerprint import fingerprint_of
from tidegate.domain.outcome import Charge, Counters
from tidegate.domain.states import State
from tidegate.operations import dead_export
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, DeadLetterRow, TaskFilter

DONE, REFUSED, UNKNOWN = ActionStatus


async def test_a_dead_letter_has_what_a_person_needs(build: Build, clock: SettableClock) -> None:
    task = await build.run(queue="q", tenant="t", args=b"\x00args", labels={"a": "b"})
    clock.advance(3)
    await build.done(dead(task.fence))
    assert await build.store.list_dead_letters(TaskFilter()) == [
        DeadLetterRow(
            task_id=task.fence.task_id,
            function="app:work",
            queue="q",
            tenant="t",
            args=b"\x00args",
            codec_tag="json/1",
            reason="network",
            error_class="builtins.OSError",
            message="connection reset",
            failed_at=START + 3,
            redriven_at=None,
            redrives=0,
            run=1,
            counters=Counters(attempts=1),
            labels={"a": "b"},
            fingerprint=fingerprint_of(FAILED).id,
        )
    ]


async def many_dead(build: Build, clock: SettableClock, count: int = 9) -> list[str]:
    ids = []
    for n in range(count):
        ids.append(await build.in_state(State.DEAD))
        clock.advance(1 if n % 3 else 0)  # some fail at the same moment
    return ids


async def test_dead_letters_are_listed_latest_first_in_pages(build: Build, clock: SettableClock) -> None:
    ids = await many_dead(build, clock)
    pages, after = [], None
    while page := await build.store.list_dead_letters(TaskFilter(), after=after, limit=2):
        pages += [letter.task_id for letter in page]
        after = page[-1].task_id
    assert pages == ids[::-1]
    assert await build.store.count_dead_letters(TaskFilter()) == len(ids)


@pytest.mark.parametrize("act", ["redrive", "purge"])
async def test_dead_letters_can_be_handled_page_by_page(build: Build, clock: SettableClock, act: str) -> None:
    ids = await many_dead(build, clock)
    after, seen = None, []
    while page := await build.store.list_dead_letters(TaskFilter(), after=after, limit=2):
        mine = [letter.task_id for letter in page]
        assert set((await getattr(build.store, act)(mine)).values()) == {DONE}
        seen += mine
        after = mine[-1]
    assert sorted(seen) == sorted(ids)
    assert await build.store.count_dead_letters(TaskFilter()) == 0


FILTERS = [
    TaskFilter(queue="q"),
    TaskFilter(function="f"),
    TaskFilter(tenant="t"),
    TaskFilter(reason="auth"),
    TaskFilter(error_class="Denied"),
    TaskFilter(labels={"a": "b"}),
    TaskFilter(before=START + 1),
    TaskFilter(states=(State.DEAD,), reason="auth", labels={"a": "b"}),
]


@pytest.mark.parametrize("task_filter", FILTERS, ids=range(len(FILTERS)))
async def test_dead_letters_are_found_by_every_field(
    build: Build, clock: SettableClock, task_filter: TaskFilter
) -> None:
    worker = await build.worker()
    wanted = await build.one(queue="q", function="f", tenant="t", labels={"a": "b", "c": "d"})
    [task] = await build.claim(worker, functions={"f": build.request("").functions["app:work"]})
    await build.done(dead(task.fence, failure=Failure(Verdict.PERMANENT, Reason.AUTH, error_class="Denied")))
    clock.advance(5)
    await build.in_state(State.DEAD, labels={"a": "c"})
    assert [letter.task_id for letter in await build.store.list_dead_letters(task_filter)] == [wanted]
    assert await build.store.count_dead_letters(task_filter) == 1


async def test_a_filter_for_other_states_finds_no_dead_letters(build: Build) -> None:
    await build.in_state(State.DEAD)
    task_filter = TaskFilter(states=(State.READY,))
    assert await build.store.list_dead_letters(task_filter) == []
    assert await build.store.count_dead_letters(task_filter) == 0


async def test_a_redriven_task_restarts_its_counters_but_keeps_its_history(
    build: Build, clock: SettableClock
) -> None:
    worker = await build.worker()
    task = await build.run(queue="q", worker=worker)
    task_id = task.fence.task_id
    for charge in (Charge.ATTEMPT, Charge.PARK, Charge.CRASH):
        await build.done(retrying(task.fence, delay=0.0, charge=charge, rule="r"))
        clock.advance(1)
        await build.store.promote()
        [task] = await build.claim(worker, queues=("q",))
    await build.done(dead(task.fence))
    before = await build.store.get_history(task_id)
    clock.advance(100)
    younger = await build.one(queue="q")
    assert await build.store.redrive([task_id]) == {task_id: DONE}
    row = await build.row(task_id)
    assert (row.state, row.run, row.counters) == (State.READY, 4, Counters())
    assert (row.redrives, row.redriven_at, row.finished_at) == (1, START + 103, None)
    after = await build.store.get_history(task_id)
    assert after[:-1] == before
    assert after[-1].kind == "redriven"
    claimed = await build.claim(worker, queues=("q",))
    assert {task.fence.run for task in claimed} == {1, 5}
    again = next(task for task in claimed if task.fence.task_id == task_id)
    assert (again.counters, again.spent_seconds) == (Counters(), 0.0)
    assert younger in ids_of(claimed)
    await build.done(dead(again.fence))
    [letter] = await build.store.list_dead_letters(TaskFilter())
    assert (letter.redrives, letter.redriven_at, letter.run) == (1, START + 103, 5)


@pytest.mark.parametrize(
    "state", [State.READY, State.RUNNING, State.RETRYING, State.SUCCEEDED, State.CANCELLED]
)
async def test_only_dead_tasks_are_redriven_or_purged(build: Build, state: State) -> None:
    task_id = await build.in_state(state)
    assert await build.store.redrive([task_id, "nonsense"]) == {task_id: REFUSED, "nonsense": UNKNOWN}
    assert await build.store.purge([task_id, "nonsense"]) == {task_id: REFUSED, "nonsense": UNKNOWN}
    assert await build.state(task_id) is state


async def test_a_redrive_can_bring_new_arguments(build: Build) -> None:
    one, other = await build.in_state(State.DEAD), await build.in_state(State.DEAD)
    args = {one: (b"better", "json/2"), build.id(): (b"", "json")}
    assert await build.store.redrive([one, other], args=args) == {one: DONE, other: DONE}
    assert await build.store.get_payload(one) == (b"better", "json/2")
    assert await build.store.get_payload(other) == (b'{"n":1}', "json/1")


async def test_a_redrive_extends_an_expired_deadline_by_its_first_length(
    build: Build, clock: SettableClock
) -> None:
    expired = await build.in_state(State.DEAD, deadline_seconds=60.0)
    running_out = await build.in_state(State.DEAD, deadline_seconds=1_000.0)
    none = await build.in_state(State.DEAD)
    clock.advance(100)
    await build.store.redrive([expired, running_out, none])
    rows = await build.store.read_tasks([expired, running_out, none])
    assert [row.deadline_at for row in rows.values()] == [START + 160, START + 1_000, None]


async def test_a_redrive_removes_a_past_deadline_that_was_given_as_a_moment(
    build: Build, clock: SettableClock
) -> None:
    past = await build.in_state(State.DEAD, deadline_at=START + 60)
    to_come = await build.in_state(State.DEAD, deadline_at=START + 1_000)
    clock.advance(100)
    await build.store.redrive([past, to_come])
    rows = await build.store.read_tasks([past, to_come])
    assert [row.deadline_at for row in rows.values()] == [None, START + 1_000]


async def test_a_redriven_task_takes_its_unique_name_again(build: Build) -> None:
    dead_tasks = await build.in_state(State.DEAD, unique="u")
    assert await build.store.redrive([dead_tasks]) == {dead_tasks: DONE}
    assert (await build.store.enqueue([build.new(unique="u")]))[0].task_id == dead_tasks


async def test_a_redrive_is_refused_while_another_task_has_the_unique_name(build: Build) -> None:
    first = await build.in_state(State.DEAD, unique="u")
    second = await build.one(unique="u")
    assert await build.store.redrive([first]) == {first: REFUSED}
    assert await build.state(first) is State.DEAD
    await build.store.cancel([second])
    assert await build.store.redrive([first]) == {first: DONE}


async def test_of_two_dead_tasks_with_one_unique_name_only_one_is_redriven(build: Build) -> None:
    one = await build.in_state(State.DEAD, unique="u")
    other = await build.in_state(State.DEAD, unique="u")
    answers = await build.store.redrive([one, other])
    assert sorted(answers.values()) == [DONE, REFUSED]


async def test_a_purged_task_is_deleted_with_everything(build: Build, store: Store) -> None:
    dead_tasks, other = await build.in_state(State.DEAD), await build.in_state(State.DEAD)
    assert await store.purge([dead_tasks]) == {dead_tasks: DONE}
    assert await store.purge([dead_tasks]) == {dead_tasks: UNKNOWN}
    assert await store.redrive([dead_tasks]) == {dead_tasks: UNKNOWN}
    assert set(await build.states([dead_tasks, other])) == {other}
    assert await store.get_history(dead_tasks) == []
    await build.sound()


async def test_the_reason_of_the_last_failure_stays_after_a_redrive(build: Build) -> None:
    dead_tasks = await build.in_state(State.DEAD)
    await build.store.redrive([dead_tasks])
    assert (await build.row(dead_tasks)).reason == FAILED.reason


async def test_dead_letters_are_found_by_fingerprint_and_by_the_time_of_their_death(
    build: Build, clock: SettableClock
) -> None:
    other = Failure(Verdict.PERMANENT, Reason.REJECTED, "page 7 is empty", error_class="app.Empty")
    ids = []
    for failure in (FAILED, other, other):
        task = await build.run(queue="q")
        await build.done(dead(task.fence, failure=failure))
        ids.append(task.fence.task_id)
        clock.advance(10)
    fingerprint = fingerprint_of(other).id

    async def found(**which: Any) -> list[str]:
        letters = await build.store.list_dead_letters(TaskFilter(**which))
        assert await build.store.count_dead_letters(TaskFilter(**which)) == len(letters)
        return [letter.task_id for letter in letters]

    assert await found(fingerprint=fingerprint) == [ids[2], ids[1]]
    assert await found(fingerprint="0" * 16) == []
    assert await found(since=START + 10) == [ids[2], ids[1]]
    assert await found(since=START + 10, before=START + 20) == [ids[1]]
    assert await found(fingerprint=fingerprint, since=START + 11) == [ids[2]]
    assert await build.store.find_fingerprints(fingerprint[:6]) == [fingerprint]
    assert await build.store.find_fingerprints("0" * 6) == []


async def test_a_page_continues_where_it_ended_although_its_last_letter_was_purged(
    build: Build, clock: SettableClock
) -> None:
    ids = await many_dead(build, clock)
    first = await build.store.list_dead_letters(TaskFilter(), limit=4)
    await build.store.purge([first[-1].task_id])
    rest = await build.store.list_dead_letters(
        TaskFilter(), after=first[-1].task_id, after_failed_at=first[-1].failed_at
    )
    assert [letter.task_id for letter in (*first, *rest)] == ids[::-1]


async def test_every_letter_is_exported_once_while_others_are_purged_and_die(
    build: Build, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_export, "PAGE_SIZE", 2)
    ids = await many_dead(build, clock, 7)
    seen = []
    async for letter in dead_export.read_letters(build.store, TaskFilter()):
        seen.append(letter.task_id)
        await build.store.purge([letter.task_id])
        await build.in_state(State.DEAD)
    assert seen == ids[::-1]
