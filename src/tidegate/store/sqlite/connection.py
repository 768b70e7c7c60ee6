"""Open the database file: check its file system, set its permissions, and configure SQLite."""

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
"""Set to 1 to use a file system that this module refuses, at your own risk."""

_NETWORK = ("nfs", "cifs", "smb", "fuse", "9p", "afs", "ceph", "lustre", "glusterfs", "vboxsf", "prl_fs")
_DOUBTFUL = (
    "acfs", "beegfs", "drvfs", "gfs2", "gpfs", "ocfs2", "orangefs", "pvfs2", "vmhgfs", "virtiofs", "wslfs"
)  # fmt: skip
"""File systems shared by several machines, or by a guest and its host. Locks and maps work on only some of
them."""
_LOCAL_FUSE = ("fuseblk", "fusectl")
_MOUNTS = Path("/proc/self/mountinfo")

_log = logging.getLogger("tidegate.store")
_warned_of: set[Path] = set()
"""Files about which this process has logged a warning."""

OWN_DIRECTORY = ".tidegate"
WAL_KEPT_BYTES = 64 * 2**20

_PRAGMAS = (
    # A commit is on the disk before any caller gets its result; group commits make that cheap.
    "PRAGMA synchronous = FULL",
    # No foreign keys are declared: each operation deletes what it owns, in short batches.
    "PRAGMA foreign_keys = OFF",
    # If another process truncates or overwrites a mapped file, this one can crash.
    "PRAGMA mmap_size = 0",
    # A write-ahead log that grew during a long read is truncated to this size at its next reset.
    f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}",
    # The committing writer checkpoints the log itself, every 1,000 pages (4 MiB), in a few ms: it has to
    # record that the file has changed. See `file_identity.py`.
    "PRAGMA wal_autocheckpoint = 0",
    "PRAGMA temp_store = MEMORY",
    # 16 MiB: the hot tables and the upper pages of every index.
    "PRAGMA cache_size = -16384",
)


def connect(
    path: Path, *, busy_seconds: float, check: Callable[[apsw.Connection], None] | None = None
) -> apsw.Connection:
    """Open an existing database file and configure the connection.

    Args:
        path: The file.
        busy_seconds: How long a statement waits for another program's lock.
        check: Called before the first statement that writes. If it raises, the connection is closed.

    Raises:
        apsw.Error: SQLite cannot open the file.
    """
    db = apsw.Connection(
        str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX, statementcachesize=256
    )
    try:
        db.set_busy_timeout(int(busy_seconds * 1000))
        # Closing must not touch a log that belongs to another file. `Identity.close` allows the checkpoint.
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if check is not None:
            check(db)
        # Plans depend on the statement alone, not on values. So the plans that tests check are the real ones.
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        # With this setting a misspelt column is an error, not a string.
        db.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        _use_wal(db, busy_seconds)
        for pragma in _PRAGMAS:
            db.execute(pragma)
    except BaseException:
        db.close()
        raise
    return db


def make_file(path: Path) -> None:
    """Create an empty file that only its owner may read, and its directory; keep an existing file.

    The directory `.tidegate` belongs to Tidegate and gets a `.gitignore`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == OWN_DIRECTORY:
        with suppress(OSError), (path.parent / ".gitignore").open("x", encoding="ascii") as ignored:
            ignored.write("# Made by Tidegate: tasks are not source code.\n*\n")
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def check_place(path: Path) -> None:
    """Refuse a network file system: its locks and shared memory do not work between hosts.

    Raises:
        ConfigError: The file system is refused; the message has its name.
    """
    if os.environ.get(ALLOW_NETWORK_FS) == "1":
        return
    kind = file_system_of(path)
    if kind.startswith(_NETWORK) and not kind.startswith(_LOCAL_FUSE):
        raise ConfigError(
            f"the database {path} lies on a network or user-space file system ({kind}), where SQLite"
            " can lose or corrupt data",
            fix=f"move it to a local disk, or set {ALLOW_NETWORK_FS}=1 if you know it to be safe",
            place=str(path),
        )
    if kind.startswith(_DOUBTFUL) and path not in _warned_of:
        _warned_of.add(path)
        _log.warning(
            "the database %s lies on %s, a file system that may be shared with other machines: SQLite is safe"
            " there only if no other machine opens it and its file locks work. Move it to a local disk,"
            " or set %s=1",
            path,
            kind,
            ALLOW_NETWORK_FS,
        )


def check_build() -> None:
    """Refuse a SQLite that lacks extensions which the statements use.

    Raises:
        ConfigError: apsw was not installed from PyPI, or is too old.
    """
    if not hasattr(apsw, "carray") or "ENABLE_CARRAY" not in apsw.compile_options:
        raise ConfigError(
            "this build of apsw lacks the carray extension", fix="install apsw from PyPI: pip install -U apsw"
        )


def file_system_of(path: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of the file system `path` is or will be on; empty if unknown."""
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

    The switch needs exclusive use of the file and ignores the busy handler, hence the loop.
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
