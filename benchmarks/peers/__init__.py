"""Other queues on SQLite, drained of the same number of no-op tasks. Never imported by the product."""

from __future__ import annotations

from importlib.util import find_spec

PEERS = ("huey", "litequeue")


def installed() -> tuple[str, ...]:
    """Return the peers that can be measured here."""
    return tuple(name for name in PEERS if find_spec(name) is not None)


def missing() -> tuple[str, ...]:
    """Return those that cannot: they are in the dependency group `bench`."""
    return tuple(name for name in PEERS if find_spec(name) is None)
