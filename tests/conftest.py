"""Fixtures that every room's tests may use."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import folder_times
from tidegate import Tidegate

if TYPE_CHECKING:
    from chromium import Page
    from pgserver import Bouncer, Server


collect_ignore = ["apps/tested_project"]
"""A project of its own, which `test_kit_installed.py` runs with the built package."""
BOUNCED = ("postgres", "tidegate_migrator", "tidegate_worker", "tidegate_reader")
"""The users that may connect through pgbouncer."""
MEMORY = Path("/dev/shm")
ROOM_IN_MEMORY = 3 << 30
"""Bytes; a whole run with four test processes needs less than half of it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    folder_times.add_option(parser)
    parser.addoption(
        "--schedule-seconds", type=float, default=30.0, help="how long the schedules under kills run"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what the tests and the programs that they start inherit."""
    folder_times.register(config)
    undo_ignored_signals()
    if "TMPDIR" not in os.environ and can_hold_temporary_files(MEMORY):
        # Each commit waits for a disk otherwise: the tests of the stores then take twice as long or more.
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a Debian package other than PostgreSQL, so that `make test` installs none."""
    for item in items:
        for fixture, mark in (
            ("devtools", "browser"),
            ("bouncer", "slow"),
            ("fake_clock", "slow"),
            ("narrow", "slow"),
        ):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
        if "pgbouncer" in item.name:  # a back end of the store's contract
            item.add_marker("slow")


def undo_ignored_signals() -> None:
    """Undo what nohup or a background job ignores."""
    if threading.current_thread() is threading.main_thread():
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, usual)


def can_hold_temporary_files(memory: Path) -> bool:
    """Return whether this is a file system in memory with room for them, where programs may be started."""
    try:
        system = os.statvfs(memory)
    except OSError:
        return False
    has_room = system.f_bavail * system.f_frsize >= ROOM_IN_MEMORY
    return has_room and os.access(memory, os.W_OK) and not system.f_flag & os.ST_NOEXEC


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tidegate]:
    from support import make_app

    monkeypatch.setenv("TIDEGATE_SCRATCH", str(tmp_path / "scratch"))
    application = make_app(tmp_path)
    yield application
    await application.aclose()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """This test process's own PostgreSQL server."""
    from pgserver import NotHereError, postgres_server

    try:
        with postgres_server() as started:
            yield started
    except NotHereError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of either kind."""
    from postgres_support import SCHEMA, emptied
    from tidegate.store.postgres.roles import role

    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/queue.db"
    server: Server = request.getfixturevalue("postgres")
    emptied(server)
    return server.url(user=role(SCHEMA, "worker"))


@pytest.fixture(scope="session")
def bouncer(postgres: Server) -> Iterator[Bouncer]:
    """A pgbouncer in transaction mode in front of it."""
    from pgserver import NotHereError, pgbouncer

    try:
        with pgbouncer(postgres, users=BOUNCED) as started:
            yield started
    except NotHereError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def devtools() -> Iterator[str]:
    """This test process's own headless Chromium."""
    from chromium import NoChromiumError, chromium

    try:
        with chromium() as started:
            yield started
    except NoChromiumError as error:
        pytest.skip(str(error))


@pytest.fixture
async def page(devtools: str) -> AsyncIterator[Page]:
    """A page in it, with no storage or cookies of other tests."""
    from chromium import new_page

    async with new_page(devtools) as opened:
        yield opened
