"""Calls that no claim has charged: their slots, and what they add to the calls in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.domain.permit import Hold
from tidegate.domain.upstream import GateKind, Slot
from tidegate.policy.admission import slot_for_call
from tidegate.store.common import gates
from tidegate.store.common.session import Session


async def take_slot(
    db: Session, upstream: str, patience_seconds: float, hold: Hold | None, on_last_attempt: bool
) -> Slot:
    """Charge one call that no claim charged, and record its permit. A refused call is not charged."""
    found = await gates.locked_row(db, GateKind.UPSTREAM, upstream)
    if found is None:
        return Slot(True, 0.0)
    now = await db.now()
    if found.limits.max_in_flight is None:
        hold = None
    in_flight = 0 if hold is None else (await gates.in_flight(db, now, [found.name]))[found.name]
    slot, after = slot_for_call(
        found,
        patience_seconds=patience_seconds,
        now=now,
        in_flight=in_flight,
        on_last_attempt=on_last_attempt,
    )
    if after != found:
        await gates.save(db, now, [after])
    if not slot.is_granted or hold is None:
        return slot
    expires_at = now + (slot.wait_seconds or 0.0) + hold.seconds
    await db.run(db.sql("permits")["hold"], hold.permit_id, found.name, expires_at)
    return replace(slot, is_held=True)


async def give_back(db: Session, permit_ids: Sequence[str]) -> None:
    """Forget these permits."""
    await db.run_each(db.sql("permits")["give_back"], [(permit_id,) for permit_id in permit_ids])


async def extend(db: Session, permit_ids: Sequence[str], seconds: float) -> None:
    """Keep these permits for at least so long from now."""
    await db.run_each(db.sql("permits")["extend"], [(permit_id,) for permit_id in permit_ids], db.at, seconds)
