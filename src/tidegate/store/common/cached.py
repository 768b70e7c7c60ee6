"""Results of steps that tasks with the same content share, and the waits of tasks for them.

If several tasks come to the same work, one of them, the leader, does it. The others suspend themselves.
A task leads as long as its step is open and its run is the current one. So the leadership has the lease of
the run, and ends with a failure, a kill, a cancel or a doubt. Then maintenance wakes one of the waiting
tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from tidegate.domain.step import CACHED_BYTES, OnDoubt, StepState
from tidegate.store.common import task_waits
from tidegate.store.common.session import Session
from tidegate.store.common.steps import storable_begin, storable_end
from tidegate.store.common.text import storable
from tidegate.store.step_rows import (
    OTHER_TENANT,
    BeginStatus,
    BegunStep,
    CacheTerms,
    EndedStep,
    EndStatus,
    StepBegin,
    StepEnd,
)

ELECTION_SECONDS = 30.0
"""A task that was woken to do the work has this long to begin it. After that, another task is woken too."""
LEAD_KEPT_SECONDS = 86_400.0
"""The row of work that was begun is kept this long, so that tasks find who does it."""

Begin = Callable[[StepBegin], Awaitable[BegunStep]]
End = Callable[[StepEnd], Awaitable[EndedStep]]
"""Begin and end a step in the transaction of the call."""


class _Known(NamedTuple):
    """What the store knows of a content and of the task's own step."""

    is_current: bool | int
    """Whether the run is the task's current one."""
    state: str | None
    """The state of the step; None if there is no step."""
    run: int | None
    attempt: int | None
    has_waited: bool | int
    """Whether the task has suspended itself for the work."""
    has_result: bool | int
    data: bytes | None
    """The result; None if there is none, or if it was too large to be kept."""
    codec: str | None
    author: Any
    """The task that made the result."""
    tenant: str | None
    """The tenant of that task."""
    is_led: bool | int
    leader: Any
    leader_run: int | None
    leader_key: str | None


async def begin_step(db: Session, begin: StepBegin, begin_plainly: Begin, end_plainly: End) -> BegunStep:
    """Begin a step with a cache, or return a cached result."""
    begin, sql = storable_begin(begin), db.sql("cached")
    terms, task = _storable(begin.cache), db.id(begin.fence.task_id)
    if task is None:
        return BegunStep(BeginStatus.FENCED)
    known = await _look(db, begin, terms, task)
    if known.state in (StepState.DONE, StepState.REJECTED):
        return await begin_plainly(begin)
    if not _answers(begin, known):
        await db.rows(sql["lock"], terms.digest)
        known = await _look(db, begin, terms, task)
    if not known.is_current:
        return BegunStep(BeginStatus.FENCED)
    if _answers(begin, known):
        answered = await _answer(db, begin, task, known, terms, end_plainly)
        if answered is not None:
            return answered
    is_led = known.is_led and not _is_leader(db, begin, task, known)
    is_too_large = known.has_result and known.data is None
    if is_led and terms.may_wait and not is_too_large and _may_use(begin, known):
        is_own = known.tenant == terms.tenant
        return BegunStep(BeginStatus.WAIT, leader_id=db.text(known.leader) if is_own else "")
    begun = await begin_plainly(begin)
    if begun.status is BeginStatus.BEGUN:
        if not is_led and not is_too_large:
            lead = (terms.digest, terms.tenant, int(terms.is_shared), task, begin.fence.run, begin.key)
            await db.run(sql["lead"], db.at, *lead, LEAD_KEPT_SECONDS)
        await _count(db, task, known, terms, "miss")
    return begun


async def end_step(db: Session, end: StepEnd, end_plainly: End) -> EndedStep:
    """End a step with a result, and keep the result for other tasks if it counts."""
    end = storable_end(end)
    ended, terms, task = await end_plainly(end), _storable(end.cache), db.id(end.fence.task_id)
    if ended.status is EndStatus.DONE and end.status is EndStatus.DONE:
        result = (end.codec, end.data if len(end.data) <= CACHED_BYTES else None)
        whose = (terms.digest, terms.tenant, int(terms.is_shared), task)
        await db.run(db.sql("cached")["keep"], db.at, *whose, terms.seconds, *result)
    return ended


