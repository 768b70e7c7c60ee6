"""What commands share: the common options, and functions to load an application and open a store."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidegate.cli.output import print_message
from tidegate.config import load_config
from tidegate.errors import ConfigError, StoreUnavailableError
from tidegate.internals import core_of
from tidegate.store.protocol import Store

if TYPE_CHECKING:
    from tidegate.application.core import Core
    from tidegate.worker.settings import Pool

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The store that a command uses."""

    url: str
    application: Core | None = None
    """The internals of the application of `--app`; None if it was not given."""

    @property
    def functions(self) -> Collection[str]:
        """Return the names of the functions that the application of `--app` declares."""
        return () if self.application is None else self.application.functions

    @property
    def pools(self) -> Sequence[Pool]:
        """Return the pools of the application of `--app`, otherwise the configured pools."""
        return load_config().pools if self.application is None else self.application.pools

    @classmethod
    def from_options(cls, database: str | None, app: str | None) -> StoreLocation:
        """Return the database of `--database`, otherwise that of `--app`, otherwise the configured one."""
        application = None if app is None else load_app(app)
        if database is None:
            database = load_config().database_url if application is None else application.url
        return cls(database, application)


def load_app(reference: str | None) -> Core:
    """Import an application by its reference (None: the configured one), and return its internals.

    Raises:
        ConfigError: No application is configured, or it cannot be imported.
    """
    from tidegate.worker.application import load_application

    core: Core = core_of(load_application(app_reference(reference)))
    return core


def app_reference(reference: str | None) -> str:
    """Return `reference`, or the configured reference if it is None.

    Raises:
        ConfigError: No application is given or configured.
    """
    config = load_config()
    if config.path is not None:
        _make_importable(config.path.parent)
    found = reference or config.app
    if found is None:
        raise ConfigError(
            "no application is given or configured",
            fix='give it as MODULE:NAME, set TIDEGATE_APP, or write app = "app:app" into tidegate.toml',
        )
    return found


def _make_importable(directory: Path) -> None:
    """Add the project's directory to the import path of this process and its child processes."""
    place = str(directory.absolute())
    if place not in (os.getcwd(), *sys.path):  # noqa: PTH109 - sys.path holds text
        sys.path.insert(0, place)
        known = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (place, known)))


@asynccontextmanager
async def opened_store(location: StoreLocation, *, make: bool = False) -> AsyncIterator[Store]:
    """Open the store for the `async with` block.

    Args:
        location: Which store to open.
        make: Whether to create a database that does not exist yet. Commands that only read never create
            one: an empty list would hide that the URL is wrong.

    Raises:
        ConfigError: The URL or the schema is wrong.
        StoreUnavailableError: The database cannot be reached or does not exist.
    """
    from tidegate.store.connect import open_store

    if not make:
        require_database(location.url)
    store = open_store(location.url)
    try:
        await store.open()
        async with move_target(location.url) as moved_to:
            warn_if_moved(location.url, await moved_to())
        yield store
    finally:
        await store.close()


def require_database(url: str) -> None:
    """Raise `StoreUnavailableError` if the SQLite file does not exist. PostgreSQL URLs are not checked here.

    Raises:
        ConfigError: The URL names no database.
        StoreUnavailableError: The SQLite file does not exist.
    """
    from tidegate.store.connect import is_postgres, sqlite_path

    if is_postgres(url):
        return
    path = sqlite_path(url)
    if not path.exists():
        raise StoreUnavailableError(
            f"there is no database at {path} yet",
            fix="enqueue a task or start a worker first, or choose another database with --database or --app",
            place=str(path),
        )


@asynccontextmanager
async def move_target(url: str) -> AsyncIterator[Callable[[], Awaitable[str | None]]]:
    """Give the block a function that returns where `tidegate db move` moved the tasks of this database.

    The function returns None if the tasks have not moved.
    """
    from tidegate.store.connect import is_postgres, sqlite_path

    if is_postgres(url):
        yield _not_moved
        return
    from tidegate.store.transfer.source import Source

    source = Source(sqlite_path(url))

    async def moved_to() -> str | None:
        destination = await source.destination()
        return None if destination is None else destination[1]

    try:
        yield moved_to
    finally:
        await source.close()


async def _not_moved() -> str | None:
    return None


def warn_if_moved(url: str, moved_to: str | None) -> None:
    """Warn that the tasks of `url` have moved, and that this file shows their old state."""
    if moved_to is not None:
        print_message(
            f"the tasks of {url} have moved to {moved_to}: this file shows their state before the move"
        )


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine and return its result."""
    import asyncio

    return asyncio.run(work)


# --- options ---------------------------------------------------------------------------------------------


def location_options(command: Command) -> Command:
    """Add `--database` and `--app`; the command receives them as its argument `location`."""

    @functools.wraps(command)
    def with_location(*args: Any, database: str | None, app: str | None, **options: Any) -> Any:
        return command(*args, location=StoreLocation.from_options(database, app), **options)

    decorated: Any = with_location
    decorated = click.option("--app", metavar="MODULE:NAME", help="Use this application's database.")(
        decorated
    )
    decorated = click.option(
        "--database", metavar="URL", help="Use this database instead of the configured one."
    )(decorated)
    result: Command = decorated
    return result


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: lists as one object per line."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="TIDEGATE_LOG_FORMAT",
    expose_value=False,
    callback=lambda _context, _option, value: _use_log_format(value),
    help="Log as text (default) or as one JSON object per line.",
)


def _use_log_format(value: str | None) -> None:
    """Set the log format of this process and its child processes."""
    if value is not None:
        os.environ["TIDEGATE_LOG_FORMAT"] = value
