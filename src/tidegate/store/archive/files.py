"""The files of an archive.

A removal first writes its rows to a part file: under a temporary name, then fsync, then a rename. So a file
under its final name is always whole, and a process that is killed leaves at most a temporary file. The parts
of a day are joined to one file for each kind of data. A kill between a write and the removal, or between the
steps of a join, leaves a row in two files, never in none.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import shutil
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec

from tidegate.domain.retention import ArchiveFormat, Data, Retention
from tidegate.errors import ArchiveError
from tidegate.store.archive import parquet
from tidegate.store.archive.lines import ArchivedRow, NewRow, decode_line, encode_line

JOIN_PARTS = 64
"""Part files of a day and kind that are joined at once. Fewer wait until their day is over."""
_SUFFIX = ".ndjson.gz"
_PARQUET = ".parquet"
_TEMPORARY = ".tmp"
_TEMPORARY_SECONDS = 3_600.0
"""Age of a temporary file at which its process is taken for dead."""
_LEVEL = 6


@dataclass(frozen=True, slots=True)
class ArchivedDay:
    """The files of one day and kind of data."""

    day: date
    data: Data
    files: int
    bytes: int


class Archive:
    """A folder of archived rows. Processes of one machine may use it at the same time.

    Args:
        folder: The folder; created when the first row is written.
        format: How the files of finished days are stored.
    """

    def __init__(self, folder: Path, format: ArchiveFormat = ArchiveFormat.NDJSON) -> None:  # noqa: A002
        self.folder = folder
        self._format = format

    # --- locks ---

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep others from rewriting the archive while rows are archived and removed from the store.

        Raises:
            ArchiveError: The folder cannot be created or written.
        """
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others from archiving: rows that are being removed cannot reach the archive afterwards.

        Raises:
            ArchiveError: The folder cannot be written.
        """
        with self._locked(fcntl.LOCK_EX):
            yield

    # --- writing ---

    def write(self, rows: Mapping[Data, Sequence[NewRow]], at: float) -> None:
        """Write rows to the files of the day, durably; call it inside `writing`.

        Args:
            rows: The rows by kind of data.
            at: The store's time.

        Raises:
            ArchiveError: They cannot be written. No file of this call is left if it is one kind's only.
        """
        day = self.folder / datetime.fromtimestamp(at, UTC).date().isoformat()
        with self._wrapped("written"):
            day.mkdir(mode=0o700, exist_ok=True)
            for data, new in rows.items():
                text = b"".join(encode_line(each, at) for each in new)
                self._replace(day / f"{data}-{uuid.uuid4()}{_SUFFIX}", partial(_pack, text))

    def join(self, today: date) -> None:
        """Join the parts of finished days, and many parts of today; do nothing while others use the archive.

        Raises:
            ArchiveError: A file cannot be read or written.
        """
        if not self.folder.is_dir():
            return
        with self._wrapped("joined"), suppress(BlockingIOError), self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
            for folder, day in self._days():
                self._remove_temporary(folder)
                for data in Data:
                    parts = _files(folder, data, parts_only=True)
                    if len(parts) >= JOIN_PARTS or (parts and day < today):
                        self._join(folder, data, is_over=day < today)

    # --- reading ---

    def days(self) -> list[ArchivedDay]:
        """Return what there is, the oldest day first."""
        found = []
        with self._wrapped("read"):
            for folder, day in self._days():
                for data in Data:
                    files = _files(folder, data)
                    if files:
                        size = sum(file.stat().st_size for file in files)
                        found.append(ArchivedDay(day, data, len(files), size))
        return found

    def rows(self, task_id: str | None = None) -> Iterator[ArchivedRow]:
        """Yield the rows of a task, or all, the oldest file first. A row that is there twice comes once.

        Raises:
            ArchiveError: A file cannot be read.
        """
        seen: set[bytes] = set()
        for folder, _ in self._days():
            for data in Data:
                for file in _files(folder, data):
                    with self._wrapped("read"):
                        for line in _read_lines(file):
                            if task_id is None or task_id.encode() in line:
                                row = decode_line(line)
                                identity = msgspec.json.encode((row.table, row.row))
                                if (task_id is None or row.task_id == task_id) and identity not in seen:
                                    if task_id is not None:
                                        seen.add(identity)
                                    yield row

    # --- forgetting ---

    def forget(self, is_forgotten: Callable[[ArchivedRow], bool]) -> int:
        """Rewrite the files without these rows; return how many rows were left out. Call it inside `alone`.

        Raises:
            ArchiveError: A file cannot be read or written. Files that come later are not rewritten.
        """
        forgotten = 0
        with self._wrapped("rewritten"):
            for folder, _ in self._days():
                self._remove_temporary(folder, older_than_seconds=0.0)
                for data in Data:
                    for file in _files(folder, data):
                        forgotten += self._forget_in(file, is_forgotten)
        return forgotten

    def _forget_in(self, file: Path, is_forgotten: Callable[[ArchivedRow], bool]) -> int:
        lines = list(_read_lines(file))
        kept = [line for line in lines if not is_forgotten(decode_line(line))]
        if len(kept) == len(lines):
            return 0
        if not kept:
            file.unlink()
        elif file.suffix == _PARQUET:
            self._replace(file, partial(parquet.write, kept))
        else:
            self._replace(file, partial(_pack, b"".join(kept)))
        _sync_folder(file.parent)
        return len(lines) - len(kept)

    # --- files ---

    def _days(self) -> list[tuple[Path, date]]:
        if not self.folder.is_dir():
            return []
        found = []
        for folder in self.folder.iterdir():
            with suppress(ValueError):
                found.append((folder, date.fromisoformat(folder.name)))
        return sorted(found)

    def _join(self, folder: Path, data: Data, *, is_over: bool) -> None:
        files = _files(folder, data)
        if is_over and self._format is ArchiveFormat.PARQUET:
            target = folder / f"{data}{_PARQUET}"
            lines = chain.from_iterable(map(_read_lines, files))
            self._replace(target, partial(parquet.write, lines))
        else:
            target = folder / f"{data}{_SUFFIX}"
            packed = [file for file in files if file.suffix != _PARQUET]
            self._replace(target, partial(_concatenate, packed))
            files = packed
        for file in files:
            if file != target:
                file.unlink()
        _sync_folder(folder)

    def _replace(self, target: Path, write: Callable[[Path], None]) -> None:
        """Write a file under a temporary name, make it durable, then give it its name."""
        temporary = target.with_name(f"{target.name}.{uuid.uuid4()}{_TEMPORARY}")
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)

    def _remove_temporary(self, folder: Path, older_than_seconds: float = _TEMPORARY_SECONDS) -> None:
        """Remove what killed processes left."""
        for file in folder.glob(f"*{_TEMPORARY}"):
            if time.time() - file.stat().st_mtime >= older_than_seconds:
                file.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        with self._wrapped("opened"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _wrapped(self, action: str) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
            if isinstance(error, BlockingIOError):
                raise
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise ArchiveError(
                f"the archive {self.folder} cannot be {action}: {reason}",
                fix="free space on its disk, or let its user write there; until then nothing is removed",
                place=str(self.folder),
            ) from error


def archive_of(retention: Retention) -> Archive | None:
    """Return the archive of this machine; None if none is set."""
    if retention.archive is None:
        return None
    return Archive(Path(retention.archive), retention.archive_format)


def _files(folder: Path, data: Data, *, parts_only: bool = False) -> list[Path]:
    """Return the files of a kind of data: the joined ones first, then the parts."""
    parts = sorted(folder.glob(f"{data}-*{_SUFFIX}"))
    whole = [] if parts_only else [folder / f"{data}{_PARQUET}", folder / f"{data}{_SUFFIX}"]
    return [file for file in whole if file.exists()] + parts


def _read_lines(file: Path) -> Iterator[bytes]:
    if file.suffix == _PARQUET:
        yield from parquet.read(file)
        return
    with gzip.open(file, "rb") as lines:
        yield from lines


def _pack(text: bytes, path: Path) -> None:
    path.write_bytes(gzip.compress(text, _LEVEL))


def _concatenate(files: Sequence[Path], path: Path) -> None:
    """Join compressed files: gzip reads members one after the other."""
    with path.open("wb") as target:
        for file in files:
            with file.open("rb") as source:
                shutil.copyfileobj(source, target)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
