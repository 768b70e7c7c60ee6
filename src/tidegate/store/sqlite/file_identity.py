"""Check that the database file is still the one that its write-ahead log and connections belong to.

SQLite finds the log (`-wal`) and the log's index (`-shm`) of a file by name only. If a backup is copied over
a file in use, the next connection applies the old log to the new file and damages it, and the last old
connection to close deletes the new file's log. https://sqlite.org/howtocorrupt.html, 2.4

Two things are checked before each use. First, the files at the path must be those that this connection
opened. Second, the file's content must match the record in the side file: in WAL mode only a checkpoint
changes the database file, our checkpoints hold the write lock, and each of them writes a new record. A
checkpoint by another program is recognised by its progress in the log.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import apsw

from tidegate.errors import StoreUnavailableError
from tidegate.store.sqlite.errors import replaced
from tidegate.store.sqlite.file_record import FileRecord, FileStats, boot_id, files_at, stat_of
from tidegate.store.sqlite.lock import FileLock

FOLD_PAGES = 1_000
"""A commit that leaves this many pages in the log is followed by a checkpoint. This is SQLite's default."""

_SALT = slice(16, 24)
"""The bytes of the log's header that change when the log restarts. https://sqlite.org/fileformat.html, 4.1"""
INDEX_LOCKS = (9, 120)
"""How many bytes of the log's index SQLite locks, and from which offset. Every open connection holds a shared
lock on the last of these bytes. https://sqlite.org/walformat.html, 2.3"""
_in_use: Counter[int] = Counter()
"""How many connections of this process use a log's index, by its inode. If the process opened and closed
such a file, it would lose all its locks on it."""
_closing = threading.Lock()
"""Held while a connection of this process is closed, so that the last connection knows that it is the
last."""


