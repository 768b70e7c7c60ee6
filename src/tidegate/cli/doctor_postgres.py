"""The doctor's checks of a PostgreSQL server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tidegate.cli.doctor import CheckLevel, CheckResult
from tidegate.cli.formatting import format_duration
from tidegate.store.postgres.address import Address
from tidegate.store.postgres.facts import TOO_FEW_FIX, ServerFacts, connections_needed, describe_connections
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.worker_rows import WorkerRow

_OLDEST_VERSION = 14
_LONG_SNAPSHOT_SECONDS = 300.0


async def check_server(store: PostgresStore, live: Sequence[WorkerRow]) -> list[CheckResult]:
    """Check the server: version, connections, role, pooler, durability and vacuum.

    Args:
        store: An open store on that server.
        live: The live workers.

    Raises:
        TidegateError: The server does not answer.
    """
    facts = await store.server_facts()
    pooled = await store.is_pooled()
    return [
        _version(facts),
        _connections(facts, store.address, live),
        _role(facts),
        _pooler(store.address, pooled=pooled),
        *_durability(facts),
        *_vacuum(facts),
    ]


def _version(facts: ServerFacts) -> CheckResult:
    major = re.match(r"\d+", facts.version)
    if major is not None and int(major[0]) >= _OLDEST_VERSION:
        return CheckResult(CheckLevel.OK, "postgresql", facts.version)
    return CheckResult(
        CheckLevel.FAIL, "postgresql", f"{facts.version} is not supported", f"use {_OLDEST_VERSION} or newer"
    )


def _connections(facts: ServerFacts, address: Address, live: Sequence[WorkerRow]) -> CheckResult:
    counts = {
        "processes": len(live),
        "supervisors": len({(worker.host, worker.name) for worker in live}),
    }
    detail = describe_connections(address, facts, **counts)
    if connections_needed(address, **counts) <= facts.connections_for_all:
        return CheckResult(CheckLevel.OK, "connections", detail)
    return CheckResult(CheckLevel.WARN, "connections", detail, TOO_FEW_FIX)


def _role(facts: ServerFacts) -> CheckResult:
    if not facts.may_make_tables:
        return CheckResult(
            CheckLevel.OK, "role", f"{facts.role} can read and write rows, and cannot alter tables"
        )
    return CheckResult(
        CheckLevel.WARN,
        "role",
        f"{facts.role} can alter tables",
        "log in with the worker role: `tidegate db roles` prints the SQL that creates it",
    )


def _pooler(address: Address, *, pooled: bool) -> CheckResult:
    if not pooled:
        return CheckResult(CheckLevel.OK, "pooler", "none: prepared statements are used")
    if address.hints and address.listen_dsn == address.dsn:
        return CheckResult(
            CheckLevel.WARN,
            "pooler",
            "there is one, so no process is notified of new tasks: all of them poll",
            "add the address of the server itself to the database URL: listen=HOST:PORT",
        )
    return CheckResult(CheckLevel.OK, "pooler", "there is one; notifications use a direct connection")


def _durability(facts: ServerFacts) -> Iterator[CheckResult]:
    if facts.is_standby:
        yield CheckResult(
            CheckLevel.FAIL,
            "standby",
            "this server is a read-only standby",
            "add target_session_attrs=read-write",
        )
    if facts.synchronous_commit == "off":
        yield CheckResult(
            CheckLevel.WARN,
            "durability",
            "synchronous_commit is off: a crash of the server can lose accepted tasks",
            f"ALTER ROLE {facts.role} SET synchronous_commit = on",
        )


def _vacuum(facts: ServerFacts) -> Iterator[CheckResult]:
    """Check for what keeps PostgreSQL from removing dead rows, which make claims slower."""
    if not facts.autovacuum:
        yield CheckResult(
            CheckLevel.WARN, "autovacuum", "autovacuum is off: claims become slower over time", "turn it on"
        )
    oldest = facts.oldest_snapshot_seconds
    if oldest is not None and oldest > _LONG_SNAPSHOT_SECONDS:
        yield CheckResult(
            CheckLevel.WARN,
            "snapshot",
            f"a transaction has been open for {format_duration(oldest)} and "
            "keeps PostgreSQL from removing dead rows",
            "end it; see backend_xmin in pg_stat_activity",
        )
    if facts.old_prepared_transactions:
        yield CheckResult(
            CheckLevel.WARN,
            "prepared",
            f"{facts.old_prepared_transactions} prepared transactions were never committed or rolled back",
            "COMMIT PREPARED or ROLLBACK PREPARED; see pg_prepared_xacts",
        )
    if facts.idle_slots:
        yield CheckResult(
            CheckLevel.WARN,
            "slots",
            f"nothing reads {facts.idle_slots} replication slots, so the write-ahead log grows",
            "drop them; see pg_replication_slots",
        )
