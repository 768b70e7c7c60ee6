"""Upstreams: find one, change its limits, and describe its state."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegate.domain.readers import shown
from tidegate.errors import UnknownUpstreamError
from tidegate.limits.formatting import format_block, format_gate
from tidegate.limits.options import changed_limits, handed_back
from tidegate.limits.settings import Limits
from tidegate.store.protocol import Store
from tidegate.store.upstream_rows import UpstreamRow


async def find_upstream(store: Store, name: str) -> UpstreamRow:
    """Return the upstream of that name.

    Raises:
        UnknownUpstreamError: The store has no upstream of that name.
    """
    rows = await store.list_upstreams()
    for row in rows:
        if row.name == name:
            return row
    raise _unknown(name, rows)


async def require_known(store: Store, name: str, *, is_known: bool) -> None:
    """Raise if the store did not know the upstream of a request.

    Raises:
        UnknownUpstreamError: `is_known` is False.
    """
    if not is_known:
        raise _unknown(name, await store.list_upstreams())


def _unknown(name: str, rows: Collection[UpstreamRow]) -> UnknownUpstreamError:
    known = ", ".join(row.name for row in rows) or "none"
    return UnknownUpstreamError(
        f"no upstream is named {shown(name)}", fix=f"known here: {known}", upstream=name
    )


async def set_limits(
    store: Store,
    name: str,
    changes: Mapping[str, float | None],
    *,
    follow_code: Collection[str] = (),
    declared: Limits | None = None,
) -> None:
    """Change limits of an upstream for all workers, from the next claim on.

    Args:
        store: Where the limits are kept.
        name: The upstream's name.
        changes: New values by the limits' public names; None removes a limit. New values override the code
            until the limit follows the code again.
        follow_code: Limits that follow the code again.
        declared: The limits in the code; None if they are not known here. In that case the values stay until
            a worker starts.

    Raises:
        OptionError: There is no such limit, or a value is invalid.
        UnknownUpstreamError: The store knows no such upstream.
    """
    row = await find_upstream(store, name)
    await store.set_limits(name, handed_back(changed_limits(row.limits, changes), follow_code, declared))


def tasks_before(row: UpstreamRow) -> dict[str, int]:
    """Count the ready tasks of an upstream: those that may start, the paced and the blocked ones."""
    blocked = 0 if row.block is None else row.ready
    return {"ready": row.ready - row.paced - blocked, "paced": row.paced, "blocked": blocked}


def describe_upstream(row: UpstreamRow, now: float) -> str:
    """Return a text: the state of an upstream, or why its tasks are blocked."""
    if row.block is not None:
        return format_block(row.block, row.limits, now)
    words = format_gate(row.gate, row.limits, now)
    return f"{words}; {row.waits_for}" if row.waits_for and row.gate.failures == 0 else words
