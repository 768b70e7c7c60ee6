"""Facts about a server and the connection to it, for `tidegate doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.store.postgres.address import Address
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load

SUPERVISOR_CONNECTIONS = 3
"""Most connections of a supervisor, independent of the URL: it only sends heartbeats and a few statements."""

TOO_FEW_FIX = "raise max_connections, or put connections=2 into the database URL"

_FACTS = load("facts")["facts"]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts about a server, as this role sees it through this URL."""

    version: str
    connections_for_all: int
    """`max_connections` without those reserved for superusers."""
    synchronous_commit: str
    autovacuum: bool
    role: str
    may_make_tables: bool
    is_standby: bool
    oldest_snapshot_seconds: float | None
    """Age of the oldest transaction that keeps dead rows from being removed; None if there is none."""
    old_prepared_transactions: int
    """Number of transactions prepared more than 5 minutes ago and neither committed nor rolled back."""
    idle_slots: int
    """Number of unused replication slots; each keeps old rows or write-ahead log."""


async def server_facts(db: PostgresSession) -> ServerFacts:
    """Return facts about the server."""
    return ServerFacts(*await db.row(_FACTS, db.schema))


def connections_needed(address: Address, *, processes: int, supervisors: int) -> int:
    """Return how many connections these pool processes and their supervisors may open in all.

    A pool process may open one more to listen for hints.
    """
    of_supervisor = min(address.connections, SUPERVISOR_CONNECTIONS)
    return processes * (address.connections + 1) + supervisors * of_supervisor


def describe_connections(address: Address, facts: ServerFacts, *, processes: int, supervisors: int) -> str:
    """Return a sentence that compares these connections with the server's maximum."""
    needed = connections_needed(address, processes=processes, supervisors=supervisors)
    return (
        f"{processes} worker processes and {supervisors} supervisors may open up to {needed} connections; "
        f"the server has {facts.connections_for_all} for all its clients"
    )
