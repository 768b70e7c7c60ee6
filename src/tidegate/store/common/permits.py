"""Slots and permits for calls that no claim has charged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.domain.usage import NOTHING_EXPECTED, ExpectedTokens, TokenUse
from tidegate.limits.call_slots import take_call_slot
from tidegate.limits.settings import GateKind
from tidegate.limits.tokens import settle_tokens
from tidegate.limits.values import CallSlot, PermitRecord
from tidegate.store.common import gates
from tidegate.store.common.session import Session


async def acquire_slot(
    db: Session,
    upstream: str,
    *,
    max_wait_seconds: float,
    permit_record: PermitRecord | None = None,
    on_last_attempt: bool = False,
    expected: ExpectedTokens = NOTHING_EXPECTED,
    settled: Sequence[TokenUse] = (),
) -> CallSlot:
    """Charge one call that no claim charged, and store its permit. A refused call is not charged."""
    found = await gates.locked_row(db, GateKind.UPSTREAM, upstream)
    if found is None:
        return CallSlot(True, 0.0)
    now = await db.now()
    if found.limits.max_in_flight is None:
        permit_record = None
    in_flight = 0 if permit_record is None else (await gates.in_flight(db, now, [found.name]))[found.name]
    slot, after = take_call_slot(
        settle_tokens(found, settled, now) if settled else found,
        max_wait_seconds=max_wait_seconds,
        now=now,
        in_flight=in_flight,
        on_last_attempt=on_last_attempt,
        expected=expected,
    )
    # With a permit the row is written even if it is the same, because claims compare its version.
    if after != found or (slot.is_granted and permit_record is not None):
        await gates.save(db, now, [after])
    if not slot.is_granted or permit_record is None:
        return slot
    expires_at = now + (slot.wait_seconds or 0.0) + permit_record.seconds
    fence = permit_record.fence
    task, run = (None, None) if fence is None else (db.id(fence.task_id), fence.run)
    await db.run(db.sql("permits")["add"], permit_record.permit_id, found.name, expires_at, task, run)
    return replace(slot, has_permit=True)


async def release(db: Session, permit_ids: Sequence[str]) -> None:
    """Delete these permits."""
    await db.run_each(db.sql("permits")["release"], [(permit_id,) for permit_id in permit_ids])


async def extend(db: Session, permit_ids: Sequence[str], *, seconds: float) -> None:
    """Extend these permits to at least `seconds` from now."""
    await db.run_each(db.sql("permits")["extend"], [(permit_id,) for permit_id in permit_ids], db.at, seconds)
