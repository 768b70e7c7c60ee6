"""Convert errors of PostgreSQL, its driver and the network to errors of the store contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

import asyncpg

from tidegate.errors import StoreBusyError, StoreError, StoreUnavailableError


class ErrorKind(Enum):
    """What an error means for the work that failed."""

    AGAIN = auto()
    """The transaction was rolled back for an outside reason; a retry may succeed at once."""
    LOST = auto()
    """The connection is lost. Whether a running commit took place is unknown."""
    REFUSED = auto()
    """The server refused the work and would refuse a retry."""
    CONTENT = auto()
    """A value cannot be stored; the caller must handle that."""
    OTHER = auto()
    """Not an error of the database."""


_AGAIN = ("40001", "40P01", "55P03")
"""Serialization failure, deadlock, lock time-out. Source: PostgreSQL manual, 13.5."""
_LOST = ("08", "57P", "25006", "25P03", "25P04", "26000", "42P05")
"""Connection errors; the server is stopping or has stopped; the server became a read-only standby; the server
ended a transaction that was idle or took too long; a prepared statement is missing or exists twice, because
of a pooler."""
_PASSING = ("08", "53300", "57P")
"""Connection errors, no connection left, the server is starting or stopping: a retry may succeed."""
_CONTENT = ("22", "23", "54")
"""Data exceptions, violated constraints, program limits."""

UNSTORABLE = (asyncpg.DataError, asyncpg.ProgramLimitExceededError, OverflowError)
"""A number that is too large (COPY raises Python's own error), a name that is too long."""

_REFUSED = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
)
CONTENT_ERRORS = (*_REFUSED, UnicodeError, TypeError, ValueError, AttributeError, OverflowError)
"""The errors of a statement with a value that cannot be stored; raised unchanged."""

_FIXES = {
    "53100": ("the disk is full", "free some space; what was stored is intact"),
    "53200": ("the server ran out of memory", "give it more memory, or lower work_mem"),
    "53300": ("the server has no connection left", "raise max_connections, or start fewer processes"),
    "25006": (
        "the server is a standby, or this role may only read: read-only",
        "add target_session_attrs=read-write to the URL, or use the worker's role",
    ),
    "28000": ("the server refuses this user", "check the user in the URL and pg_hba.conf"),
    "28P01": ("the password is wrong", "check the password in the URL"),
    "3D000": ("there is no such database", "create it, or check its name in the URL"),
    "3F000": ("the schema does not exist", "run `tidegate db upgrade`"),
    "42P01": ("a table does not exist", "run `tidegate db upgrade`"),
    "42501": ("this role lacks a right", "let an administrator run what `tidegate db roles` prints"),
    "57014": ("a statement was cancelled", "try again; look for a long lock in pg_stat_activity"),
}


def error_kind(error: BaseException) -> ErrorKind:
    """Return what an error means."""
    if isinstance(error, asyncpg.InvalidCachedStatementError | asyncpg.OutdatedSchemaCacheError):
        return ErrorKind.AGAIN  # a migration changed a table; asyncpg has dropped the statement
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        for trouble, states in (
            (ErrorKind.AGAIN, _AGAIN), (ErrorKind.LOST, _LOST), (ErrorKind.CONTENT, _CONTENT),
        ):  # fmt: skip
            if state.startswith(states):
                return trouble
        return ErrorKind.REFUSED
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError):
        return ErrorKind.LOST
    return ErrorKind.CONTENT if isinstance(error, CONTENT_ERRORS) else ErrorKind.OTHER


def wrap(error: BaseException, location: str) -> BaseException:
    """Return the contract's error for an error of the database; any other error unchanged.

    Args:
        error: The error that was raised.
        location: The server and database, without credentials.
    """
    trouble = error_kind(error)
    if trouble in (ErrorKind.CONTENT, ErrorKind.OTHER):
        return error
    wrapped: StoreError
    if trouble is ErrorKind.AGAIN:
        wrapped = busy(location)
    else:
        state = getattr(error, "sqlstate", None) or ""
        what, fix = _FIXES.get(state, _what(error, trouble))
        may_pass = not state or state.startswith(_PASSING)
        wrapped = StoreUnavailableError(
            f"{what} ({location}): {error}", fix=fix, place=location, sqlstate=state, may_pass=may_pass
        )
    wrapped.__cause__ = error
    return wrapped


def busy(location: str) -> StoreBusyError:
    """Return the error for work that locks or conflicts of other transactions prevented."""
    return StoreBusyError(
        f"other transactions at {location} held locks that this call needs for too long; nothing was written",
        fix="try again; if it happens again, look for a long transaction in pg_stat_activity",
        place=location,
    )


@contextmanager
def refused_content() -> Iterator[None]:
    """Convert errors for a value to `ValueError`, so that callers need no types of the driver.

    Only the first line of the message is kept: the detail may contain the row.

    Raises:
        ValueError: The database refused a value of a statement in the `with` block.
    """
    try:
        yield
    except _REFUSED as error:
        line = next(iter(str(error).splitlines()), "")
        raise ValueError(f"PostgreSQL refused a value: {type(error).__name__}: {line}") from error


def is_full(error: BaseException) -> bool:
    """Whether the server, the role or the database has no connection left."""
    return getattr(error, "sqlstate", None) == "53300"


def late(location: str, seconds: float) -> StoreUnavailableError:
    """Return the error for work that did not end in time. The work may have been committed."""
    return StoreUnavailableError(
        f"{location} did not answer within {seconds:g} s",
        fix="try again; look at the server and for locks in pg_stat_activity",
        place=location,
        seconds=seconds,
        may_pass=True,
    )


def _what(error: BaseException, trouble: ErrorKind) -> tuple[str, str]:
    if trouble is ErrorKind.LOST:
        return "the database cannot be reached", "check that the server runs and that the URL is right"
    return "PostgreSQL refused a statement", "look at the server's log; if it shows no problem, report this"