async def set_waits(db: Session, task: Any, waits: Sequence[tuple[str, float]], now: float) -> None:
    """Record which results a task waits for, in the transaction that suspends it.

    Args:
        db: A session in that transaction.
        task: The task's id in its stored form.
        waits: The digests, and how old a result may be in seconds.
        now: The current time.
    """
    sql = db.sql("cached")
    await db.run(sql["clear_waits"], task)
    for digest, seconds in waits:
        await db.run(sql["add_wait"], task, storable(digest), now - seconds)


async def has_wakeable(db: Session) -> bool:
    """Return whether a suspended task can wake, for a result or to do the work."""
    return bool(await db.rows(db.sql("cached")["wakeable"], db.at, ELECTION_SECONDS, 1))


async def wake(db: Session, now: float) -> None:
    """Make suspended tasks due whose result is there, and one of those whose work nobody does."""
    sql = db.sql("cached")
    chosen: list[Any] = []
    seen: set[str] = set()
    rows = await db.rows(sql["wakeable"], db.at, ELECTION_SECONDS, task_waits.MOST_WOKEN)
    for task, digest, version, is_answered in rows:
        if not is_answered:
            if digest in seen:
                continue
            seen.add(digest)
            if version is not None and not await db.run(sql["elect"], db.at, digest, version, task):
                continue  # another process has chosen a task, or a task has begun the work
        chosen.append(task)
    if chosen and (woken := await db.column(db.sql("task_waits")["wake"], db.array(chosen), now)):
        await db.run(sql["awake"], db.array(woken))


async def _look(db: Session, begin: StepBegin, terms: CacheTerms, task: Any) -> _Known:
    row = await db.row(
        db.sql("cached")["look"],
        db.at,
        task,
        begin.fence.run,
        begin.key,
        terms.digest,
        terms.tenant,
        terms.seconds,
    )
    assert row is not None
    return _Known(*row)


def _may_use(begin: StepBegin, known: _Known) -> bool:
    """Whether a step may get the result of another task: not if a person or a function decides its doubt."""
    is_own = (known.run, known.attempt) == (begin.fence.run, begin.attempt)
    return known.state in (None, StepState.FAILED) or (
        known.state == StepState.OPEN and not is_own and begin.on_doubt is OnDoubt.REPEAT
    )


def _is_leader(db: Session, begin: StepBegin, task: Any, known: _Known) -> bool:
    """Whether this step of this run does the work already, and begins again."""
    leader = (db.text(known.leader), known.leader_run, known.leader_key)
    return leader == (db.text(task), begin.fence.run, begin.key)


def _answers(begin: StepBegin, known: _Known) -> bool:
    return bool(known.has_result) and known.data is not None and _may_use(begin, known)


async def _answer(
    db: Session, begin: StepBegin, task: Any, known: _Known, terms: CacheTerms, end_plainly: End
) -> BegunStep | None:
    """End a step with a result of another task; return None if another run has begun the step meanwhile."""
    sql, data, codec = db.sql("cached"), known.data or b"", known.codec or ""
    author = db.text(known.author) if known.tenant == terms.tenant else OTHER_TENANT
    if known.state == StepState.OPEN:  # its call is in doubt, and is not made again
        done = StepEnd(begin.fence, begin.key, begin.attempt, EndStatus.DONE, data, codec)
        ended = await end_plainly(done._replace(upstream=begin.upstream))
        if ended.status is not EndStatus.DONE:
            return None
        await db.run(sql["mark"], task, begin.key, author)
    else:
        step = (begin.key, begin.attempt, begin.name, begin.on_doubt, begin.upstream, begin.arguments)
        if not await db.rows(sql["answer"], db.at, task, begin.fence.run, *step, data, codec, author):
            return None
    await _count(db, task, known, terms, "shared" if known.has_waited or terms.has_waited else "hit")
    return BegunStep(BeginStatus.DONE, data, codec, arguments=begin.arguments, is_cached=True)


async def _count(db: Session, task: Any, known: _Known, terms: CacheTerms, what: str) -> None:
    sql = db.sql("cached")
    await db.run(sql["count"], db.at, task, what)
    if known.has_waited:
        await db.run(sql["end_wait"], task, terms.digest)


def _storable(terms: CacheTerms | None) -> CacheTerms:
    assert terms is not None
    return terms._replace(digest=storable(terms.digest), tenant=storable(terms.tenant))
