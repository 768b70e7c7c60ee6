"""What `tidegate doctor` says of a PostgreSQL server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tidegate.cli.doctor import CheckLevel, CheckResult
from tidegate.cli.formatting import format_duration
from tidegate.store.postgres.address import Address
from tidegate.store.postgres.facts import TOO_FEW_FIX, ServerFacts, connections_needed, connections_told
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.rows import WorkerRow

_OLDEST_VERSION = 14
_LONG_SNAPSHOT_SECONDS = 300.0


async def check_server(store: PostgresStore, live: Sequence[WorkerRow]) -> list[CheckResult]:
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
    detail = connections_told(address, facts, **counts)
    if connections_needed(address, **counts) <= facts.connections_for_all:
        return CheckResult(CheckLevel.OK, "connections", detail)
    return CheckResult(CheckLevel.WARN, "connections", detail, TOO_FEW_FIX)


def _role(facts: ServerFacts) -> CheckResult:
    if not facts.may_make_tables:
        return CheckResult(
            CheckLevel.OK, "role", f"{facts.role} reads and writes rows, and can change no table"
        )
    return CheckResult(
        CheckLevel.WARN,
        "role",
        f"{facts.role} may change tables",
        "work as the role that `tidegate db roles` makes for workers",
    )


def _pooler(address: Address, *, pooled: bool) -> CheckResult:
    if not pooled:
        return CheckResult(CheckLevel.OK, "pooler", "none: prepared statements are kept")
    if address.hints and address.listen_dsn == address.dsn:
        return CheckResult(
            CheckLevel.WARN,
            "pooler",
            "one is in between; no process hears of others' commits, all poll",
            "put the server itself into the database URL: listen=HOST:PORT",
        )
    return CheckResult(CheckLevel.OK, "pooler", "one is in between; hints come by the direct way")


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
            "synchronous_commit is off: a crash of the server loses accepted tasks",
            f"ALTER ROLE {facts.role} SET synchronous_commit = on",
        )


def _clean_up(facts: ServerFacts) -> Iterator[CheckResult]:
    """Look for what keeps dead rows: claims walk over them."""
    if not facts.autovacuum:
        yield CheckResult(
            CheckLevel.WARN, "autovacuum", "it is off: claims become slower and slower", "turn it on"
        )
    oldest = facts.oldest_snapshot_seconds
    if oldest is not None and oldest > _LONG_SNAPSHOT_SECONDS:
        yield CheckResult(
            CheckLevel.WARN,
            "snapshot",
            f"a transaction has been open for {format_duration(oldest)} and "
            "keeps dead rows from being cleaned up",
            "end it; see backend_xmin in pg_stat_activity",
        )
    if facts.old_prepared_transactions:
        yield CheckResult(
            CheckLevel.WARN,
            "prepared",
            f"{facts.old_prepared_transactions} prepared transactions were never ended",
            "COMMIT PREPARED or ROLLBACK PREPARED; see pg_prepared_xacts",
        )
    if facts.idle_slots:
        yield CheckResult(
            CheckLevel.WARN,
            "slots",
            f"{facts.idle_slots} replication slots are read by nobody and keep the log growing",
            "drop them; see pg_replication_slots",
        )