class Identity:
    """The identity of the files that one connection has open.

    Args:
        path: The database file, as the caller named it.
        lock: The lock between writers; its file has the record.
    """

    def __init__(self, path: Path, lock: FileLock) -> None:
        self._name = str(path)
        self._lock = lock
        self.real = Path(os.path.realpath(path))
        """The file that the path resolves to. SQLite keeps the log next to it."""
        self._is_link = path.is_symlink()
        self._kept: FileRecord | None = None
        """The record, while the lock is held."""
        self._opened: FileStats | None = None
        self._good: tuple[int, int] | None = None
        self._read_text = b""
        self._read_record: FileRecord | None = None
        """The record in `_read_text`."""

    # --- opening ---

    def require_openable(self) -> int:
        """Return the file's inode. Called before SQLite opens the file.

        Raises:
            StoreUnavailableError: The log or its index belongs to another file.
        """
        files = self._stat_files(with_index=True)
        if not files.log_size and not files.log_index:
            # No files of earlier connections are left, so the record is out of date. A process that holds the
            # lock
            # renews the record itself.
            with self._lock.held_if_free() as is_held:
                if is_held:
                    self._lock.write(b"")
            return files.file
        record = self._record()
        if record is None:
            return files.file
        is_its_log = files.log_size > 0 and files.log == record.files.log
        is_its_index = files.log_index > 0 and files.log_index == record.files.log_index
        if (
            record.files.file != files.file
            and (is_its_log or is_its_index)
            and not _alike(record.files, files)
        ):
            self._set_aside()
        elif is_its_index and not files.log and self._lacks_log(files.log_index):
            raise replaced(self._name, "its -wal was deleted, and its -shm is still there")
        return files.file

    def _lacks_log(self, index: int) -> bool:
        """Return whether the log's index is still there and the log is not.

        Both may have been created between two looks at the log and the index. SQLite creates the log before
        the index and deletes it after the index. So if the log is missing and the index is still there
        afterwards, someone else deleted the log.
        """
        log, found = stat_of(f"{self.real}-wal"), stat_of(f"{self.real}-shm")
        return log is None and found is not None and found.st_ino == index

    def _set_aside(self) -> None:
        """Move away the log of a replaced file, if no process has that file open.

        Raises:
            StoreUnavailableError: A process has it open.
        """
        log, index = Path(f"{self.real}-wal"), Path(f"{self.real}-shm")
        with self._lock.held(), _nobody_uses(index) as is_unused:
            if not is_unused:
                raise replaced(self._name, "a process still has the file open that was there before")
            aside = Path(f"{self.real}.before-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-wal")
            if log.exists():
                log.rename(aside)
            index.unlink(missing_ok=True)
            self._lock.write(b"")
        warning = "%s was replaced; the -wal of the file that was there before is now %s"
        logging.getLogger("tidegate.store").warning(warning, self._name, aside)

    def require_content(self, db: apsw.Connection, inode: int) -> None:
        """Check a connection that has just been opened, before its first statement.

        Raises:
            StoreUnavailableError: The file was replaced, or its content does not belong to the log.
        """
        files = self._stat_files()
        if files.file != inode:
            raise replaced(self._name, "it was replaced while it was being opened")
        if files.log_size:
            self._require_good_content(db)

    def opened(self, db: apsw.Connection, inode: int) -> None:
        """Remember the files that this connection has open, and record them if no record exists.

        Raises:
            StoreUnavailableError: The file has been replaced.
        """
        db.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # only a read opens the log
        files = self._stat_files(with_index=True)
        if files.file != inode:
            raise replaced(self._name, "it was replaced while it was being opened")
        self._opened = files
        _in_use[files.log_index] += 1
        self._good = (files.modified_ns, files.size)
        record = self._record()
        if record is None or not self._is_of(record, files):
            with self._lock.held_if_free() as is_held:
                if is_held:
                    self.write(db)

    # --- using ---

    def require_same_files(self, db: apsw.Connection) -> None:
        """Check that the files are the ones that this connection opened. Called outside of transactions.

        Raises:
            StoreUnavailableError: A file was deleted or replaced. Do not read or write here.
        """
        if not self.is_unchanged():
            self._require_good_content(db)

    def is_unchanged(self) -> bool:
        """Return whether the file system shows no change since the last check.

        Raises:
            StoreUnavailableError: The path now has other files.
        """
        files = self._stat_files()
        self._require_same(files)
        return (files.modified_ns, files.size) == self._good

    def locked(self, db: apsw.Connection) -> None:
        """Check the files again once the lock is held, and update the record.

        Raises:
            StoreUnavailableError: The file was deleted or replaced.
        """
        files = self._stat_files()
        self._require_same(files)
        if (files.modified_ns, files.size) != self._good:
            self._require_good_content(db)
        self._kept = record = self._record()
        if record is None or record.is_folding or not self._is_of(record, files) or self._good != (
            record.files.modified_ns, record.files.size
        ):  # fmt: skip
            self.write(db)

    def write(self, db: apsw.Connection) -> None:
        """Record the current state. The caller holds the lock, and has called `require_same_files` since."""
        files = self._stat_files(with_index=True)
        frames, folded = _progress(db)
        self._kept = record = FileRecord(boot_id(), files, frames, folded, self._salt(), is_folding=False)
        self._lock.write(record.text())
        self._good = (files.modified_ns, files.size)

    def committed(self, db: apsw.Connection) -> None:
        """Check that the file was not replaced during a commit; checkpoint a long log. The lock is held.

        Raises:
            StoreUnavailableError: The file was deleted or replaced, and lacks the commit.
        """
        self._require_same(self._stat_files())
        frames, folded = _progress(db)
        if frames >= FOLD_PAGES:
            self.fold(db, apsw.SQLITE_CHECKPOINT_PASSIVE)
            return
        record = self._kept
        if record is None or not record.files.log_size or frames < record.frames or folded < record.folded:
            self.write(db)  # the log has restarted, with another salt

    def fold(self, db: apsw.Connection, mode: int) -> None:
        """Checkpoint: copy the log into the file as far as readers allow. The caller holds the lock.

        Raises:
            StoreUnavailableError: The file was deleted or replaced.
        """
        self.locked(db)
        self._mark_folding()
        try:
            with suppress(apsw.BusyError):  # another program makes a checkpoint now
                db.wal_checkpoint(mode=mode)
        finally:
            self.write(db)

    # --- closing ---

    def close(self, db: apsw.Connection) -> None:
        """Close the connection.

        When the last connection of all processes closes, SQLite copies the log into the file and deletes it,
        by name. This method prevents that if the log of that name, or the file's content, does not belong to
        this connection. If another process holds the lock, that process has a connection, so this is not the
        last.
        """
        with _closing, self._lock.held_if_free() as is_held:
            is_ours = is_held and self._may_fold_at_close(db)
            before = self._lock.read()
            if is_ours:
                self._mark_folding()
                _fold_at_close(db, True)
            db.close(True)
            self.forget()
            if is_ours:
                self._lock.write(before if stat_of(f"{self.real}-wal") else b"")

    def forget(self) -> None:
        """Forget the connection, which is closed or belongs to the parent of this forked child."""
        if self._opened is not None:
            _in_use[self._opened.log_index] -= 1
            self._opened = None

    def _may_fold_at_close(self, db: apsw.Connection) -> bool:
        opened = self._opened
        if opened is None:
            return False
        log, index, file = stat_of(f"{self.real}-wal"), stat_of(f"{self.real}-shm"), stat_of(str(self.real))
        if log is None or index is None or (log.st_ino, index.st_ino) != (opened.log, opened.log_index):
            return False
        if file is None or file.st_ino != opened.file:
            return False  # SQLite would not copy the log either, because the file was moved
        with suppress(StoreUnavailableError, apsw.Error):
            return self._is_explained(db)
        return False

    # --- comparing ---

    def _stat_files(self, *, with_index: bool = False) -> FileStats:
        if self._is_link:
            # The log is next to the file that the link resolves to.
            file, linked = (
                files_at(self._name, with_index=False),
                files_at(str(self.real), with_index=with_index),
            )
            return file._replace(log=linked.log, log_size=linked.log_size, log_index=linked.log_index)
        return files_at(self._name, with_index=with_index)

    def _require_same(self, files: FileStats) -> None:
        opened = self._opened
        if opened is None:
            return
        if files.file != opened.file:
            raise replaced(self._name, "another file is in its place")
        if files.log != opened.log:
            raise replaced(self._name, "its -wal was deleted or replaced")

    def _require_good_content(self, db: apsw.Connection) -> None:
        """Raise unless the file's content matches the record, or a checkpoint explains the difference."""
        if self._is_explained(db):
            return
        # A process that is making a checkpoint holds the lock. When it has ended, the record is right.
        with self._lock.held():
            if not self._is_explained(db):
                raise replaced(self._name, "its content was overwritten by another program")

    def _is_explained(self, db: apsw.Connection) -> bool:
        files = self._stat_files()
        self._require_same(files)
        record = self._record()
        if record is not None and self._is_of(record, files) and self._is_of_this_boot(record):
            is_as_recorded = _alike(record.files, files)
            has_grown = self._salt() != record.salt or _progress(db)[1] > record.folded
            if not (is_as_recorded or record.is_folding or has_grown):
                return False
        self._good = (files.modified_ns, files.size)
        return True

    def _is_of_this_boot(self, record: FileRecord) -> bool:
        """Whether the record was written since the system started.

        If so, no power failure can have lost a later record.
        """
        return record.boot == boot_id() and (record.boot != "" or self._opened is not None)

    @staticmethod
    def _is_of(record: FileRecord, files: FileStats) -> bool:
        """Whether a record belongs to this file and its log."""
        return (record.files.file, record.files.log) == (files.file, files.log)

    # --- the record ---

    def _record(self) -> FileRecord | None:
        text = self._lock.read()
        if text != self._read_text:  # rare, since the record changes with each checkpoint
            self._read_text, self._read_record = text, FileRecord.parsed(text)
        return self._read_record

    def _mark_folding(self) -> None:
        record = self._record()
        if record is not None:
            self._lock.write(replace(record, is_folding=True).text())

    def _salt(self) -> str:
        # SQLite puts no lock on this file, so closing it again releases none.
        with suppress(OSError), open(f"{self.real}-wal", "rb") as log:  # noqa: PTH123
            return log.read(_SALT.stop)[_SALT].hex()
        return ""


@contextmanager
def _nobody_uses(index: Path) -> Iterator[bool]:
    """Hold the locks on a log's index in the `with` block if no connection has one; yield whether held."""
    found = stat_of(str(index))
    if found is None or _in_use[found.st_ino]:
        yield found is None
        return
    with index.open("r+b") as opened:
        try:
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB, *INDEX_LOCKS)
        except (BlockingIOError, PermissionError):
            yield False
        else:
            yield True


def _alike(one: FileStats, other: FileStats) -> bool:
    return (one.modified_ns, one.size) == (other.modified_ns, other.size)


def _fold_at_close(db: apsw.Connection, does: bool) -> None:
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(not does))


def _progress(db: apsw.Connection) -> tuple[int, int]:
    """Return how many frames the log has, and how many of them were copied into the file."""
    frames, folded = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    return frames, folded
