"""The contract against a model: any sequence of calls gives the results and states of the model."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from store_back_ends import BackEnd
from store_build import Build, SettableClock, dead, retrying, succeeded

from tidegate.domain.outcome import (
    Cancelled,
    Charge,
    Fence,
    FinishStatus,
    Outcome,
    Released,
    Retrying,
    Succeeded,
    Suspended,
)
from tidegate.domain.spec import Priority
from tidegate.domain.states import FINAL, MOVES, State
from tidegate.store.rows import ActionStatus, CancelStatus, TaskFilter

EVERY_MOVE = frozenset().union(*MOVES.values())


@dataclass
class Model:
    """One task as the contract describes it."""

    id: str
    priority: Priority
    rank: float
    state: State
    due_at: float | None = None
    unique: str | None = None
    run: int = 0
    worker: str | None = None
    cancel_asked: bool = False
    ends: dict[int, Outcome] = field(default_factory=dict)
    attempts: int = 0


class Contract(RuleBasedStateMachine):
    """Enqueue, promote, claim, finish, cancel, redrive, retire; one model for all back ends."""

    tasks = Bundle("tasks")
    fences = Bundle("fences")
    back_end: BackEnd
    request: pytest.FixtureRequest

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stack = ExitStack()
        self.clock = SettableClock()
        self.store = self.stack.enter_context(self.back_end.clients(self.request, self.clock))()
        self.build = Build(self.store, self.clock)
        self.models: dict[str, Model] = {}
        self.seen: dict[str, State] = {}
        self.workers: dict[str, bool] = {}
        for _ in range(2):
            self.workers[self.do(self.build.worker())] = True

    def do(self, call):
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        assert self.do(self.store.check_integrity()) == []
        self.do(self.store.close())
        self.do(self.loop.shutdown_default_executor())
        self.loop.close()
        self.stack.close()

    # --- what clients do ---

    @rule(
        target=tasks,
        priority=st.sampled_from(Priority),
        delay=st.sampled_from([0.0, 0.0, 30.0]),
        unique=st.sampled_from([None, None, "u"]),
    )
    def enqueue(self, priority: Priority, delay: float, unique: str | None) -> str:
        new = self.build.new(priority=priority, delay_seconds=delay, unique=unique)
        [answer] = self.do(self.store.enqueue([new]))
        holder = self.holder(unique)
        assert answer.task_id == (holder or new.id)
        assert answer.created is (holder is None)
        if holder is None:
            due_at = self.clock.now + delay
            state = State.SCHEDULED if delay else State.READY
            self.models[new.id] = Model(new.id, priority, due_at, state, due_at, unique)
        return answer.task_id

    def holder(self, unique: str | None) -> str | None:
        holders = [
            task.id
            for task in self.models.values()
            if unique and task.unique == unique and task.state not in FINAL
        ]
        return holders[0] if holders else None

    @rule(task_id=tasks)
    def resend(self, task_id: str) -> None:
        if task_id in self.models:
            [answer] = self.do(self.store.enqueue([self.build.new(id=task_id)]))
            assert (answer.task_id, answer.created) == (task_id, True)

    @rule(task_id=tasks)
    def cancel(self, task_id: str) -> None:
        answer = self.do(self.store.cancel([task_id]))[task_id]
        task = self.models.get(task_id)
        if task is None:
            assert answer is CancelStatus.UNKNOWN
        elif task.state in FINAL:
            assert answer is CancelStatus.FINISHED
        elif task.state is State.RUNNING:
            assert answer is CancelStatus.REQUESTED
            task.cancel_asked = True
        else:
            assert answer is CancelStatus.CANCELLED
            task.state = State.CANCELLED

    @rule(task_id=tasks, priority=st.sampled_from(Priority))
    def reprioritise(self, task_id: str, priority: Priority) -> None:
        answer = self.do(self.store.reprioritise([task_id], priority))[task_id]
        task = self.models.get(task_id)
        movable = task is not None and task.state not in FINAL | {State.RUNNING}
        assert answer is (
            ActionStatus.UNKNOWN if task is None else ActionStatus.DONE if movable else ActionStatus.REFUSED
        )
        if task is not None and movable:
            task.priority = priority

    @rule(task_id=tasks)
    def run_now(self, task_id: str) -> None:
        answer = self.do(self.store.run_now([task_id]))[task_id]
        task = self.models.get(task_id)
        if task is None:
            assert answer is ActionStatus.UNKNOWN
        elif task.state in (State.SCHEDULED, State.RETRYING):
            assert answer is ActionStatus.DONE
            task.state, task.rank = State.READY, min(task.rank, self.clock.now)
        else:
            assert answer is (ActionStatus.DONE if task.state is State.READY else ActionStatus.REFUSED)

    # --- what workers do ---

    @rule(
        target=fences,
        number=st.integers(0, 1),
        slots=st.integers(1, 3),
        reserved=st.dictionaries(st.sampled_from(Priority), st.integers(0, 2), max_size=2),
    )
    def claim(self, number: int, slots: int, reserved: dict[Priority, int]) -> Fence | None:
        worker = list(self.workers)[number]
        claim = self.do(self.store.claim(self.build.request(worker, slots, reserved=reserved)))
        assert claim.is_alive is self.workers[worker]
        expected = self.next_in_line(slots, reserved) if claim.is_alive else []
        assert [task.fence.task_id for task in claim.tasks] == [task.id for task in expected]
        for task, claimed in zip(expected, claim.tasks, strict=True):
            task.state, task.run, task.worker, task.cancel_asked = State.RUNNING, task.run + 1, worker, False
            assert claimed.fence.run == task.run
            assert claimed.counters.attempts == task.attempts
        return claim.tasks[0].fence if claim.tasks else None

    def next_in_line(self, slots: int, reserved: dict[Priority, int]) -> list[Model]:
        lines = {
            priority: sorted(
                (
                    task
                    for task in self.models.values()
                    if task.state is State.READY and task.priority is priority
                ),
                key=lambda task: (task.rank, task.id),
            )
            for priority in Priority
        }
        chosen: list[Model] = []
        for wanted in (reserved, dict.fromkeys(Priority, slots)):
            for priority in Priority:
                take = min(wanted.get(priority, 0), slots - len(chosen))
                chosen += lines[priority][:take]
                del lines[priority][:take]
        return chosen

    @rule(
        fence=fences,
        end=st.sampled_from(["succeeded", "retrying", "released", "suspended", "dead", "cancelled"]),
    )
    def finish(self, fence: Fence | None, end: str) -> None:
        if fence is None:
            return
        outcome: Outcome = {
            "succeeded": succeeded(fence),
            "retrying": retrying(fence, delay=10.0, offset=60.0),
            "released": Released(fence, "shutdown", -600.0),
            "suspended": Suspended(fence, 20.0, "sleeps 20 s", -600.0),
            "dead": dead(fence),
            "cancelled": Cancelled(fence),
        }[end]
        [answer] = self.do(self.store.finish([outcome]))
        task = self.models.get(fence.task_id)
        if task is None:
            assert answer is FinishStatus.FENCED
        elif task.state is State.RUNNING and task.run == fence.run:
            assert answer is FinishStatus.DONE
            self.end(task, outcome)
        else:
            assert answer is (
                FinishStatus.ALREADY if task.ends.get(fence.run) == outcome else FinishStatus.FENCED
            )

    def end(self, task: Model, outcome: Outcome) -> None:
        task.ends[task.run] = outcome
        charge = getattr(outcome, "charge", None)
        task.attempts += charge is Charge.ATTEMPT
        if isinstance(outcome, Succeeded):
            task.state = State.SUCCEEDED
        elif isinstance(outcome, Retrying | Released | Suspended) and not task.cancel_asked:
            if isinstance(outcome, Retrying | Suspended):
                task.state = State.RETRYING if isinstance(outcome, Retrying) else State.SUSPENDED
                task.due_at = self.clock.now + outcome.delay_seconds
                task.rank = task.due_at + outcome.rank_offset
            else:
                assert task.due_at is not None
                task.state, task.rank = State.READY, task.due_at + outcome.rank_offset
                task.due_at = self.clock.now
        else:
            task.state = (
                State.CANCELLED
                if isinstance(outcome, Retrying | Released | Suspended | Cancelled)
                else State.DEAD
            )

    # --- what maintenance and people do ---

    @rule(seconds=st.sampled_from([1.0, 15.0, 90.0]))
    def promote(self, seconds: float) -> None:
        self.clock.advance(seconds)
        due = [
            task
            for task in self.models.values()
            if task.state in (State.SCHEDULED, State.RETRYING, State.SUSPENDED)
            and task.due_at <= self.clock.now
        ]
        assert self.do(self.store.promote()) == len(due)
        for task in due:
            task.state = State.READY

    @rule(number=st.integers(0, 1))
    def retire_and_reap(self, number: int) -> None:
        worker = list(self.workers)[number]
        self.do(self.store.retire_worker(worker, why="test", is_loss=True, only_if_expired=False))
        orphans = self.do(self.store.list_orphans())
        held = [
            task for task in self.models.values() if task.state is State.RUNNING and task.worker == worker
        ]
        assert {orphan.fence for orphan in orphans} == {Fence(task.id, task.run) for task in held}
        outcomes = [
            retrying(orphan.fence, delay=0.0, charge=Charge.LOSS, offset=0.0, why="lost")
            for orphan in orphans
        ]
        assert self.do(self.store.finish(outcomes)) == [FinishStatus.DONE] * len(outcomes)
        for outcome in outcomes:
            self.end(self.models[outcome.fence.task_id], outcome)
        del self.workers[worker]
        self.workers[self.do(self.build.worker())] = True

    @rule(task_id=tasks)
    def redrive(self, task_id: str) -> None:
        answer = self.do(self.store.redrive([task_id]))[task_id]
        task = self.models.get(task_id)
        if task is None:
            assert answer is ActionStatus.UNKNOWN
        elif task.state is State.DEAD and self.holder(task.unique) is None:
            assert answer is ActionStatus.DONE
            task.state, task.rank, task.due_at, task.attempts = State.READY, self.clock.now, self.clock.now, 0
        else:
            assert answer is ActionStatus.REFUSED

    @rule(task_id=tasks)
    def purge(self, task_id: str) -> None:
        answer = self.do(self.store.purge([task_id]))[task_id]
        task = self.models.get(task_id)
        dead_now = task is not None and task.state is State.DEAD
        assert answer is (
            ActionStatus.UNKNOWN if task is None else ActionStatus.DONE if dead_now else ActionStatus.REFUSED
        )
        if dead_now:
            del self.models[task_id]
            self.seen.pop(task_id, None)

    # --- what must hold always ---

    @invariant()
    def states_agree(self) -> None:
        rows = self.do(self.store.read_tasks(list(self.models)))
        assert {task_id: (row.state, row.run) for task_id, row in rows.items()} == {
            task.id: (task.state, task.run) for task in self.models.values()
        }
        listed = self.do(self.store.list_tasks(TaskFilter(), limit=1_000))
        assert [row.id for row in listed] == sorted(self.models, reverse=True)

    @invariant()
    def every_move_is_in_the_table(self) -> None:
        for task in self.models.values():
            before = self.seen.get(task.id)
            if task.state is not before:
                assert (before, task.state) in EVERY_MOVE
            self.seen[task.id] = task.state


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_any_sequence_of_calls_behaves_like_the_model(
    back_end: BackEnd, request: pytest.FixtureRequest, times: int
) -> None:
    machine = type("Contract", (Contract,), {"back_end": back_end, "request": request})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=back_end.examples * times,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
