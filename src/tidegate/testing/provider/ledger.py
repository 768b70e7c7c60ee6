"""The ledger: every model call of the provider, its outcome, and whether it was billed.

SQLite in both cases, so "in memory" is not a second implementation. Rows outlive a killed process, but
are not synced to disk: a simulation need not survive a power cut, and a sync would slow the server.
"""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass, replace
from typing import Any

import apsw

from tidegate.errors import OptionError
from tidegate.testing.provider.buckets import Dimension

THROTTLED: dict[Dimension, str] = {"requests": "throttled requests", "tokens": "throttled tokens"}
"""The outcome of a call that was refused for its rate."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS call (
    id              TEXT PRIMARY KEY,
    received_at     REAL NOT NULL,
    method          TEXT NOT NULL,
    path            TEXT NOT NULL,
    model           TEXT NOT NULL,
    content_hash    TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    status          INTEGER NOT NULL,
    billed          INTEGER NOT NULL CHECK (billed IN (0, 1)),
    tokens_in       INTEGER NOT NULL,
    tokens_out      INTEGER NOT NULL,
    outcome         TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS call_by_content ON call (content_hash, billed);
CREATE INDEX IF NOT EXISTS call_by_status ON call (status, outcome);
"""

_COLUMNS = (
    "id, received_at, method, path, model, content_hash, idempotency_key, "
    "status, billed, tokens_in, tokens_out, outcome"
)

_INSERT = f"INSERT INTO call ({_COLUMNS}) VALUES ({', '.join('?' * 12)})"  # noqa: S608 - constants only

_PAID_TWICE = """
SELECT content_hash, count(*)
FROM call
WHERE billed = 1
GROUP BY content_hash
HAVING count(*) > 1
ORDER BY count(*) DESC, content_hash
"""

_CONTENTS = """
SELECT count(*), coalesce(sum(max(times - 1, 0)), 0)
FROM (SELECT sum(billed) AS times FROM call WHERE content_hash <> '' GROUP BY content_hash)
"""


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """One model call, as the provider saw it."""

    id: str
    """The `x-request-id` of its response."""
    received_at: float
    """When the last byte of the request arrived, in seconds since the epoch, UTC."""
    method: str
    path: str
    model: str
    content_hash: str
    """SHA-256 of the model and the messages or input; empty if they could not be read."""
    idempotency_key: str
    """The `Idempotency-Key` header of the call; empty if it had none."""
    status: int
    """HTTP status of the response; 0 without a response."""
    billed: bool
    """Whether a completion was generated and is paid for, even if the client did not read it."""
    tokens_in: int
    tokens_out: int
    outcome: str
    """`answered`, `replayed`, `throttled requests`, `outage hang`, or a provider's error code."""


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """The whole ledger in a few numbers."""

    calls: int
    billed: int
    throttled: int
    """Calls refused for their rate, without those larger than the whole bucket."""
    by_status: dict[str, int]
    """Calls by HTTP status; `"0"` for those without a response."""
    paid_twice: int
    """Payments beyond the first for the same content."""
    contents: int
    """Number of different contents."""


class Ledger:
    """The calls of one provider, in the order in which they ended. One process writes.

    Args:
        path: SQLite file, created if missing; empty for memory. Another process may read it at the same time.

    Raises:
        OptionError: The file cannot be opened, or is not a SQLite database.
    """

    def __init__(self, path: str | os.PathLike[str] = "") -> None:
        try:
            self._connection = apsw.Connection(os.fspath(path) or ":memory:")
            self._connection.set_busy_timeout(5_000)
            self._connection.pragma("journal_mode", "WAL")
            self._connection.pragma("synchronous", "OFF")
            self._connection.execute(_SCHEMA)
        except apsw.Error as error:
            raise OptionError(f"the ledger {os.fspath(path)!r} cannot be opened: {error}") from error

    def record(self, call: ProviderCall) -> None:
        """Add one call."""
        self._connection.execute(_INSERT, astuple(call))

    def calls(self) -> list[ProviderCall]:
        """Return every call, oldest record first."""
        rows = self._connection.execute(f"SELECT {_COLUMNS} FROM call ORDER BY rowid")  # noqa: S608
        return [replace(call, billed=bool(call.billed)) for call in (ProviderCall(*row) for row in rows)]

    def count(
        self, *, status: int | None = None, billed: bool | None = None, outcome: str | None = None
    ) -> int:
        """Count the calls that match everything given."""
        wanted = {"status": status, "billed": billed, "outcome": outcome}
        given = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(f"{column} = ?" for column in given) or "TRUE"
        return int(self._value(f"SELECT count(*) FROM call WHERE {where}", *given.values()))  # noqa: S608

    def paid_twice(self) -> list[tuple[str, int]]:
        """Return each content that was billed more than once, and how many times, the most times first."""
        return [(str(content), int(times)) for content, times in self._connection.execute(_PAID_TWICE)]

    def summary(self) -> LedgerSummary:
        """Return the totals."""
        ((contents, paid_again),) = self._connection.execute(_CONTENTS)
        statuses = self._connection.execute("SELECT status, count(*) FROM call GROUP BY status")
        by_status = {str(status): int(calls) for status, calls in statuses}
        return LedgerSummary(
            calls=sum(by_status.values()),
            billed=self.count(billed=True),
            throttled=sum(self.count(outcome=outcome) for outcome in THROTTLED.values()),
            by_status=by_status,
            paid_twice=int(paid_again),
            contents=int(contents),
        )

    def clear(self) -> None:
        """Forget every call."""
        self._connection.execute("DELETE FROM call")

    def close(self) -> None:
        """Close the file. Safe to repeat; nothing else works afterwards."""
        self._connection.close()

    def _value(self, sql: str, *bindings: Any) -> Any:
        return self._connection.execute(sql, bindings).get
