"""The state of a database's files in the file system, and the record of it in the side file."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tidegate.store.sqlite.errors import vanished

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_VERSION = "tidegate-1"
_RESTORING = "tidegate-restoring"
_WIDTH = 255
"""Every record has this length, so that overwriting one needs no space on a full disk."""


class FileStats(NamedTuple):
    """The files of a database in the file system. Numbers are inodes, 0 for a missing file.

    The value is a tuple for speed: each transaction reads it several times.
    """

    file: int
    modified_ns: int
    size: int
    log: int
    log_size: int
    log_index: int


@dataclass(frozen=True, slots=True)
class FileRecord:
    """The record in the side file about a database file and its log."""

    boot: str
    """Id of the system start in which the record was written. After a power failure it can be older than the
    file."""
    files: FileStats
    frames: int
    folded: int
    """How many frames of the log have been copied into the file."""
    salt: str
    is_folding: bool
    """Whether a checkpoint is running or was interrupted: the file may have changed."""

    def text(self) -> bytes:
        """Return the record as one line."""
        files = self.files
        numbers = (
            files.file, files.modified_ns, files.size, files.log, files.log_size, files.log_index,
            self.frames, self.folded,
        )  # fmt: skip
        fields = (_VERSION, self.boot or "-", *map(str, numbers), self.salt or "-", str(int(self.is_folding)))
        return (" ".join(fields).ljust(_WIDTH) + "\n").encode()

    @classmethod
    def parsed(cls, text: bytes) -> FileRecord | None:
        """Return the record in a line; None if the line has no record, as in older versions."""
        fields = text.decode(errors="replace").split()
        if len(fields) != 12 or fields[0] != _VERSION:
            return None
        try:
            numbers = [int(value) for value in fields[2:10]]
        except ValueError:
            return None
        boot, salt = ("" if value == "-" else value for value in (fields[1], fields[10]))
        return cls(boot, FileStats(*numbers[:6]), numbers[6], numbers[7], salt, fields[11] == "1")


def files_at(path: str, *, with_index: bool) -> FileStats:
    """Return the files of the database at a path. A symbolic link is followed, as SQLite does.

    Raises:
        StoreUnavailableError: The database file does not exist.
    """
    try:
        file = os.stat(path)  # noqa: PTH116 - before each use of a connection; pathlib doubles the cost
    except FileNotFoundError:
        raise vanished(path) from None
    log, index = stat_of(f"{path}-wal"), stat_of(f"{path}-shm") if with_index else None
    return FileStats(
        file.st_ino,
        file.st_mtime_ns,
        file.st_size,
        log.st_ino if log else 0,
        log.st_size if log else 0,
        index.st_ino if index else 0,
    )


def restoring(old: os.stat_result | None) -> bytes:
    """Return the content of the side file while a backup replaces this file."""
    return f"{_RESTORING} {old.st_ino if old else 0}\n".encode()


def is_half_restored(text: bytes, found: os.stat_result | None) -> bool:
    """Return whether a restore has begun and its backup is not in place.

    Args:
        text: The content of the side file.
        found: The current database file; None if it does not exist.
    """
    fields = text.decode(errors="replace").split()
    return fields[:1] == [_RESTORING] and (found is None or fields[1:] == [str(found.st_ino)])


@cache
def boot_id() -> str:
    """Return the id of this start of the system; empty if the host has none."""
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return ""


def stat_of(path: str) -> os.stat_result | None:
    """Return the `stat` of a path; None if it does not exist."""
    try:
        return os.stat(path)  # noqa: PTH116 - before each use of a connection; pathlib doubles the cost
    except OSError:
        return None
