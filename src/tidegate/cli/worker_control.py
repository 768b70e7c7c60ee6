"""`tidegate worker quiet`, `resume` and `reload`: control running workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.error_report import FAILED, TIMED_OUT
from tidegate.cli.formatting import printable
from tidegate.cli.output import print_json
from tidegate.cli.values import as_seconds
from tidegate.operations.pauses import current_user
from tidegate.operations.workers import (
    WAIT_SECONDS,
    Change,
    quiet,
    reload,
    resume,
    wait_for_reports,
)
from tidegate.store.controls import RESTARTED, ControlKind
from tidegate.store.protocol import Store

why_option = click.option("--why", default="", metavar="TEXT", help="The reason, for the audit log.")


def wait_option(default: str) -> Callable[[Any], Any]:
    """Return the option `--wait` with this default."""
    return click.option(
        "--wait",
        metavar="SPAN",
        type=as_seconds,
        default=default,
        help=f"How long to wait until the workers have applied the change (0: no wait); default: {default}.",
    )


@click.command("quiet")
@click.argument("name")
@why_option
@wait_option(f"{WAIT_SECONDS:g}s")
@location_options
@json_option
def quiet_command(name: str, why: str, wait: float, location: StoreLocation, as_json: bool) -> int:
    """Let worker NAME claim no more tasks; it finishes running tasks and stays up.

    NAME is the name of a worker in `tidegate status`, for all its processes. The worker stays quiet until it
    is resumed, even after a restart. NAME may also be the id of one process, from `status --json`; that
    process stays quiet until it ends.
    """
    return apply(location, lambda store: quiet(store, name, by=_user(), why=why), wait, as_json=as_json)


@click.command("resume")
@click.argument("name")
@why_option
@wait_option(f"{WAIT_SECONDS:g}s")
@location_options
@json_option
def resume_command(name: str, why: str, wait: float, location: StoreLocation, as_json: bool) -> int:
    """Let a quiet worker or process claim tasks again."""
    return apply(location, lambda store: resume(store, name, by=_user(), why=why), wait, as_json=as_json)


@click.command("reload")
@click.argument("name", required=False)
@why_option
@wait_option("10m")
@location_options
@json_option
def reload_command(name: str | None, why: str, wait: float, location: StoreLocation, as_json: bool) -> int:
    """Restart every process of worker NAME, or of all workers, with the present code on its machine.

    As with SIGHUP, one process after another takes no more tasks, lets running tasks end within the grace
    time, and is replaced by a new process. In pools with `overlap = true` the new process starts first. If
    the new code cannot be loaded, the old code keeps running, and this command prints why (exit code 1).
    """
    return apply(location, lambda store: reload(store, name, by=_user(), why=why), wait, as_json=as_json)


def apply(
    location: StoreLocation, change: Callable[[Store], Awaitable[Change]], wait: float, *, as_json: bool
) -> int:
    """Store a change, wait until the workers have applied it, and print their replies.

    Return the exit code.
    """
    return run(_apply(location, change, wait, as_json=as_json))


async def _apply(
    location: StoreLocation, change: Callable[[Store], Awaitable[Change]], wait: float, *, as_json: bool
) -> int:
    async with opened_store(location) as store:
        stored = await change(store)
        answers = await wait_for_reports(store, stored, wait)
    for words, answer in answers.items():
        if as_json:
            print_json({"worker": words, "answer": answer})
        else:
            click.echo(printable(f"{words}: {answer or 'not applied yet'}"))
    if any(answer is None for answer in answers.values()):
        return TIMED_OUT if wait else 0
    failed = stored.kind is ControlKind.RELOAD and any(each != RESTARTED for each in answers.values())
    return FAILED if failed else 0


def _user() -> str:
    return current_user("command line")
