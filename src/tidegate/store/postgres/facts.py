"""What a doctor wants to know of a server and of the way to it."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.store.postgres.address import Address
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load

SUPERVISOR_CONNECTIONS = 3
"""At most, whatever the URL says: beats, and the few statements that look after others."""

TOO_FEW_FIX = "raise max_connections, or put connections=2 into the database URL"

_FACTS = load("facts")["facts"]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server as this role sees it through this URL."""

    version: str
    connections_for_all: int
    """`max_connections` without those kept for superusers."""
    synchronous_commit: str
    autovacuum: bool
    role: str
    may_make_tables: bool
    is_standby: bool
    oldest_snapshot_seconds: float | None
    """Of the longest transaction that keeps dead rows from being cleaned up; None: there is none."""
    old_prepared_transactions: int
    """Prepared more than 5 minutes ago and neither committed nor rolled back."""
    idle_slots: int
    """Replication slots that nobody reads from; each keeps old rows or write-ahead log."""


async def server_facts(db: PostgresSession) -> ServerFacts:
    """Return what the server says of itself."""
    return ServerFacts(*await db.row(_FACTS, db.schema))


def connections_needed(address: Address, *, processes: int, supervisors: int) -> int:
    """Return how many connections these pool processes and their supervisors may open in all.

    A pool process may open one more to listen for hints.
    """
    of_supervisor = min(address.connections, SUPERVISOR_CONNECTIONS)
    return processes * (address.connections + 1) + supervisors * of_supervisor


def connections_told(address: Address, facts: ServerFacts, *, processes: int, supervisors: int) -> str:
    """Say it in a sentence, against what the server has."""
    needed = connections_needed(address, processes=processes, supervisors=supervisors)
    return (
        f"{processes} worker processes and {supervisors} supervisors may open up to {needed} connections; "
        f"the server has {facts.connections_for_all} for all its clients"
    )
