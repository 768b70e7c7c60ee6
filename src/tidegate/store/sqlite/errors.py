"""Convert errors of SQLite and the file system to errors of the store contract."""

from __future__ import annotations

import apsw

from tidegate.errors import ConfigError, StoreBusyError, StoreUnavailableError, TidegateError

_FIXES: tuple[tuple[type[apsw.Error], str, str], ...] = (
    (apsw.FullError, "the disk is full", "free some space; what was stored is intact"),
    (apsw.CantOpenError, "the database file cannot be opened", "check that its directory exists"),
    (apsw.ReadOnlyError, "the database file cannot be written", "check the owner and mode of its directory"),
    (apsw.PermissionsError, "access to the database file is denied", "check its owner and mode"),
    (apsw.IOError, "the disk failed", "look at the system log; then run `tidegate db check`"),
    (apsw.CorruptError, "the database file is damaged", "run `tidegate db check`, restore a backup"),
    (apsw.NotADBError, "the file is not a SQLite database", "check the path"),
    (apsw.NoMemError, "SQLite ran out of memory", "free some memory"),
)

_MOVED = "tidegate: moved"
"""How the message from a sealed file's triggers begins, after `tidegate db move`. ` to ` and the new place
follow it."""

BROKEN = (
    apsw.CantOpenError,
    apsw.IOError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.NoMemError,
    apsw.ProtocolError,
    apsw.MisuseError,
    apsw.ConnectionClosedError,
)
"""After one of these errors the connection is not used again."""


def busy(seconds: float, path: str) -> StoreBusyError:
    """Return the error for a call that could not begin in time."""
    return StoreBusyError(
        f"the store's write lock was not free within {seconds:g} s; nothing was written",
        fix="try again; if it happens again, look for a process that holds the database file",
        seconds=seconds,
        place=path,
    )


def vanished(path: str) -> StoreUnavailableError:
    """Return the error for a store whose file is gone."""
    return StoreUnavailableError(
        f"the database file {path} has vanished",
        fix="put it back; this process does not create a new one in its place",
        place=path,
    )


def replaced(path: str, how: str) -> StoreUnavailableError:
    """Return the error for a store whose file was replaced while the file or its log was in use."""
    return StoreUnavailableError(
        f"the database file {path} was replaced: {how}; nothing is read from it or written to it",
        fix="stop every process that uses it, then put the right file there: `tidegate db restore BACKUP`",
        place=path,
        is_replaced=True,
    )


def left_behind(path: str) -> StoreUnavailableError:
    """Return the error for a store whose file is gone while its write-ahead log still has commits."""
    return StoreUnavailableError(
        f"the database file {path} is gone, and the {path}-wal it left behind holds commits",
        fix="put the file back next to it; to start with an empty store, delete the -wal too",
        place=path,
    )


def half_restored(path: str) -> StoreUnavailableError:
    """Return the error for a store that a restore is replacing: its last commits may be missing."""
    return StoreUnavailableError(
        f"a restore over the database file {path} is under way, or was interrupted",
        fix="if no restore runs, run it again: `tidegate db restore BACKUP`; the old files are kept as "
        "FILE.before-…",
        place=path,
    )


def wrap(error: BaseException, path: str, busy_seconds: float) -> BaseException:
    """Return the contract's error for an error of SQLite or the file system; any other error unchanged."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        wrapped: TidegateError = busy(busy_seconds, path)
    elif isinstance(error, apsw.ConstraintError) and _MOVED in str(error):
        wrapped = _moved(path, str(error).partition(f"{_MOVED} to ")[2] or "another database")
    elif isinstance(error, apsw.Error):
        wrapped = _unavailable(error, path)
    elif isinstance(error, OSError):
        wrapped = StoreUnavailableError(
            f"the files of {path} cannot be reached: {error.strerror or error}",
            fix="check that the directory exists and may be written",
            place=path,
        )
    else:
        return error
    wrapped.__cause__ = error
    return wrapped


def _moved(path: str, place: str) -> ConfigError:
    return ConfigError(
        f"the tasks of {path} have moved to {place}, and this file is sealed",
        fix="use that database's URL; `tidegate db move … --undo` unseals a file whose tasks are still here",
        place=path,
    )


def _unavailable(error: apsw.Error, path: str) -> StoreUnavailableError:
    for kind, what, fix in _FIXES:
        if isinstance(error, kind):
            return StoreUnavailableError(f"{what} ({path}): {error}", fix=fix, place=path)
    return StoreUnavailableError(
        f"SQLite refused a statement on {path}: {error}",
        fix="run `tidegate db check`; if the file is sound, this is a bug in Tidegate: report it",
        place=path,
    )
