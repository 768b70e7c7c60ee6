"""Send the letters of a redrive, follow them, and take back those that have not started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from tidegate.limits.pauses import Pauses
from tidegate.limits.promotion import Promotion
from tidegate.limits.settings import GateKind
from tidegate.store.common import control, doubts, gates
from tidegate.store.common.operations import (
    add_counts,
    add_operation,
    get_operation,
    take_revision,
    write_state,
)
from tidegate.store.common.session import Session
from tidegate.store.operation_rows import (
    FeedFacts,
    FirstTry,
    LetterChannel,
    LetterState,
    NewOperation,
    OperationRow,
    OperationState,
    Payloads,
    RedriveTerms,
    Sending,
)
from tidegate.store.rows import ActionStatus

LATEST_TRIES = 100
"""How many of the latest first attempts are read to judge a redrive after its canary."""
READY_LIMIT = 1_000
"""Ready tasks of a queue are counted up to this."""
DEAD_COLUMNS = 12
"""How many of the values that `send_letters` keeps are columns of `dead`. The rest are columns of `task`."""
RANK_DELAY_SECONDS = 5.0
"""Letters of a bulk redrive get the rank of tasks that become ready this much later, so that a burst of new
tasks runs first."""

Redrive = Callable[[Sequence[str], Payloads | None, RedriveTerms], Awaitable[Mapping[str, ActionStatus]]]
"""Moves dead letters to the main queue in the current transaction. Each back end has its own."""

_NO_LONGER_DEAD = "no longer dead, or died again since it was chosen"
_REFUSED = "another task holds its unique name"


async def read_feed(db: Session, operation: OperationRow) -> FeedFacts:
    """Return the facts that decide how many letters may be sent now."""
    sql, in_canary = db.sql("read_feed"), operation.state is OperationState.CANARY
    channels = tuple(
        LetterChannel(*row) for row in await db.rows(sql["channels"], operation.id, int(in_canary))
    )
    untried: dict[str, int] = {}
    unclaimed: dict[str, int] = {}
    for queue, sent, ready in await db.rows(sql["untried"], operation.id):
        untried[queue], unclaimed[queue] = sent, ready
    queues = sorted({channel.queue for channel in channels})
    ready = await db.run_each(sql["ready"], [(queue,) for queue in queues], READY_LIMIT)
    if in_canary:
        tries = await db.rows(sql["canary_tries"], operation.id)
    else:
        tries = await db.rows(sql["latest_tries"], operation.id, LATEST_TRIES)
    return FeedFacts(
        channels=channels,
        first_tries=tuple(
            FirstTry(function, tenant, result == "failed") for function, tenant, result in tries
        ),
        canary_pending=await db.value(sql["canary_pending"], operation.id) if in_canary else 0,
        untried=untried,
        ready={queue: max(0, tasks - unclaimed.get(queue, 0)) for queue, tasks in ready},
        gates=tuple(await gates.rows(db)),
        pauses=Pauses(await control.list_pauses(db)),
        now=await db.now(),
    )


async def send_letters(
    db: Session, operation: OperationRow, channels: Sequence[LetterChannel], redrive: Redrive
) -> Sending | None:
    """Send up to `letters` letters of each channel, as far as the retry budget allows.

    Return what was sent; None if the operation has another revision now. No letter goes to an upstream while
    retries of other tasks wait for the budget of that upstream or of the system.
    """
    if not await take_revision(db, operation.id, operation.revision):
        return None
    sql = db.sql("send_letters")
    rows, now = await gates.locked_rows(db), await db.now()
    plan = Promotion(rows, now)
    picked: list[Any] = []
    held_by = ""
    for channel in channels:
        if await db.value(sql["live_retries"], channel.upstream):
            held_by = held_by or "retries"
            continue
        in_canary = int(operation.state is OperationState.CANARY)
        found = await db.column(
            sql["pick"],
            operation.id,
            channel.queue,
            channel.upstream,
            channel.function,
            in_canary,
            channel.letters,
        )
        for task in found:
            if (held := plan.charge_or_hold_redrive(channel.upstream)) is not None:
                held_by = held_by or held.by
                break
            picked.append(task)
    sending = await _send(db, operation, picked, redrive)
    if sending.sent:
        await db.run(sql["begin_canary"], operation.id, now)
    for row in plan.changed():
        if row.kind is GateKind.SYSTEM:
            await gates.ensure_row(db, now, row)  # no application may have declared it
    await gates.save(db, now, plan.changed())
    return Sending(sending.sent, sending.skipped, held_by)


async def redrive_now(
    db: Session, operation: NewOperation, task_ids: Sequence[str], args: Payloads | None, redrive: Redrive
) -> dict[str, ActionStatus]:
    """Store an operation for a short list of ids and send all of them now; return a status for each id."""
    if await add_operation(db, operation, task_ids):
        row = await get_operation(db, operation.id)
        assert row is not None
        letters = await db.rows(db.sql("send_letters")["statuses"], operation.id)
        chosen = [task for task, state in letters if state == LetterState.CHOSEN]
        await _send(db, row, chosen, redrive, args=args, rank_delay=0.0)
        await write_state(db, operation.id, OperationState.DONE, "")
    sent = {
        db.text(task)
        for task, state in await db.rows(db.sql("send_letters")["statuses"], operation.id)
        if state not in (LetterState.CHOSEN, LetterState.SKIPPED)
    }
    known = {id_ for id_ in task_ids if (stored := db.id(id_)) is not None and db.text(stored) in sent}
    return {task_id: ActionStatus.DONE if task_id in known else ActionStatus.REFUSED for task_id in task_ids}


async def record_outcomes(db: Session, operation_id: str, limit: int = 500) -> int:
    """Record what became of sent letters; return how many records changed. Safe to repeat."""
    sql = db.sql("record_outcomes")
    rows = [_outcome(*row) for row in await db.rows(sql["changed"], operation_id, limit)]
    changed = await db.run_each(sql["record"], rows, operation_id, await db.now())
    states = [state for _, state in changed]
    await add_counts(
        db, operation_id, **{name: states.count(name) for name in ("succeeded", "died", "cancelled")}
    )
    return len(changed)


async def has_outcomes(db: Session, operation_id: str) -> bool:
    """Return whether `record_outcomes` would record anything."""
    return bool(await db.rows(db.sql("record_outcomes")["changed"], operation_id, 1))


def _outcome(
    task: Any,
    first_try: str,
    archived: str | None,
    archived_run: int | None,
    dead_run: int | None,
    reason: str | None,
    known: Any,
    failed: bool | int,
) -> tuple[Any, str, str, str]:
    """Return a letter's id, its state, how its first attempt ended, and the reason if it died again."""
    if archived == "succeeded":
        return task, "succeeded", "failed" if failed else "succeeded", ""
    if dead_run is not None:
        return task, "died", "failed", reason or ""
    if archived is not None or known is None:
        return task, "cancelled", "failed" if failed else "", ""
    return task, "sent", "failed", ""


