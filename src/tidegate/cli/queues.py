"""`tidegate queues`: list queues, pause and resume them, and wait until one is empty."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.formatting import printable
from tidegate.cli.output import jsonable, print_json, print_message
from tidegate.cli.pauses import resume_named, why_option
from tidegate.cli.status import print_queues
from tidegate.domain.readers import positive_option
from tidegate.domain.text import counted
from tidegate.limits.pauses import PauseKind
from tidegate.operations.overview import read_queues
from tidegate.operations.pauses import current_user, pause, tasks_left, wait_until_drained
from tidegate.store.rows import QueueStats

name_argument = click.argument("name", metavar="QUEUE")


@click.group()
def command() -> None:
    """List queues, pause and resume them, and wait until a queue is empty."""


@command.command("ls")
@location_options
@json_option
def list_command(location: StoreLocation, as_json: bool) -> None:
    """List the queues that have tasks, finished some in the last ten minutes, or are paused."""
    run(_list(location, as_json))


async def _list(location: StoreLocation, as_json: bool) -> None:
    async with opened_store(location) as store:
        queues, now = await read_queues(store), await store.now()
    if as_json:
        for stats in queues:
            print_json(jsonable(stats))
    else:
        print_queues(queues, now)


@command.command("pause")
@name_argument
@why_option
@location_options
def pause_command(name: str, why: str, location: StoreLocation) -> None:
    """Start no more tasks of this queue, in any worker, until it is resumed.

    Running tasks continue, waiting tasks keep their place, and new tasks are accepted. The pause survives all
    restarts.
    """
    run(_pause(location, name, why))


async def _pause(location: StoreLocation, name: str, why: str) -> None:
    async with opened_store(location) as store:
        is_new = await pause(store, PauseKind.QUEUE, name, by=current_user("command line"), why=why)
        stats = next((row for row in await read_queues(store) if row.queue == name), QueueStats(name))
    if not is_new and stats.pause is not None:
        print_message(f"{name}: it was paused already, by {stats.pause.paused_by}")
        return
    waiting = tasks_left(stats) - stats.running
    if waiting == stats.running == stats.scheduled == stats.done_last_10_minutes == 0:
        print_message(f"{name}: paused; no task is or was lately in a queue of this name: check the spelling")
    else:
        print_message(f"{name}: paused; {counted(waiting, 'task')} waiting, {stats.running} still running")


@command.command("resume")
@name_argument
@location_options
def resume_command(name: str, location: StoreLocation) -> None:
    """Let the tasks of this queue start again."""
    run(resume_named(location, PauseKind.QUEUE, name))


@command.command("drain")
@name_argument
@click.option("--timeout", metavar="TIME", help="Give up after this time (exit code 124): 10m.")
@location_options
@json_option
def drain_command(name: str, timeout: str | None, location: StoreLocation, as_json: bool) -> None:
    """Wait until this queue is empty: no task is ready, waits for a retry or runs.

    The command itself changes nothing. Workers run the tasks, and new tasks are still accepted and count too.
    Tasks scheduled for later do not count. First stop the programs that enqueue there. If no task may start
    later, pause the queue after the wait.
    """
    seconds = None if timeout is None else positive_option("--timeout", timeout)
    run(_drain(location, name, seconds, as_json))


async def _drain(location: StoreLocation, name: str, seconds: float | None, as_json: bool) -> None:
    def show(stats: QueueStats) -> None:
        if tasks_left(stats) and not as_json:
            waiting = tasks_left(stats) - stats.running
            reasons = "; ".join(f"{wait.tasks} {wait.kind}: {wait.reason}" for wait in stats.waits)
            words = f"{name}: {counted(waiting, 'task')} waiting, {stats.running} running"
            click.echo(printable(f"{words}{f' ({reasons})' if reasons else ''}"), err=True)

    async with opened_store(location) as store:
        stats = await wait_until_drained(store, name, timeout_seconds=seconds, on_change=show)
    if as_json:
        print_json(stats)
    else:
        print_message(f"{name}: empty")
