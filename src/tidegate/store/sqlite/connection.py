"""Opening the database file: where it may lie, who may read it, and how SQLite is set."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw

from tidegate.errors import ConfigError

ALLOW_NETWORK_FS = "TIDEGATE_ALLOW_NETWORK_FS"
"""Set to 1 to use a file system this module refuses, at your own risk."""

_NETWORK = ("nfs", "cifs", "smb", "fuse", "9p", "afs", "ceph", "lustre", "glusterfs", "vboxsf", "prl_fs")
_DOUBTFUL = (
    "acfs", "beegfs", "drvfs", "gfs2", "gpfs", "ocfs2", "orangefs", "pvfs2", "vmhgfs", "virtiofs", "wslfs"
)  # fmt: skip
"""Shared by several machines, or by a guest and its host: some set-ups keep locks and maps, others do not."""
_LOCAL_FUSE = ("fuseblk", "fusectl")
_MOUNTS = Path("/proc/self/mountinfo")

_log = logging.getLogger("tidegate.store")
_warned_of: set[Path] = set()
"""Files that this process has warned of."""

OWN_DIRECTORY = ".tidegate"
WAL_KEPT_BYTES = 64 * 2**20

_PRAGMAS = (
    # A commit is on the disk before anyone hears of it; group commit pays for it (promise G1).
    "PRAGMA synchronous = FULL",
    # No foreign keys are declared: each operation deletes what it owns, in short batches.
    "PRAGMA foreign_keys = OFF",
    # With several processes a mapped file turns another's stray write or a truncation into a crash.
    "PRAGMA mmap_size = 0",
    # A write-ahead log that grew behind a long reader is cut back to this at its next reset.
    f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}",
    # The committing writer folds the log back every 1,000 pages (4 MiB) itself, a few ms at a time: it has to
    # record that the file has changed. See `identity.py`.
    "PRAGMA wal_autocheckpoint = 0",
    "PRAGMA temp_store = MEMORY",
    # 16 MiB: the hot tables and the upper pages of every index.
    "PRAGMA cache_size = -16384",
)


def connect(
    path: Path, *, busy_seconds: float, check: Callable[[apsw.Connection], None] | None = None
) -> apsw.Connection:
    """Open an existing database file and set it up.

    Args:
        path: The file.
        busy_seconds: How long a statement waits for another program's lock.
        check: Called before the first statement that writes; what it raises ends the connection.

    Raises:
        apsw.Error: As SQLite says.
    """
    db = apsw.Connection(
        str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX, statementcachesize=256
    )
    try:
        db.set_busy_timeout(int(busy_seconds * 1000))
        # Closing must not touch a log that belongs to another file: `Identity.close` allows it.
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if check is not None:
            check(db)
        # Plans hang on the statement alone: never prepared again for a value, and what a test has seen holds.
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        # A misspelt column is an error, not a string.
        db.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        _use_wal(db, busy_seconds)
        for pragma in _PRAGMAS:
            db.execute(pragma)
    except BaseException:
        db.close()
        raise
    return db


def make_file(path: Path) -> None:
    """Create an empty file readable by its owner alone, and its directory; keep one that is there.

    The directory `.tidegate` is ours alone and is kept out of git.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == OWN_DIRECTORY:
        with suppress(OSError), (path.parent / ".gitignore").open("x", encoding="ascii") as ignored:
            ignored.write("# Made by Tidegate: tasks are no source code.\n*\n")
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def check_place(path: Path) -> None:
    """Refuse a network file system: its locks and shared memory do not hold between hosts.

    Raises:
        ConfigError: With the file system's name.
    """
    if os.environ.get(ALLOW_NETWORK_FS) == "1":
        return
    kind = file_system_of(path)
    if kind.startswith(_NETWORK) and not kind.startswith(_LOCAL_FUSE):
        raise ConfigError(
            f"the database {path} lies on a network or user-space file system ({kind}), where SQLite"
            " can lose or corrupt data",
            fix=f"move it to a local disk, or set {ALLOW_NETWORK_FS}=1 if you know it to be safe",
            path=str(path),
            file_system=kind,
        )
    if kind.startswith(_DOUBTFUL) and path not in _warned_of:
        _warned_of.add(path)
        _log.warning(
            "the database %s lies on %s, a file system that may be shared with other machines: SQLite is safe"
            " there only if one machine alone opens it and locks work. Move it to a local disk, or set %s=1",
            path,
            kind,
            ALLOW_NETWORK_FS,
        )


def check_build() -> None:
    """Refuse a SQLite without what the statements use.

    Raises:
        ConfigError: apsw was not installed from PyPI, or is too old.
    """
    if not hasattr(apsw, "carray") or "ENABLE_CARRAY" not in apsw.compile_options:
        raise ConfigError(
            "this build of apsw lacks the carray extension", fix="install apsw from PyPI: pip install -U apsw"
        )


def file_system_of(path: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of the file system `path` is or will be on; empty where the host does not tell."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    place = str(path.absolute().resolve())
    best, kind = "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].replace("\\040", " ")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind


def _use_wal(db: apsw.Connection, busy_seconds: float) -> None:
    """Switch to write-ahead logging; two processes may do so at once.

    The switch needs the file alone and does not use the busy handler, hence the loop.
    """
    until = time.monotonic() + busy_seconds
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.005)
        else:
            return
