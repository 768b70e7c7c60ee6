"""The steps that runs begin and end, decided row by row in the transaction of the call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import apsw

from tidegate.domain.step import DoubtState, OnDoubt, StepState
from tidegate.store.common import cached, ids
from tidegate.store.common.steps import PAID_TWICE, UNANSWERED, storable_begin, storable_end
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.work import SqliteSession
from tidegate.store.step_rows import BeginStatus, BegunStep, EndedStep, EndStatus, StepBegin, StepEnd

_SQL = load("steps")
_BEGUN = BegunStep(BeginStatus.BEGUN)


class _Row(NamedTuple):
    """A stored step."""

    state: str
    run: int
    attempt: int
    on_doubt: str
    begun_at: float
    upstream: str
    cause: str
    request_id: str
    doubted: int
    codec: str
    arguments: str
    data: bytes | None
    """The result of the step, if it is done."""
    input_tokens: int | None
    output_tokens: int | None

    @property
    def call(self) -> tuple[int, int]:
        """The run and attempt that began it last, or whose result it has."""
        return self.run, self.attempt


def begin_steps(db: apsw.Connection, now: float, begins: Sequence[StepBegin]) -> list[BegunStep]:
    """Record that runs are about to do these steps; return what became of each, in order."""
    return [_begin(db, now, storable_begin(begin)) for begin in begins]


def end_steps(db: apsw.Connection, now: float, ends: Sequence[StepEnd]) -> list[EndedStep]:
    """Record how these steps ended; return what became of each, in order."""
    return [_end(db, now, storable_end(end)) for end in ends]


async def begin_cached_step(db: SqliteSession, begin: StepBegin) -> BegunStep:
    """Begin a step with a cache, or return the result that serves."""
    return await cached.begin_step(db, begin, partial(_begin_plainly, db), partial(_end_plainly, db))


async def end_cached_step(db: SqliteSession, end: StepEnd) -> EndedStep:
    """End a step with a result, and keep the result for other tasks."""
    return await cached.end_step(db, end, partial(_end_plainly, db))


async def _begin_plainly(db: SqliteSession, begin: StepBegin) -> BegunStep:
    return _begin(db.link, db.at, begin)


async def _end_plainly(db: SqliteSession, end: StepEnd) -> EndedStep:
    return _end(db.link, db.at, end)


def _begin(db: apsw.Connection, now: float, begin: StepBegin) -> BegunStep:
    task, run = ids.blob_or_none(begin.fence.task_id), begin.fence.run
    if task is None or query.value(db, _SQL["is_current"], (task, run)) is None:
        return BegunStep(BeginStatus.FENCED)
    row = _row(db, task, begin.key)
    is_repeat = False
    if row is not None:
        if row.state == StepState.DONE:
            return BegunStep(BeginStatus.DONE, row.data or b"", row.codec, arguments=row.arguments)
        if row.state == StepState.REJECTED:
            return BegunStep(BeginStatus.REJECTED)
        if row.run == run and row.attempt >= begin.attempt:
            return _BEGUN  # a resend
        if row.state == StepState.OPEN:
            is_repeat = begin.on_doubt is OnDoubt.REPEAT
            _enter_superseded(db, now, task, begin, row)
            if not is_repeat:
                db.execute(_SQL["note"], (task, begin.key, begin.on_doubt))
                return BegunStep(BeginStatus.IN_DOUBT)
    db.execute(
        _SQL["begin"],
        (
            task,
            begin.key,
            begin.name,
            run,
            begin.attempt,
            begin.on_doubt,
            begin.upstream,
            now,
            begin.arguments,
        ),
    )
    return BegunStep(BeginStatus.BEGUN, is_repeat=is_repeat)


def _enter_superseded(db: apsw.Connection, now: float, task: bytes, begin: StepBegin, row: _Row) -> None:
    """Enter the call of an open step that is in doubt."""
    is_repeat = begin.on_doubt is OnDoubt.REPEAT
    _enter(
        db,
        now,
        (task, begin.key, *row.call),
        DoubtState.REPEATED if is_repeat else DoubtState.OPEN,
        row._replace(on_doubt=begin.on_doubt, cause=row.cause or UNANSWERED),
    )


def _end(db: apsw.Connection, now: float, end: StepEnd) -> EndedStep:
    task = ids.blob_or_none(end.fence.task_id)
    row = None if task is None else _row(db, task, end.key)
    if task is None or row is None:
        return EndedStep(EndStatus.GONE)
    if end.status is EndStatus.DONE:
        return _end_with_result(db, now, task, end, row)
    return _end_without_result(db, now, task, end, row)


def _end_with_result(db: apsw.Connection, now: float, task: bytes, end: StepEnd, row: _Row) -> EndedStep:
    call = (end.fence.run, end.attempt)
    if row.state in (StepState.OPEN, StepState.FAILED):
        _adopt(db, now, task, end, row)
        return EndedStep(EndStatus.DONE)
    if row.state == StepState.DONE and row.call == call:
        return EndedStep(EndStatus.DONE)  # a resend
    twice = _reported(end, row)._replace(cause=PAID_TWICE)
    _enter(db, now, (task, end.key, *call), DoubtState.PAID_TWICE, twice)
    if row.state == StepState.REJECTED:
        return EndedStep(EndStatus.GONE)
    return EndedStep(EndStatus.ALREADY, row.data or b"", row.codec)


def _adopt(db: apsw.Connection, now: float, task: bytes, end: StepEnd, row: _Row) -> None:
    """Record the result of a step that has none, and what that means for the calls in doubt."""
    call = (end.fence.run, end.attempt)
    is_own, is_earlier = call == row.call, call < row.call
    is_doubted = is_earlier or (is_own and row.doubted == 1)
    if is_doubted:
        _enter(db, now, (task, end.key, *call), DoubtState.ANSWERED, _reported(end, row))
    if not is_own and (row.doubted or (row.state == StepState.OPEN and not is_earlier)):
        state = DoubtState.REPEATED if is_earlier else DoubtState.RECONCILED
        _enter(db, now, (task, end.key, *row.call), state, row)
    _save(db, task, end, row, StepState.DONE, ended_at=now, doubted=is_doubted)


def _end_without_result(db: apsw.Connection, now: float, task: bytes, end: StepEnd, row: _Row) -> EndedStep:
    call = (end.fence.run, end.attempt)
    is_own = call == row.call
    is_in_doubt = end.status is EndStatus.IN_DOUBT
    if is_own and row.state == StepState.OPEN:
        if is_in_doubt:
            _enter(db, now, (task, end.key, *call), DoubtState.OPEN, _reported(end, row))
            _save(db, task, end, row, StepState.OPEN, ended_at=None, doubted=True)
        else:
            if row.doubted:
                _enter(db, now, (task, end.key, *call), DoubtState.RECONCILED, _reported(end, row))
            _save(db, task, end, row, StepState.FAILED, ended_at=now, doubted=row.doubted == 1)
    elif is_in_doubt and not is_own:
        _enter(db, now, (task, end.key, *call), DoubtState.REPEATED, _reported(end, row))
    if row.state == StepState.DONE:
        return EndedStep(EndStatus.ALREADY, row.data or b"", row.codec)
    return EndedStep(end.status)


def _reported(end: StepEnd, row: _Row) -> _Row:
    """Return the step with the facts that its end reports about the call."""
    return row._replace(
        cause=end.cause,
        upstream=end.upstream or row.upstream,
        request_id=end.request_id,
        input_tokens=end.input_tokens,
        output_tokens=end.output_tokens,
    )


def _row(db: apsw.Connection, task: bytes, key: str) -> _Row | None:
    found = query.row(db, _SQL["one"], (task, key))
    return None if found is None else _Row(*found)


def _save(
    db: apsw.Connection,
    task: bytes,
    end: StepEnd,
    row: _Row,
    state: StepState,
    *,
    ended_at: float | None,
    doubted: bool,
) -> None:
    is_done = state is StepState.DONE
    db.execute(
        _SQL["end"],
        (
            task, end.key, state, end.fence.run, end.attempt, ended_at, end.data if is_done else None,
            end.codec if is_done else "", end.upstream or row.upstream, end.cause, end.request_id, doubted,
            end.input_tokens, end.output_tokens,
        ),
    )  # fmt: skip


def _enter(db: apsw.Connection, now: float, call: tuple[Any, ...], state: DoubtState, row: _Row) -> None:
    """Put a call into the ledger: task, key, run and attempt; with the facts of this step."""
    db.execute(
        _SQL["enter"],
        (
            *call, state, row.on_doubt, row.cause, row.upstream, row.request_id, row.begun_at, now,
            None if state is DoubtState.OPEN else now, row.input_tokens, row.output_tokens,
        ),
    )  # fmt: skip
