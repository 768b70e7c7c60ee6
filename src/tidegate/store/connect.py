"""Open the store that a database URL names. A back end is imported only when a URL needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.domain.readers import shown
from tidegate.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from tidegate.store.protocol import Store

_FORMS = "use postgresql://user@host/database, sqlite:///relative/path.db, or a path that ends in .db"
_POSTGRES = ("postgresql://", "postgres://")
REPLAY = "TIDEGATE_REPLAY"
"""Set to 1 while a replay runs: this process and the ones that it starts open no store."""


def open_store(url: str, **options: Any) -> Store:
    """Return the store that `url` names. The store connects at its first use.

    Args:
        url: `postgresql://user@host/database`, `sqlite:///relative.db`, `sqlite:////absolute.db`, or a plain
            path that ends in `.db`.
        options: Passed to the back end's constructor.

    Raises:
        ConfigError: The URL names no store of this release, or the driver of its store is not installed.
        UsageError: A replay runs in this process, or started it.
    """
    if os.environ.get(REPLAY) == "1":
        raise UsageError(
            "a replay opens no other store",
            fix="what the function stores through its own application goes to a temporary store",
        )
    if is_postgres(url):
        return _postgres_store(url, options)
    path = sqlite_path(url)
    from tidegate.store.sqlite.store import SqliteStore

    return SqliteStore(path, **options)


@contextmanager
def refused_stores() -> Iterator[None]:
    """Let this process, and the processes that it starts, open no store inside the block."""
    before = os.environ.get(REPLAY)
    os.environ[REPLAY] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[REPLAY]
        else:
            os.environ[REPLAY] = before


def check_url(url: str) -> None:
    """Raise `ConfigError` unless `open_store` accepts this URL.

    Raises:
        ConfigError: The URL names no store of this release.
    """
    if is_postgres(url):
        from tidegate.store.postgres.address import parse_address

        parse_address(url)
    else:
        sqlite_path(url)


def absolute_url(url: str) -> str:
    """Return the URL of the same store for a process in another working directory.

    Raises:
        ConfigError: The URL names no store of this release.
    """
    return url if is_postgres(url) else f"sqlite:///{sqlite_path(url).absolute()}"


def anchored_url(url: str, directory: Path) -> str:
    """Return the URL with a relative file resolved against `directory`; any other URL unchanged.

    A URL that names no store is returned unchanged too: `check_url` reports it.
    """
    try:
        return url if is_postgres(url) else f"sqlite:///{directory / sqlite_path(url)}"
    except ConfigError:
        return url


def is_postgres(url: str) -> bool:
    """Whether a URL names a database on a PostgreSQL server."""
    return url.startswith(_POSTGRES)


def sqlite_path(url: str) -> Path:
    """Return the file that a URL names. The path is not decoded: %20 is three characters, not a space.

    Raises:
        ConfigError: The URL names no store of this release.
    """
    if url != url.strip():
        raise ConfigError("the database URL begins or ends with a space or line end", fix="take it out")
    scheme, mark, rest = url.partition("://")
    if not mark and scheme.lower().startswith("postgres"):  # not repeated: it may hold a password
        raise ConfigError("the database URL lacks the // after its colon", fix=_FORMS)
    if not mark:
        if url.endswith(".db") and url != ".db":
            return Path(url).expanduser()
        raise ConfigError(f"{url!r} names no database", fix=_FORMS, place=url)
    if scheme.startswith("postgres"):
        raise ConfigError("a driver is named in the database URL", fix="write postgresql:// alone")
    if scheme != "sqlite":
        raise ConfigError(f"no back end is called {shown(scheme)}", fix=_FORMS)
    if ":memory:" in rest:
        raise ConfigError(
            "an in-memory database belongs to one connection, and Tidegate uses several",
            fix="use a file, for example in a temporary directory",
            place=url,
        )
    if not rest.startswith("/") or rest == "/":
        raise ConfigError(f"{url!r} names no file", fix=_FORMS, place=url)
    return Path(rest[1:]).expanduser()


def _postgres_store(url: str, options: dict[str, Any]) -> Store:
    try:
        from tidegate.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigError(
            "the database URL names PostgreSQL, and its driver is not installed",
            fix="pip install 'tidegate[postgres]'",
        ) from error
    store: Any = PostgresStore(url, **options)
    found: Store = store
    return found
