"""`tidegate top`: a live view of queues, upstreams, workers and failures."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from tidegate.cli.common import StoreLocation, location_options, opened_store, run
from tidegate.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from tidegate.store.overview_rows import TopRow
    from tidegate.store.protocol import Store

REFRESH_SECONDS = 1.0


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@location_options
def command(once: bool, location: StoreLocation) -> None:
    """Watch queues, upstreams, workers and the newest failures, refreshed every second.

    WAIT counts tasks that may start now or as soon as a limit allows. IN/MIN and OUT/MIN count the tasks that
    were enqueued and that became final in the last minute. BY is what limits DRAINS IN. Keys: q ends the
    view, p pauses and resumes it. Without a terminal, one frame is printed.
    """
    run(_top(location, once=once))


async def _top(location: StoreLocation, *, once: bool) -> None:
    try:
        from rich.console import Console
    except ImportError as error:
        raise ConfigError(
            f"the live view needs a package that is not installed: {error}",
            fix='install it: pip install "tidegate[top]"',
        ) from error
    console = Console(highlight=False)
    async with opened_store(location) as store:
        if once or not console.is_terminal:
            console.print(_frame(await _read(store), console, height=None))
        else:
            await _watch(store, console)


async def _read(store: Store) -> TopRow:
    from tidegate.cli.top_frame import FAILURES

    return await store.get_top(failures=FAILURES)


def _frame(found: TopRow, console: Console, *, height: int | None, status: str = "") -> RenderableType:
    from tidegate.cli.top_frame import build_frame

    return build_frame(found, width=console.width, height=height, status=status)


async def _watch(store: Store, console: Console) -> None:
    """Show frames until a key ends the view. If the store cannot be read, keep showing the last frame."""
    from rich.live import Live

    found = await _read(store)
    with Live(console=console, screen=True, auto_refresh=False) as live, _keys() as keys:
        is_paused = False
        problem = ""
        while True:
            status = problem or ("paused (p continues)" if is_paused else "p pauses, q quits")
            _show(live, console, found, status)
            key = await _next_key(keys)
            if key == "q":
                return
            if key == "p":
                is_paused = not is_paused
            elif not is_paused:
                try:
                    found, problem = await _read(store), ""
                except StoreError as error:
                    problem = f"cannot be read: {error}"


def _show(live: Live, console: Console, found: TopRow, status: str) -> None:
    live.update(_frame(found, console, height=console.height, status=status), refresh=True)


async def _next_key(keys: asyncio.Queue[str]) -> str:
    """Return the next key, or an empty text when it is time for the next frame."""
    try:
        async with asyncio.timeout(REFRESH_SECONDS):
            return await keys.get()
    except TimeoutError:
        return ""


@contextmanager
def _keys() -> Iterator[asyncio.Queue[str]]:
    """Read single keys of the terminal. If the terminal cannot deliver them, only Ctrl-C ends the view."""
    keys: asyncio.Queue[str] = asyncio.Queue()
    if find_spec("termios") is None or not sys.stdin.isatty():
        yield keys
        return
    import termios
    import tty

    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        typed = os.read(descriptor, 64)
        if not typed:  # the terminal is gone
            loop.remove_reader(descriptor)
        for key in typed.decode(errors="ignore").lower():
            keys.put_nowait(key)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield keys
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
