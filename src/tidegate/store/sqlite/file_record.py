"""What the file system shows of a database's files, and what the side file records of them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tidegate.store.sqlite.errors import vanished

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_VERSION = "tidegate-1"
_RESTORING = "tidegate-restoring"
_WIDTH = 255
"""Every record has the same length, so that writing over one needs no space on a full disk."""


@dataclass(frozen=True, slots=True)
class FileStats:
    """The files of a database as the file system shows them; numbers are inodes, 0 where there is none."""

    file: int
    modified_ns: int
    size: int
    log: int
    log_size: int
    index: int


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What the side file says about a database file and its log."""

    boot: str
    """Of the system that wrote it. After a power failure the record can be older than the file."""
    files: FileStats
    frames: int
    folded: int
    """How many frames of the log have been copied into the file."""
    salt: str
    is_folding: bool
    """Whether a checkpoint is under way, or was interrupted: the file may have changed."""

    def text(self) -> bytes:
        """Return the record as one line."""
        files = self.files
        numbers = (
            files.file, files.modified_ns, files.size, files.log, files.log_size, files.index,
            self.frames, self.folded,
        )  # fmt: skip
        words = (_VERSION, self.boot or "-", *map(str, numbers), self.salt or "-", str(int(self.is_folding)))
        return (" ".join(words).ljust(_WIDTH) + "\n").encode()

    @classmethod
    def parsed(cls, text: bytes) -> FileRecord | None:
        """Return the record of a line; None if it holds none, as one of an older version."""
        words = text.decode(errors="replace").split()
        if len(words) != 12 or words[0] != _VERSION:
            return None
        try:
            numbers = [int(word) for word in words[2:10]]
        except ValueError:
            return None
        boot, salt = ("" if word == "-" else word for word in (words[1], words[10]))
        return cls(boot, FileStats(*numbers[:6]), numbers[6], numbers[7], salt, words[11] == "1")


def files_at(path: str, *, with_index: bool) -> FileStats:
    """Return the files of the database at a path; a symbolic link is followed, as SQLite does.

    Raises:
        StoreUnavailableError: The database file is not there.
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
    """Return what the side file says while a backup takes the place of this file."""
    return f"{_RESTORING} {old.st_ino if old else 0}\n".encode()


def is_half_restored(text: bytes, found: os.stat_result | None) -> bool:
    """Whether a restore has begun and its backup is not in place.

    Args:
        text: What the side file says.
        found: The database file that is there now.
    """
    words = text.decode(errors="replace").split()
    return words[:1] == [_RESTORING] and (found is None or words[1:] == [str(found.st_ino)])


@cache
def boot_id() -> str:
    """Return what names this start of the system; empty where the host names none."""
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return ""


def stat_of(path: str) -> os.stat_result | None:
    """Return what the file system says of a path; None if nothing is there."""
    try:
        return os.stat(path)  # noqa: PTH116 - before each use of a connection; pathlib doubles the cost
    except OSError:
        return None
