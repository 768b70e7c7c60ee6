"""Calls that no claim has charged: their slots, and what they add to what is in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.domain.permit import Hold
from tidegate.domain.upstream import GateKind, Slot
from tidegate.policy.admission import slot_for_call
from tidegate.store.postgres import gates
from tidegate.store.postgres.clock import moment
from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load

_SQL = load("permits")


async def take_slot(
    db: Session, upstream: str, patience_seconds: float, hold: Hold | None, on_last_attempt: bool
) -> Slot:
    """Charge one call that no claim charged, and hold its permit; nothing where it is not granted."""
    found = await gates.locked_row(db, GateKind.UPSTREAM, upstream)
    if found is None:
        return Slot(True, 0.0)
    now = await moment(db)
    if found.limits.max_in_flight is None:
        hold = None
    beside = 0 if hold is None else (await gates.in_flight(db, now, [found.name]))[found.name]
    slot, after = slot_for_call(
        found,
        patience_seconds=patience_seconds,
        now=now,
        in_flight=beside,
        on_last_attempt=on_last_attempt,
    )
    if after != found:
        await gates.save(db, now, [after])
    if not slot.is_granted or hold is None:
        return slot
    await db.run(_SQL["hold"], hold.permit_id, found.name, now + (slot.wait_seconds or 0.0) + hold.seconds)
    return replace(slot, is_held=True)


async def give_back(db: Session, permit_ids: Sequence[str]) -> None:
    """Forget these permits."""
    await db.run(_SQL["give_back"], permit_ids)


async def extend(db: Session, permit_ids: Sequence[str], seconds: float) -> None:
    """Keep these permits for so long from now."""
    await db.run(_SQL["extend"], permit_ids, db.at, seconds)
