"""What commands share: options, and the way to an application and a store."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
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
    from tidegate.core import Core

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Which store a command works on."""

    url: str
    application: Core | None = None
    """The internals of the one named by `--app`; None: it was not given."""

    @classmethod
    def from_options(cls, database: str | None, app: str | None) -> StoreLocation:
        """Return the place options name: `--database`, else that of `--app`, else the configured one."""
        application = None if app is None else load_app(app)
        if database is None:
            database = load_config().database_url if application is None else application.url
        return cls(database, application)


def load_app(reference: str | None) -> Core:
    """Import an application by its reference, and return its internals; None: the configured one.

    Raises:
        ConfigError: None is configured, or it cannot be imported.
    """
    from tidegate.worker.application import load_application

    core: Core = core_of(load_application(app_reference(reference)))
    return core


def app_reference(reference: str | None) -> str:
    """Return the reference given, else the configured one.

    Raises:
        ConfigError: There is neither.
    """
    config = load_config()
    if config.path is not None:
        _make_importable(config.path.parent)
    found = reference or config.app
    if found is None:
        raise ConfigError(
            "no application is named",
            fix='name it as MODULE:NAME, set TIDEGATE_APP, or write app = "app:app" into tidegate.toml',
        )
    return found


def _make_importable(directory: Path) -> None:
    """Let this process and its children import from the project's directory, also when started below it."""
    place = str(directory.absolute())
    if place not in (os.getcwd(), *sys.path):  # noqa: PTH109 - sys.path holds text
        sys.path.insert(0, place)
        known = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (place, known)))


@asynccontextmanager
async def opened_store(location: StoreLocation, *, make: bool = False) -> AsyncIterator[Store]:
    """Open the store for the block.

    Args:
        location: Which.
        make: Whether a database that is not there yet is made. Commands that only look never make one: an
            empty answer would hide that they look in the wrong place.

    Raises:
        ConfigError: The URL or the schema is wrong.
        StoreUnavailableError: It cannot be reached, or is not there.
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
    """Return if a database's file is there; whether a server is, only asking it tells.

    Raises:
        ConfigError: The URL names no database.
        StoreUnavailableError: The file is not there.
    """
    from tidegate.store.connect import is_postgres, sqlite_path

    if is_postgres(url):
        return
    path = sqlite_path(url)
    if not path.exists():
        raise StoreUnavailableError(
            f"there is no database at {path} yet",
            fix="enqueue a task or start a worker first, or name the database with --database or --app",
        )


@asynccontextmanager
async def move_target(url: str) -> AsyncIterator[Callable[[], Awaitable[str | None]]]:
    """Give the block what tells where `tidegate db move` has taken a file's tasks; None: they are there."""
    from tidegate.store.connect import is_postgres, sqlite_path

    if is_postgres(url):
        yield _not_moved
        return
    from tidegate.store.transfer.source import Source

    source = Source(sqlite_path(url))

    async def moved_to() -> str | None:
        goal = await source.destination()
        return None if goal is None else goal[1]

    try:
        yield moved_to
    finally:
        await source.close()


async def _not_moved() -> str | None:
    return None


def warn_if_moved(url: str, place: str | None) -> None:
    """Say of a file whose tasks have moved to `place` that what is shown of it is from before."""
    if place is not None:
        print_message(f"the tasks of {url} have moved to {place}: what this file shows is from before")


async def known_functions(store: Store, location: StoreLocation) -> frozenset[str]:
    """Return the functions declared by the applications the store has seen, and by the one of `--app`."""
    from tidegate.deadletter.redrive import declared_functions

    declared = await declared_functions(store)
    return declared if location.application is None else declared | frozenset(location.application.functions)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end."""
    import asyncio

    return asyncio.run(work)


# --- options ---------------------------------------------------------------------------------------------


def location_options(command: Command) -> Command:
    """Add `--database` and `--app`; the command gets them as `location`."""

    @functools.wraps(command)
    def with_location(*args: Any, database: str | None, app: str | None, **options: Any) -> Any:
        return command(*args, location=StoreLocation.from_options(database, app), **options)

    decorated: Any = with_location
    decorated = click.option("--app", metavar="MODULE:NAME", help="Use this application's database.")(
        decorated
    )
    decorated = click.option("--database", metavar="URL", help="Use this one, not the configured one.")(
        decorated
    )
    result: Command = decorated
    return result


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON; lists as one object a line.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="TIDEGATE_LOG_FORMAT",
    expose_value=False,
    callback=lambda _context, _option, value: _use_log_format(value),
    help="Lines of text (default), or a JSON object a line.",
)


def _use_log_format(value: str | None) -> None:
    """Choose the form of log lines of this process and those it starts."""
    if value is not None:
        os.environ["TIDEGATE_LOG_FORMAT"] = value