async def undo_letters(db: Session, operation: OperationRow, limit: int = 500) -> int | None:
    """Take back letters that no worker has claimed, and drop letters that were not sent; return how many.

    A letter taken back has its earlier failure, counters, queue and arguments. None if the operation has a
    different revision now. 0 if no letter is left to take back, and the operation is undone.
    """
    if not await take_revision(db, operation.id, operation.revision):
        return None
    sql = db.sql("undo_letters")
    dropped = await db.rows(sql["drop_chosen"], operation.id, limit)
    picked = {row[0]: row for row in await db.rows(sql["pick"], operation.id, limit)}
    left = await db.run_each(sql["leave"], [(task, row[1]) for task, row in picked.items()])
    tasks = [task for (task,) in left]
    before = {task: msgspec.json.decode(picked[task][2]) for task in tasks}
    await db.run_each(sql["dead"], [(task, *before[task][:DEAD_COLUMNS]) for task in tasks])
    await db.run_each(sql["task"], [(task, *before[task][DEAD_COLUMNS:]) for task in tasks])
    changed = [(task, *picked[task][3:]) for task in tasks if picked[task][3] is not None]
    await db.run_each(sql["args"], changed)
    await doubts.reopen_doubts(db, sorted(tasks), _doubt_note(operation.id))
    await _run_for(db, sql["free_unique"], tasks)
    await _run_for(db, sql["undone"], tasks, operation.id)
    why = f"operation {operation.id}"
    await db.run_each(sql["note"], [(task, why) for task in tasks], await db.now())
    await add_counts(db, operation.id, skipped=len(dropped), undone=len(tasks))
    if not dropped and not picked:
        await write_state(db, operation.id, OperationState.UNDONE, operation.note)
    return len(dropped) + len(picked)


async def _send(
    db: Session,
    operation: OperationRow,
    tasks: Sequence[Any],
    redrive: Redrive,
    *,
    args: Payloads | None = None,
    rank_delay: float = RANK_DELAY_SECONDS,
) -> Sending:
    """Redrive these chosen letters, given by their stored ids, and record their earlier values."""
    if not tasks:
        return Sending()
    sql = db.sql("send_letters")
    letters = await db.rows(sql["letters"], operation.id, db.array(tasks))
    before = [(row[0], msgspec.json.encode(tuple(row)[1:]).decode()) for row in letters]
    await db.run_each(sql["sent"], before, operation.id, await db.now())
    going = {db.text(task): task for task, _ in before}
    if args:
        await _run_for(db, sql["keep_args"], list(going.values()), operation.id)
    settings = operation.settings
    note = f"by {operation.started_by}, operation {operation.id}"
    terms = RedriveTerms(note, settings.to_queue, settings.keeps_attempts, rank_delay)
    statuses = await redrive(list(going), args, terms) if going else {}
    skipped = {task: _REFUSED for text, task in going.items() if statuses[text] is not ActionStatus.DONE}
    sent = len(going) - len(skipped)
    if settings.repeats_doubts:
        redriven = sorted(set(going.values()) - set(skipped))
        await doubts.repeat_doubts(db, redriven, operation.started_by, _doubt_note(operation.id))
    skipped |= dict.fromkeys(set(tasks) - set(going.values()), _NO_LONGER_DEAD)
    await db.run_each(sql["skip"], list(skipped.items()), operation.id)
    await add_counts(db, operation.id, sent=sent, skipped=len(skipped))
    return Sending(sent, len(skipped))


async def _run_for(db: Session, statement: str, tasks: Sequence[Any], *values: Any) -> None:
    await db.run_each(statement, [(task,) for task in tasks], *values)


def _doubt_note(operation_id: str) -> str:
    """Return the note of doubts that an operation repeats."""
    return f"operation {operation_id}"
