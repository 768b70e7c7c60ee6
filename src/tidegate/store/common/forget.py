"""Remove what other tables say of forgotten tasks and tenants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidegate.store.common.session import Session
from tidegate.store.common.text import storable

TRACES = ("groups", "marks", "gates", "keys", "ticks", "permits", "batches", "cached", "letters")
"""Statements that take stored ids. The first three read rows of the tasks."""
_TEXT_TRACES = ("reasons", "notices")
"""Statements that take ids as texts."""
_TENANT_TRACES = (
    "tenant_keys", "tenant_counters", "tenant_tally", "tenant_tokens", "tenant_letters", "tenant_audit",
    "tenant_alerts", "tenant_marks", "tenant_events", "tenant_cached", "tenant_map_counts", "tenant_maps",
)  # fmt: skip


async def find_forgettable(db: Session, task_ids: Sequence[str]) -> list[Any]:
    """Return those of these tasks that are final or gone, in stored form."""
    stored = sorted(found for task_id in task_ids if (found := db.id(task_id)) is not None)
    return list(await db.column(db.sql("forget")["final"], db.array(stored))) if stored else []


async def remove_traces(db: Session, stored: Sequence[Any]) -> int:
    """Remove what other tables say of these tasks, before the tasks are deleted; return how many rows."""
    sql, ids = db.sql("forget"), db.array(stored)
    changed = sum([await db.run(sql[name], ids) for name in TRACES])
    texts = msgspec.json.encode([db.text(task) for task in stored]).decode()
    return changed + sum([await db.run(sql[name], texts) for name in _TEXT_TRACES])


async def forget_tenant(db: Session, tenant: str) -> int:
    """Remove all data about a tenant besides its tasks; return how many rows were changed."""
    sql, name = db.sql("forget"), storable(tenant)
    in_json = msgspec.json.encode(name).decode()
    changed = sum([await db.run(sql[each], name) for each in _TENANT_TRACES])
    changed += await db.run(sql["tenant_operations"], name, in_json)
    changed += await db.run(sql["tenant_notices"], in_json)
    return changed + await db.run(sql["tenant_schedules"], f'"tenant":{in_json}')
