"""Operations on many dead letters: preview, start, abort, undo.

Every redrive and every purge is an operation.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from tidegate.deadletter.policy.canary import canary_size
from tidegate.domain.ids import IdMaker, id_or_none, id_range
from tidegate.domain.moments import to_datetime
from tidegate.domain.readers import Seconds, flag_option, name_option, number_option, positive_option
from tidegate.domain.text import counted
from tidegate.errors import NotAcceptedError, OperationNotFoundError, OptionError
from tidegate.store.live_workers import declared_functions
from tidegate.store.operation_rows import (
    ENDED,
    NewOperation,
    OperationKind,
    OperationRow,
    OperationState,
    Payloads,
    RedriveSettings,
)
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, TaskFilter

IMMEDIATE_IDS = 100
"""A list of at most this many ids is redriven immediately, in one transaction."""
MOST_IDS = 10_000
CHUNK_SIZE = 500
"""How many letters a purge deletes in one transaction."""
PLAIN_SETTINGS = RedriveSettings()
"""The default: each letter goes to its own queue, counters start from zero, letters in doubt are left out."""
_TRIES = 20

_make_id = IdMaker(lambda: time.time_ns() // 1_000_000, random.SystemRandom().getrandbits)


@dataclass(frozen=True, slots=True)
class RedrivePreview:
    """What a redrive would do."""

    letters: int
    """How many dead letters would be sent."""
    in_doubt: int
    """How many matching letters would be left out, because their calls may have been processed."""
    canary: int
    """How many letters would be sent first, as a canary; 0 for a list that is sent immediately."""


def redrive_settings(
    *,
    to_queue: str | None = None,
    keep_attempts: bool = False,
    repeat_doubts: bool = False,
    stop_above: float = PLAIN_SETTINGS.stop_above,
    canary_within: Seconds = PLAIN_SETTINGS.canary_seconds,
) -> RedriveSettings:
    """Return checked settings.

    Raises:
        OptionError: A value is invalid.
    """
    return RedriveSettings(
        to_queue=None if to_queue is None else name_option("to_queue", to_queue),
        keeps_attempts=flag_option("keep_attempts", keep_attempts),
        repeats_doubts=flag_option("repeat_doubts", repeat_doubts),
        stop_above=number_option("stop_above", stop_above, least=0.0, most=1.0),
        canary_seconds=positive_option("canary_within", canary_within),
    )


async def preview_redrive(
    store: Store, which: TaskFilter, settings: RedriveSettings = PLAIN_SETTINGS
) -> RedrivePreview:
    """Count the letters that a redrive would send, and change nothing."""
    matching = await store.count_dead_letters(which)
    doubts = 0
    if not settings.repeats_doubts:
        doubts = await store.count_dead_letters(which, in_doubt=True)
    return RedrivePreview(matching - doubts, doubts, canary_size(matching - doubts))


async def start_redrive(
    store: Store,
    which: TaskFilter,
    *,
    by: str,
    own: Collection[str] = (),
    settings: RedriveSettings = PLAIN_SETTINGS,
    tenant: str | None = None,
    expect: int | None = None,
) -> OperationRow:
    """Start a redrive of every letter that matches and is dead now. Maintenance then advances it.

    Args:
        store: Holds the letters.
        which: The filter of the letters.
        by: Who starts the redrive.
        own: The functions that the caller's application declares.
        settings: How the letters are sent.
        tenant: The tenant that owns the operation; None: the operator.
        expect: Refuse if more letters match than this.

    Raises:
        NotAcceptedError: More letters match than expected, only letters in doubt match, or no application
            declares the function of the filter. Nothing was started.
    """
    if which.function is not None:
        require_declared({which.function}, await declared_functions(store, own))
    now = await store.now()
    which = replace(which, before=now if which.before is None else min(which.before, now))
    preview = await preview_redrive(store, which, settings)
    if expect is not None and preview.letters > expect:
        raise _too_many_error(preview.letters, expect, "redriven")
    if preview.in_doubt and not preview.letters:
        raise _in_doubt_error(preview.in_doubt)
    settings = replace(settings, functions=tuple(sorted(own)))
    operation = _new(
        OperationKind.REDRIVE, OperationState.CHOOSING, by, preview.letters, which, tenant, settings
    )
    await store.add_operation(operation)
    return await get_operation(store, operation.id)


async def redrive_ids(
    store: Store,
    task_ids: Sequence[str],
    own: Collection[str],
    *,
    by: str,
    settings: RedriveSettings = PLAIN_SETTINGS,
    args: Payloads | None = None,
    tenant: str | None = None,
) -> tuple[str, dict[str, ActionStatus]]:
    """Redrive these letters as one operation; return its id and, for letters sent immediately, their status.

    Up to `IMMEDIATE_IDS` letters are sent in one transaction. More letters go through a canary first, as with
    a filter.

    Args:
        store: Holds the letters.
        task_ids: Full ids.
        own: The functions that the caller's application declares.
        by: Who does this.
        settings: How the letters are sent.
        args: New payloads for some of them.
        tenant: The tenant that owns the operation; None: the operator.

    Raises:
        NotAcceptedError: No application declares the function of one letter, or one letter is in doubt.
            Nothing was done.
        OptionError: There are too many ids.
    """
    if len(task_ids) > MOST_IDS:
        raise OptionError(
            f"{len(task_ids):,} ids are too many", fix="use a filter", option="task_ids", value=len(task_ids)
        )
    rows = await store.read_tasks(task_ids)
    require_declared({row.function for row in rows.values()}, await declared_functions(store, own))
    if not settings.repeats_doubts and (doubts := await store.find_letters_in_doubt(list(rows))):
        raise _in_doubt_error(len(doubts))
    operation = _new(OperationKind.REDRIVE, OperationState.CHOOSING, by, len(rows), None, tenant, settings)
    if len(task_ids) > IMMEDIATE_IDS:
        await store.add_operation(operation, task_ids)
        return operation.id, {}
    statuses = await store.redrive_now(operation, list(rows), args=args) if rows else {}
    return operation.id if rows else "", {
        task_id: statuses.get(task_id, ActionStatus.UNKNOWN) for task_id in task_ids
    }


async def purge(
    store: Store,
    task_ids: Sequence[str] | None,
    which: TaskFilter,
    *,
    by: str,
    tenant: str | None = None,
    on_progress: Callable[[int], None] = lambda seen: None,
) -> tuple[OperationRow, dict[str, ActionStatus]]:
    """Delete dead letters as one operation; return the operation, and a status per id if ids were given.

    Without ids, delete every letter that matches and was dead when this call began. The purge ends early if
    somebody aborts the operation.
    """
    if task_ids is None:
        operation = await start_purge(store, which, by=by, tenant=tenant)
        return await run_purge(store, operation, on_progress=on_progress), {}
    made = _new(OperationKind.PURGE, OperationState.PURGING, by, len(task_ids), None, tenant)
    await store.add_operation(made)
    statuses: dict[str, ActionStatus] = {}
    for start in range(0, len(task_ids), CHUNK_SIZE):
        answers = await store.purge_letters(made.id, task_ids[start : start + CHUNK_SIZE])
        if answers is None:
            return await get_operation(store, made.id), statuses
        statuses |= answers
        on_progress(len(statuses))
    return await _end(store, made.id, OperationState.DONE, ""), statuses


async def start_purge(
    store: Store, which: TaskFilter, *, by: str, tenant: str | None = None, expect: int | None = None
) -> OperationRow:
    """Record a purge of every letter that matches and is dead now. `run_purge` deletes them.

    Raises:
        NotAcceptedError: More letters match than expected. Nothing was started.
    """
    now = await store.now()
    which = replace(which, before=now if which.before is None else min(which.before, now))
    preview = await store.count_dead_letters(which)
    if expect is not None and preview > expect:
        raise _too_many_error(preview, expect, "purged")
    operation = _new(OperationKind.PURGE, OperationState.PURGING, by, preview, which, tenant)
    await store.add_operation(operation)
    return await get_operation(store, operation.id)


async def run_purge(
    store: Store, operation: OperationRow, *, on_progress: Callable[[int], None] = lambda seen: None
) -> OperationRow:
    """Delete the letters of a purge by filter; return it at its end.

    If the process dies meanwhile, maintenance ends the operation a minute later.
    """
    assert operation.filter is not None
    seen, last_kept = 0, None
    while letters := await store.list_dead_letters(operation.filter, after=last_kept, limit=CHUNK_SIZE):
        chunk = [letter.task_id for letter in letters]
        answers = await store.purge_letters(operation.id, chunk)
        if answers is None:
            return await get_operation(store, operation.id)
        # The next page starts after the last letter that was kept: purged letters are no longer listed.
        last_kept = next((one for one in reversed(chunk) if answers[one] is not ActionStatus.DONE), last_kept)
        seen += len(chunk)
        on_progress(seen)
    return await _end(store, operation.id, OperationState.DONE, "")


async def abort(store: Store, operation_id: str, *, by: str) -> OperationRow:
    """Stop and return an operation: it sends no more letters. Letters that were sent go on.

    Raises:
        NotAcceptedError: The operation has ended.
        OperationNotFoundError: No operation has this id.
    """
    for _ in range(_TRIES):
        row = await get_operation(store, operation_id)
        if row.state in ENDED or row.state is OperationState.UNDOING:
            raise NotAcceptedError(f"operation {row.id} is {row.state}", fix="see it: tidegate ops show")
        if await store.set_operation_state(row.id, row.revision, OperationState.ABORTED, f"aborted by {by}"):
            return await get_operation(store, row.id)
    raise _too_busy(operation_id)


async def undo(store: Store, operation_id: str, *, by: str) -> OperationRow:
    """Turn the letters of a redrive that have not started back into dead letters. Return the operation.

    Raises:
        NotAcceptedError: The operation is a purge, or all of its letters have started.
        OperationNotFoundError: No operation has this id.
    """
    for _ in range(_TRIES):
        row = await get_operation(store, operation_id)
        if row.state is OperationState.UNDOING:
            break
        if row.kind is not OperationKind.REDRIVE:
            raise NotAcceptedError("a purge cannot be undone", fix="nothing can restore the letters")
        if row.state is OperationState.UNDONE or (row.ended_at is not None and not row.unfinished):
            raise NotAcceptedError(
                f"nothing is left to undo: operation {row.id} is {row.state} and its letters have ended",
                fix=f"see them: tidegate ops show {row.id}",
            )
        if await store.set_operation_state(row.id, row.revision, OperationState.UNDOING, f"undone by {by}"):
            break
    else:
        raise _too_busy(operation_id)
    # Maintenance may take the same steps; each step is done once.
    while (row := await get_operation(store, operation_id)).state is OperationState.UNDOING:
        await store.undo_letters(row)
    return row


async def get_operation(store: Store, text: str, *, tenant: str | None = None) -> OperationRow:
    """Return the operation with this id, or with an id that begins like this.

    Raises:
        OperationNotFoundError: There is no such operation, or it belongs to another tenant.
        OptionError: Several ids begin like this.
    """
    found = id_or_none(text)
    if found is None and (bounds := id_range(text)) is not None:
        ids = await store.find_operation_ids(*bounds)
        if len(ids) > 1:
            raise OptionError(
                f"the short id {text} matches several operations",
                fix="give more of its digits",
                option="operation_id",
                value=text,
            )
        found = ids[0] if ids else None
    row = None if found is None else await store.get_operation(found)
    if row is None or (tenant is not None and row.tenant != tenant):
        raise OperationNotFoundError(
            f"no operation has the id {text}", fix="see them: tidegate ops ls", operation_id=text
        )
    return row


def describe_filter(which: TaskFilter | None) -> str:
    """Return a filter as text, such as `queue=llm reason=quota`."""
    if which is None:
        return "ids"
    fields = ("queue", "function", "tenant", "reason", "error_class", "fingerprint")
    named = {name: getattr(which, name) for name in fields}
    named |= {f"label {name}": value for name, value in which.labels.items()}
    moments = {"since": which.since, "before": which.before}
    named |= {name: f"{to_datetime(at):%Y-%m-%dT%H:%M:%SZ}" for name, at in moments.items() if at is not None}
    return " ".join(f"{name}={value}" for name, value in named.items() if value is not None)


def require_declared(functions: Collection[str], declared: Collection[str]) -> None:
    """Raise `NotAcceptedError` unless all these functions are declared.

    Raises:
        NotAcceptedError: Some functions are not declared; the error names them. No worker would ever run
            their tasks.
    """
    unknown = sorted(set(functions) - set(declared))
    if unknown:
        raise NotAcceptedError(
            f"no application declares {', '.join(unknown)}; nothing was redriven",
            fix="start a worker that has it, or name the application that does",
            functions=tuple(unknown),
        )


def _new(
    kind: OperationKind,
    state: OperationState,
    by: str,
    preview: int,
    which: TaskFilter | None,
    tenant: str | None,
    settings: RedriveSettings = PLAIN_SETTINGS,
) -> NewOperation:
    return NewOperation(_make_id(), kind, state, by, preview, which, tenant, settings)


async def _end(store: Store, operation_id: str, state: OperationState, note: str) -> OperationRow:
    for _ in range(_TRIES):
        row = await get_operation(store, operation_id)
        if row.state in ENDED or await store.set_operation_state(row.id, row.revision, state, note):
            return await get_operation(store, operation_id)
    raise _too_busy(operation_id)


def _in_doubt_error(letters: int) -> NotAcceptedError:
    return NotAcceptedError(
        f"{counted(letters, 'dead letter')} made calls that may have been processed; nothing was redriven",
        fix="decide about each call: tidegate doubts ls; or repeat them all: --repeat-doubts",
    )


def _too_many_error(matching: int, expect: int, done: str) -> NotAcceptedError:
    return NotAcceptedError(
        f"the filter matches {counted(matching, 'dead letter')}, more than the {expect} expected;"
        f" nothing was {done}",
        fix="look at them again: tidegate dead ls",
    )


def _too_busy(operation_id: str) -> NotAcceptedError:
    return NotAcceptedError(f"operation {operation_id} changed at every try", fix="try again")
