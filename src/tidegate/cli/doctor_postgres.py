"""What `tidegate doctor` says of a PostgreSQL server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tidegate.cli.doctor import Finding, Level
from tidegate.cli.text import duration
from tidegate.store.postgres.address import Address
from tidegate.store.postgres.facts import TOO_FEW_FIX, ServerFacts, connections_needed, connections_told
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.rows import WorkerRow

_OLDEST_VERSION = 14
_LONG_SNAPSHOT_SECONDS = 300.0


async def check_server(store: PostgresStore, live: Sequence[WorkerRow]) -> list[Finding]:
    """Ask the server and the way to it.

    Args:
        store: On that server.
        live: The workers that are alive.

    Raises:
        TidegateError: It does not answer.
    """
    facts = await store.server_facts()
    pooled = await store.is_pooled()
    return [
        _version(facts),
        _connections(facts, store.address, live),
        _role(facts),
        _pooler(store.address, pooled=pooled),
        *_durability(facts),
        *_clean_up(facts),
    ]


def _version(facts: ServerFacts) -> Finding:
    major = re.match(r"\d+", facts.version)
    if major is not None and int(major[0]) >= _OLDEST_VERSION:
        return Finding(Level.OK, "postgresql", facts.version)
    return Finding(
        Level.FAIL, "postgresql", f"{facts.version} is not supported", f"use {_OLDEST_VERSION} or newer"
    )


def _connections(facts: ServerFacts, address: Address, live: Sequence[WorkerRow]) -> Finding:
    counts = {
        "processes": len(live),
        "supervisors": len({(worker.host, worker.name) for worker in live}),
    }
    detail = connections_told(address, facts, **counts)
    if connections_needed(address, **counts) <= facts.connections_for_all:
        return Finding(Level.OK, "connections", detail)
    return Finding(Level.WARN, "connections", detail, TOO_FEW_FIX)


def _role(facts: ServerFacts) -> Finding:
    if not facts.may_make_tables:
        return Finding(Level.OK, "role", f"{facts.role} reads and writes rows, and can change no table")
    return Finding(
        Level.WARN,
        "role",
        f"{facts.role} may change tables",
        "work as the role that `tidegate db roles` makes for workers",
    )


def _pooler(address: Address, *, pooled: bool) -> Finding:
    if not pooled:
        return Finding(Level.OK, "pooler", "none: prepared statements are kept")
    if address.hints and address.listen_dsn == address.dsn:
        return Finding(
            Level.WARN,
            "pooler",
            "one is in between; no process hears of others' commits, all poll",
            "put the server itself into the database URL: listen=HOST:PORT",
        )
    return Finding(Level.OK, "pooler", "one is in between; hints come by the direct way")


def _durability(facts: ServerFacts) -> Iterator[Finding]:
    if facts.is_standby:
        yield Finding(
            Level.FAIL, "standby", "this server is a read-only standby", "add target_session_attrs=read-write"
        )
    if facts.synchronous_commit == "off":
        yield Finding(
            Level.WARN,
            "durability",
            "synchronous_commit is off: a crash of the server loses accepted tasks",
            f"ALTER ROLE {facts.role} SET synchronous_commit = on",
        )


def _clean_up(facts: ServerFacts) -> Iterator[Finding]:
    """Look for what keeps dead rows: claims walk over them."""
    if not facts.autovacuum:
        yield Finding(Level.WARN, "autovacuum", "it is off: claims become slower and slower", "turn it on")
    oldest = facts.oldest_snapshot_seconds
    if oldest is not None and oldest > _LONG_SNAPSHOT_SECONDS:
        yield Finding(
            Level.WARN,
            "snapshot",
            f"a transaction has been open for {duration(oldest)} and keeps dead rows from being cleaned up",
            "end it; see backend_xmin in pg_stat_activity",
        )
    if facts.old_prepared_transactions:
        yield Finding(
            Level.WARN,
            "prepared",
            f"{facts.old_prepared_transactions} prepared transactions were never ended",
            "COMMIT PREPARED or ROLLBACK PREPARED; see pg_prepared_xacts",
        )
    if facts.idle_slots:
        yield Finding(
            Level.WARN,
            "slots",
            f"{facts.idle_slots} replication slots are read by nobody and keep the log growing",
            "drop them; see pg_replication_slots",
        )
