"""Operations on dead letters: recorded, sent step by step, followed, undone."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

import pytest
from store_build import START, Build, SettableClock, dead, retrying, succeeded

from tidegate.deadletter.runner import OperationRunner
from tidegate.domain.ids import IdMaker
from tidegate.domain.retention import FinalTable
from tidegate.domain.states import State
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.operations import bulk
from tidegate.store.operation_rows import (
    LetterState,
    NewOperation,
    OperationKind,
    OperationRow,
    OperationState,
    RedriveSettings,
)
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, TaskFilter

FUNCTION = "app:work"
QUICK = {"app:work": {}}


class Redrives:
    """Starts redrives and advances them as maintenance does."""

    def __init__(self, build: Build, clock: SettableClock) -> None:
        self.build = build
        self.store = build.store
        self.clock = clock
        self.runner = OperationRunner(build.store)

    async def dead(self, count: int, **changes: Any) -> list[str]:
        """Make dead letters of the queue `q`."""
        return [await self.build.in_state(State.DEAD, **{"queue": "q"} | changes) for _ in range(count)]

    async def start(self, which: TaskFilter | None = None, **given: Any) -> OperationRow:
        """Start a redrive of all dead letters, unless a filter is given."""
        self.clock.advance(1)
        return await bulk.start_redrive(
            self.store, which or TaskFilter(), **{"by": "ada", "own": (FUNCTION,)} | given
        )

    async def rounds(self, count: int = 20) -> None:
        """Run this many rounds of maintenance, a second apart."""
        for _ in range(count):
            while await self.runner.run_once():
                pass
            self.clock.advance(1)

    async def read(self, operation: OperationRow) -> OperationRow:
        """Return the operation as it is now."""
        return await bulk.get_operation(self.store, operation.id)

    async def states(self, operation: OperationRow) -> dict[str, LetterState]:
        """Return the state of each letter."""
        return {
            letter.task_id: letter.state
            for letter in await self.store.list_letters(operation.id, limit=1_000)
        }


@pytest.fixture
async def redrives(build: Build, clock: SettableClock, store: Store) -> Redrives:
    await store.save_manifest("app", {"functions": {FUNCTION: {}}})
    await store.declare_limits([LimitDeclaration(GateKind.SYSTEM, "", Limits(retries_per_minute=60_000.0))])
    return Redrives(build, clock)


async def test_the_canary_goes_first_and_the_rest_after_its_first_attempts_succeeded(
    redrives: Redrives,
) -> None:
    build, ids = redrives.build, await redrives.dead(20)
    worker = await build.worker(slots=100, lease=1e6)
    operation = await redrives.start()

    await redrives.rounds(3)
    canary = await build.claim(worker, queues=("q",))
    assert len(canary) == 5
    assert (await redrives.read(operation)).state is OperationState.CANARY

    await build.done(*[succeeded(task.fence) for task in canary])
    await redrives.rounds(3)
    rest = await build.claim(worker, queues=("q",))
    assert sorted(task.fence.task_id for task in [*canary, *rest]) == sorted(ids)

    await build.done(*[succeeded(task.fence) for task in rest])
    await redrives.rounds(2)
    row = await redrives.read(operation)
    assert (row.state, row.chosen, row.sent, row.succeeded, row.skipped) == (
        OperationState.DONE,
        20,
        20,
        20,
        0,
    )
    assert row.ended_at is not None
    assert set((await redrives.states(operation)).values()) == {LetterState.SUCCEEDED}


async def test_a_canary_that_dies_again_stops_the_redrive_and_leaves_the_other_letters_dead(
    redrives: Redrives,
) -> None:
    build = redrives.build
    await redrives.dead(20)
    worker = await build.worker(slots=100, lease=1e6)
    operation = await redrives.start()
    await redrives.rounds(2)

    canary = await build.claim(worker, queues=("q",))
    await build.done(*[dead(task.fence) for task in canary[:2]])
    await redrives.rounds(2)

    row = await redrives.read(operation)
    assert row.state is OperationState.STOPPED
    assert "2 of 2 first attempts failed, more than 20%" in row.note
    assert (row.sent, row.died) == (5, 2)
    assert await build.store.count_dead_letters(TaskFilter()) == 17


async def test_a_letter_that_somebody_purged_or_redrove_meanwhile_is_skipped_and_counted(
    redrives: Redrives,
) -> None:
    build, store = redrives.build, redrives.store
    ids = await redrives.dead(4)
    operation = await redrives.start()
    await redrives.runner.run_once()
    await store.purge(ids[:1])
    await store.redrive(ids[1:2])
    worker = await build.worker(slots=100, lease=1e6)
    [task] = await build.claim(worker, queues=("q",))
    await build.done(dead(task.fence))  # the same letter, but another death

    await redrives.rounds(3)

    row = await redrives.read(operation)
    assert (row.chosen, row.sent, row.skipped) == (4, 2, 2)
    states = await redrives.states(operation)
    assert [states[one] for one in ids] == [LetterState.SKIPPED] * 2 + [LetterState.SENT] * 2
    assert await build.state(ids[1]) is State.DEAD


async def test_two_operations_over_the_same_letters_send_each_once(redrives: Redrives) -> None:
    build = redrives.build
    ids = await redrives.dead(10)
    worker = await build.worker(slots=100, lease=1e6)
    operations = [await redrives.start(), await redrives.start()]

    await redrives.rounds(3)
    claimed = await build.claim(worker, queues=("q",))
    await build.done(*[succeeded(task.fence) for task in claimed])
    await redrives.rounds(5)
    claimed += await build.claim(worker, queues=("q",))

    assert sorted(task.fence.task_id for task in claimed) == sorted(ids)
    rows = [await redrives.read(operation) for operation in operations]
    assert sum(row.sent for row in rows) == 10
    assert [(await build.row(one)).redrives for one in ids] == [1] * 10


async def test_letters_that_die_after_the_start_do_not_enter(redrives: Redrives, build: Build) -> None:
    await redrives.dead(3)
    operation = await redrives.start()
    late = await redrives.dead(2)

    await redrives.rounds(3)

    assert (await redrives.read(operation)).chosen == 3
    assert not set(late) & set(await redrives.states(operation))


async def test_letters_of_functions_that_nobody_declares_are_skipped(
    redrives: Redrives, store: Store
) -> None:
    await redrives.dead(2)
    await store.save_manifest("app", {"functions": {}})
    operation = await redrives.start(own=())

    await redrives.rounds(3)

    row = await redrives.read(operation)
    assert (row.state, row.chosen, row.skipped, row.note) == (
        OperationState.DONE,
        0,
        2,
        "no letter can be sent",
    )


async def test_nothing_is_sent_while_no_live_worker_serves_the_queue(redrives: Redrives) -> None:
    await redrives.dead(2)
    redrives.clock.advance(100)  # the leases of the workers that ran them run out
    operation = await redrives.start()

    await redrives.rounds(3)
    row = await redrives.read(operation)
    assert (row.state, row.sent, row.canary_at) == (OperationState.CANARY, 0, None)
    assert "nothing serves the queue q" in row.note

    await redrives.build.worker(slots=10, lease=1e6)
    await redrives.rounds(2)
    assert (await redrives.read(operation)).sent == 2


async def test_nothing_is_sent_while_the_gate_is_closed_and_the_time_of_the_canary_does_not_run(
    redrives: Redrives, store: Store
) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "llm", Limits())])
    await redrives.dead(2, upstream="llm")
    await redrives.build.worker(slots=10, lease=1e6)
    await store.park_gate("llm", seconds=None, why="broken")
    operation = await redrives.start(settings=RedriveSettings(canary_seconds=5.0))

    await redrives.rounds(10)
    row = await redrives.read(operation)
    assert (row.state, row.sent, row.note) == (OperationState.CANARY, 0, "the gate of llm is parked")

    await store.open_gate("llm")
    await redrives.rounds(2)
    assert (await redrives.read(operation)).sent == 2


async def test_a_canary_without_outcomes_in_time_stops_the_redrive(redrives: Redrives) -> None:
    await redrives.dead(8)
    await redrives.build.worker(slots=10, lease=1e6)
    operation = await redrives.start(settings=RedriveSettings(canary_seconds=5.0))

    await redrives.rounds(8)

    row = await redrives.read(operation)
    assert row.state is OperationState.STOPPED
    assert "5 of 5 letters of the canary did not end within 5 s" in row.note


async def test_a_redrive_spends_at_most_half_of_the_retry_budget(redrives: Redrives, store: Store) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.SYSTEM, "", Limits(retries_per_minute=60.0))])
    build = redrives.build
    await redrives.dead(100)
    worker = await build.worker(slots=1_000, lease=1e6)
    operation = await redrives.start()

    for _ in range(60):
        await redrives.rounds(1)
        for task in await build.claim(worker, queues=("q",)):
            await build.done(succeeded(task.fence))

    assert 20 <= (await redrives.read(operation)).sent <= 30


async def test_a_retry_that_waits_for_the_budget_goes_before_a_redrive(
    redrives: Redrives, store: Store, clock: SettableClock
) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.SYSTEM, "", Limits(retries_per_minute=10.0))])
    build = redrives.build
    await redrives.dead(2)
    worker = await build.worker(slots=100, lease=1e6)
    retries = await build.running(20, worker=worker)
    await build.done(*[retrying(task.fence, delay=0.0) for task in retries])
    clock.advance(1)
    await store.promote()
    operation = await redrives.start()

    await redrives.rounds(5)

    row = await redrives.read(operation)
    assert (row.sent, row.note) == (0, "retries of other tasks spend the retry budget first")


@pytest.fixture
def edited() -> RedriveSettings:
    return RedriveSettings(to_queue="other")


async def test_undo_restores_letters_that_have_not_started_as_they_were(
    redrives: Redrives, clock: SettableClock, edited: RedriveSettings
) -> None:
    build, store = redrives.build, redrives.store
    ids = [(await redrives.dead(1, unique=f"n{n}", deadline_seconds=50.0))[0] for n in range(3)]
    clock.advance(100)
    before = await store.list_dead_letters(TaskFilter())
    rows = await store.read_tasks(ids)
    own = [FUNCTION]
    operation_id, answers = await bulk.redrive_ids(
        store, ids[:2], own, by="ada", settings=edited, args={ids[0]: (b'{"n":2}', "json/1")}
    )
    assert set(answers.values()) == {ActionStatus.DONE}
    worker = await build.worker(slots=1, lease=1e6)
    [started] = await build.claim(worker, 1, queues=("other",))
    [left] = set(ids[:2]) - {started.fence.task_id}

    clock.advance(1)
    row = await bulk.undo(store, operation_id, by="bob")

    assert (row.state, row.undone, row.note) == (OperationState.UNDONE, 1, "undone by bob")
    assert await build.state(started.fence.task_id) is State.RUNNING
    after = {letter.task_id: letter for letter in await store.list_dead_letters(TaskFilter())}
    assert after[left] == next(letter for letter in before if letter.task_id == left)
    assert (await store.read_tasks([left]))[left] == rows[left]
    assert [entry.kind for entry in await store.get_history(left)][-1] == "redrive undone"
    await build.sound()


async def test_an_abort_sends_no_more_letters_and_leaves_the_sent_ones(redrives: Redrives) -> None:
    await redrives.dead(10)
    worker = await redrives.build.worker(slots=100, lease=1e6)
    operation = await redrives.start()
    await redrives.rounds(2)

    row = await bulk.abort(redrives.store, operation.id, by="bob")
    await redrives.rounds(3)

    row = await redrives.read(operation)
    assert (row.state, row.sent, row.note) == (OperationState.ABORTED, 5, "aborted by bob")
    claimed = await redrives.build.claim(worker, queues=("q",))
    await redrives.build.done(*[succeeded(task.fence) for task in claimed])
    await redrives.rounds(1)
    assert (await redrives.read(operation)).succeeded == 5


async def test_of_two_processes_that_plan_the_same_step_one_takes_it(
    redrives: Redrives, store: Store, twin: Store
) -> None:
    ids = await redrives.dead(30)
    worker = await redrives.build.worker(slots=100, lease=1e6)
    operation = await redrives.start()
    both = [OperationRunner(store), OperationRunner(twin)]

    claimed = []
    for _ in range(12):
        await asyncio.gather(*(runner.run_once() for runner in both))
        tasks = await redrives.build.claim(worker, queues=("q",))
        await redrives.build.done(*[succeeded(task.fence) for task in tasks])
        claimed += [task.fence.task_id for task in tasks]

    assert sorted(claimed) == sorted(ids)
    row = await redrives.read(operation)
    assert (row.state, row.chosen, row.sent, row.succeeded) == (OperationState.DONE, 30, 30, 30)


async def test_a_step_planned_before_an_abort_sends_nothing(redrives: Redrives, store: Store) -> None:
    await redrives.dead(10)
    await redrives.build.worker(slots=100, lease=1e6)
    operation = await redrives.start()
    await redrives.runner.run_once()
    await redrives.runner.run_once()
    planned = await redrives.read(operation)
    channels = (await store.read_feed(planned)).channels

    await bulk.abort(store, operation.id, by="bob")

    assert await store.send_letters(planned, channels) is None
    assert (await redrives.read(operation)).sent == 0


async def test_redriving_at_once_is_safe_to_repeat(redrives: Redrives, store: Store) -> None:
    ids = await redrives.dead(2)
    (ready,) = [await redrives.build.one()]
    new = NewOperation(
        IdMaker(lambda: int(START), lambda bits: 1)(),
        OperationKind.REDRIVE,
        OperationState.CHOOSING,
        "ada",
        3,
        None,
    )
    asked = [*ids, ready]

    first = await store.redrive_now(new, asked)
    second = await store.redrive_now(new, asked)

    assert (
        first
        == second
        == {
            ids[0]: ActionStatus.DONE,
            ids[1]: ActionStatus.DONE,
            ready: ActionStatus.REFUSED,
        }
    )
    row = await bulk.get_operation(store, new.id)
    assert (row.state, row.preview, row.chosen, row.sent) == (OperationState.DONE, 3, 2, 2)
    assert [(await redrives.build.row(one)).redrives for one in ids] == [1, 1]


async def test_the_history_names_who_redrove_and_the_operation(redrives: Redrives, store: Store) -> None:
    ids = await redrives.dead(1)

    operation_id, _ = await bulk.redrive_ids(store, ids, [FUNCTION], by="ada")

    [redriven] = [entry for entry in await store.get_history(ids[0]) if entry.kind == "redriven"]
    assert redriven.why == f"by ada, operation {operation_id}"


async def test_a_purge_is_recorded_and_ends_when_somebody_aborts_it(redrives: Redrives, store: Store) -> None:
    await redrives.dead(4)
    redrives.clock.advance(1)

    row, _ = await bulk.purge(store, None, TaskFilter(), by="ada")

    assert (row.kind, row.state, row.preview, row.sent) == (
        OperationKind.PURGE,
        OperationState.DONE,
        4,
        4,
    )
    assert not row.unfinished
    assert await store.purge_letters(row.id, ["00000000-0000-7000-8000-000000000000"]) is None


async def test_letters_keep_their_own_retention_when_their_tasks_are_deleted(
    redrives: Redrives, store: Store, clock: SettableClock
) -> None:
    ids = await redrives.dead(6)
    worker = await redrives.build.worker(slots=100, lease=1e9)
    operation_id, _ = await bulk.redrive_ids(store, ids, [FUNCTION], by="ada")
    claimed = await redrives.build.claim(worker, queues=("q",))
    await redrives.build.done(*[succeeded(task.fence) for task in claimed])
    await redrives.rounds(1)

    clock.advance(1_000)
    await store.delete_final_tasks(FinalTable.ARCHIVE, ids, until_at=math.inf)
    assert await store.read_tasks(ids) == {}
    assert await store.delete_old_operations(10_000, 4) == 0
    assert len(await store.list_letters(operation_id)) == 6

    clock.advance(10_000)
    assert await store.delete_old_operations(10_000, 4) == 4
    assert await store.delete_old_operations(10_000, 4) == 3
    assert await store.get_operation(operation_id) is None
    assert await store.delete_old_operations(10_000, 4) == 0


async def test_a_redrive_that_is_killed_between_two_steps_goes_on_in_another_process(
    redrives: Redrives, store: Store, twin: Store
) -> None:
    """After each commit the first process dies before it can do anything else; the other one goes on."""
    ids = await redrives.dead(12)
    worker = await redrives.build.worker(slots=100, lease=1e6)
    operation = await redrives.start()

    class Killed(Exception):
        pass

    class DiesAfter:
        """A store whose process dies after its next write."""

        def __init__(self, verb: str) -> None:
            self._verb = verb

        def __getattr__(self, name: str) -> Any:
            method = getattr(store, name)
            if name != self._verb:
                return method

            async def write_and_die(*args: Any, **given: Any) -> None:
                await method(*args, **given)
                raise Killed

            return write_and_die

    claimed = []
    for verb in ("choose_letters", "begin_canary", "send_letters", "record_outcomes", "set_operation_state"):
        dying: Any = DiesAfter(verb)
        for _ in range(3):
            row = await redrives.read(operation)
            with contextlib.suppress(Killed):
                await OperationRunner(dying).advance(row)
        tasks = await redrives.build.claim(worker, queues=("q",))
        await redrives.build.done(*[succeeded(task.fence) for task in tasks])
        claimed += [task.fence.task_id for task in tasks]
    for _ in range(10):
        await OperationRunner(twin).run_once()
        tasks = await redrives.build.claim(worker, queues=("q",))
        await redrives.build.done(*[succeeded(task.fence) for task in tasks])
        claimed += [task.fence.task_id for task in tasks]

    assert sorted(claimed) == sorted(ids)
    row = await redrives.read(operation)
    assert (row.state, row.sent, row.succeeded) == (OperationState.DONE, 12, 12)


async def test_an_undo_and_a_claim_at_the_same_moment_share_the_letters(
    redrives: Redrives, store: Store, twin: Store
) -> None:
    ids = await redrives.dead(40)
    worker = await redrives.build.worker(slots=100, lease=1e6)
    operation_id, _ = await bulk.redrive_ids(store, ids, [FUNCTION], by="ada")

    request = redrives.build.request(worker, 5, queues=("q",))
    row, *claims = await asyncio.gather(
        bulk.undo(store, operation_id, by="bob"), *(twin.claim(request) for _ in range(4))
    )

    started = [task.fence.task_id for claim in claims for task in claim.tasks]
    assert len(started) + row.undone == 40
    states = await redrives.build.states(ids)
    assert {one for one in ids if states[one] is State.RUNNING} == set(started)
    assert sum(state is State.DEAD for state in states.values()) == row.undone
    await redrives.build.sound()


async def test_an_abort_while_batches_are_sent_counts_exactly_what_was_sent(
    redrives: Redrives, store: Store, twin: Store
) -> None:
    ids = await redrives.dead(60)
    await redrives.build.worker(slots=1_000, lease=1e6)
    operation = await redrives.start(settings=RedriveSettings(stop_above=1.0))
    for _ in range(2):
        await redrives.runner.run_once()

    await asyncio.gather(
        *(OperationRunner(each).run_once() for each in (store, twin, store)),
        bulk.abort(twin, operation.id, by="bob"),
    )
    await redrives.rounds(2)

    row = await redrives.read(operation)
    assert row.state is OperationState.ABORTED
    states = await redrives.build.states(ids)
    assert sum(state is State.READY for state in states.values()) == row.sent


async def test_a_stored_state_has_everything_that_an_undo_restores(redrives: Redrives, store: Store) -> None:
    """Every column of a dead letter and its task is as before, apart from those of the redrive's history."""
    ids = await redrives.dead(1)
    before = [await store.list_dead_letters(TaskFilter()), await store.read_tasks(ids)]
    operation_id, _ = await bulk.redrive_ids(
        store, ids, [FUNCTION], by="ada", settings=RedriveSettings(to_queue="x")
    )
    await bulk.undo(store, operation_id, by="ada")
    assert [await store.list_dead_letters(TaskFilter()), await store.read_tasks(ids)] == before
    payload = await store.get_payload(ids[0])
    assert payload is not None
    assert payload[0] == b'{"n":1}'
