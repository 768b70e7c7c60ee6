"""How runs end: successes in one statement, everything else in a few, bad content never in the way.

A batch that fails on its content is halved until the outcome at fault stands alone; that one is written
with a placeholder for what could not be stored. The halves are transactions of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tidegate.codec.tags import CODEC
from tidegate.domain.calls import CallsMade
from tidegate.domain.outcome import Answer, Outcome, Succeeded
from tidegate.store import ids
from tidegate.store.common import gates
from tidegate.store.endings import is_told_again, with_placeholder
from tidegate.store.gating import Good, by_upstream, goes_well, is_silent_probe
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.endings import end, record_usage
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.postgres.wrap import CONTENT_ERRORS, refused_content
from tidegate.store.text import storable

_SQL = load("finish")

_NULL = (b"null", CODEC)
"""A result kept by having no row."""

MOST_BYTES = 8_388_608
"""Of results in one write, or a single larger one: what also a slow network carries in a call's time. A batch
that it does not would be given up, and sent again, without end."""


class _Good(NamedTuple):
    """A run that succeeded."""

    upstream: str
    seconds: float
    probe: bool
    calls: CallsMade


Batch = Mapping[str, Outcome]
"""Outcomes of different tasks, by task id, in the order of the ids."""


async def finish(database: Database, outcomes: Sequence[Outcome]) -> list[Answer]:
    """Write how these runs ended; answer per outcome, in order."""
    answers: list[Answer] = [Answer.FENCED] * len(outcomes)
    for places in _rounds(outcomes):
        told = await _finish(database, {task_id: outcomes[place] for task_id, place in places.items()})
        for task_id, place in places.items():
            answers[place] = told[task_id]
    return answers


def _rounds(outcomes: Sequence[Outcome]) -> Iterator[dict[str, int]]:
    """Yield the outcomes' places by task id, in the order of the ids, no task twice in a round.

    Of several words on one task the later must see what the earlier wrote. An id that no task can have is
    left out. What is too large for one round goes in several.
    """
    places = {
        place: task_id
        for place, outcome in enumerate(outcomes)
        if (task_id := ids.known(outcome.fence.task_id)) is not None
    }
    while places:
        firsts: dict[str, int] = {}
        room = MOST_BYTES
        for place, task_id in places.items():
            if task_id in firsts:
                continue
            room -= _bytes_of(outcomes[place])
            if room < 0 and firsts:
                break
            firsts[task_id] = place
        yield dict(sorted(firsts.items()))
        for place in firsts.values():
            del places[place]


def _bytes_of(outcome: Outcome) -> int:
    result: object = outcome.result if isinstance(outcome, Succeeded) else None
    return len(result) if isinstance(result, bytes) else 0  # what is none is refused by the write


async def _finish(database: Database, batch: Batch) -> dict[str, Answer]:
    """Write a batch, or its halves if its content is refused.

    Raises:
        ValueError: An outcome is refused even with a placeholder.
    """
    try:
        return await _write(database, batch)
    except CONTENT_ERRORS as error:
        if len(batch) == 1:
            plain = {task_id: with_placeholder(outcome, error) for task_id, outcome in batch.items()}
            with refused_content():
                return await _write(database, plain)
    answers: dict[str, Answer] = {}
    entries, middle = list(batch.items()), len(batch) // 2
    for half in (entries[:middle], entries[middle:]):
        answers |= await _finish(database, dict(half))
    return answers


async def _write(database: Database, batch: Batch) -> dict[str, Answer]:
    """End the runs that are current; say of the others whether they were told before."""
    done = await _end_current(database, batch)
    answers = dict.fromkeys(done, Answer.DONE)
    rest = {task_id: outcome for task_id, outcome in batch.items() if task_id not in done}
    if rest:
        answers |= await database.once(lambda db: _refused(db, rest))
        # Neither ended nor refused: its row was being changed, by a cancel say. Once more.
        again = {task_id: outcome for task_id, outcome in rest.items() if task_id not in answers}
        answers |= await _write(database, again) if again else {}
    return answers


async def _end_current(database: Database, batch: Batch) -> set[str]:
    successes = {task_id: word for task_id, word in batch.items() if isinstance(word, Succeeded)}
    endings = {task_id: word for task_id, word in batch.items() if not isinstance(word, Succeeded)}
    good: list[_Good] = []
    states_usage = any(word.calls.used is not None for word in successes.values())
    if not endings and not states_usage:
        done = await database.once(lambda db: _succeed(db, successes, good), steady=True)
    else:

        async def both(db: PostgresSession) -> set[str]:
            good.clear()
            done = await _succeed(db, successes, good) if successes else set()
            await record_usage(db, {task_id: successes[task_id].calls for task_id in done})
            return done | await end(db, endings) if endings else done

        done = await database.transact(both, steady=True)
    if good:  # after the commit, so that no end waits for a gate; a lost word costs one more probe
        await database.transact(lambda db: _tell_upstreams(db, good), steady=True)
    return done


async def _succeed(db: PostgresSession, successes: Mapping[str, Succeeded], good: list[_Good]) -> set[str]:
    """Write all successes whose run is the current one; return their task ids, add those with an upstream."""
    runs = [outcome.fence.run for outcome in successes.values()]
    results: list[tuple[Any, ...]] = [
        (task_id, storable(outcome.codec_tag), outcome.result)
        for task_id, outcome in successes.items()
        if (outcome.result, outcome.codec_tag) != _NULL
    ]
    columns = [list(column) for column in zip(*results, strict=True)] or [[], [], []]
    ended = await db.rows(_SQL["succeed"], db.at, list(successes), runs, *columns)
    good += [
        _Good(upstream, seconds, probe, successes[str(task_id)].calls)
        for task_id, upstream, seconds, probe in ended
        if upstream
    ]
    return {str(task_id) for task_id, *_ in ended}


async def _tell_upstreams(db: PostgresSession, runs: Sequence[_Good]) -> None:
    """Let what went well open gates and end slow starts."""
    good = [Good(run.upstream, run.seconds, run.probe) for run in runs if goes_well(run, run.calls)]
    for upstream, told in by_upstream(good):
        await gates.went_well(db, upstream, told)
    silent = [run for run in runs if is_silent_probe(run, run.calls) and not goes_well(run, run.calls)]
    for run in sorted(silent, key=lambda run: run.upstream):
        await gates.tried(db, run.upstream, run.seconds, is_good=False)


async def _refused(db: PostgresSession, batch: Batch) -> dict[str, Answer]:
    """Answer for those of these runs that are over, each by how it was recorded."""
    runs = [outcome.fence.run for outcome in batch.values()]
    answers: dict[str, Answer] = {}
    for row in await db.rows(_SQL["recorded"], list(batch), runs):
        found, _, is_current, was_success, *kept = row
        task_id = str(found)
        outcome = batch[task_id]
        if not is_current:
            answers[task_id] = Answer.ALREADY if _is_resent(outcome, was_success, kept) else Answer.FENCED
    return answers


def _is_resent(outcome: Outcome, was_success: bool, kept: Sequence[Any]) -> bool:
    """Whether this run's end was recorded in these very words."""
    return was_success if isinstance(outcome, Succeeded) else is_told_again(outcome, tuple(kept))
