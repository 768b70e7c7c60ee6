"""`tidegate dead resolve`, `dead mute` and `dead reopen`: the states of groups of failures."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tidegate.cli.common import StoreLocation, location_options, opened_store, run
from tidegate.cli.output import print_message
from tidegate.operations import failure_groups
from tidegate.operations.pauses import current_user

_WHO = "command line"
_note_option = click.option("--note", default="", metavar="TEXT", help="The reason, for the next person.")
_fingerprints = click.argument("fingerprints", metavar="FINGERPRINT...", nargs=-1, required=True)


@click.command("resolve")
@_fingerprints
@_note_option
@location_options
def resolve_command(fingerprints: Sequence[str], note: str, location: StoreLocation) -> None:
    """Mark groups of failures as resolved. A group opens again when another task dies of it.

    FINGERPRINT is the one that `tidegate dead groups` shows, or its first digits. The dead letters stay:
    `tidegate dead redrive --fingerprint FINGERPRINT` sends them back.
    """

    async def resolve() -> None:
        async with opened_store(location) as store:
            for each in fingerprints:
                found = await failure_groups.resolve(store, each, by=current_user(_WHO), note=note)
                print_message(f"{found}: resolved")

    run(resolve())


@click.command("mute")
@_fingerprints
@click.option("--for", "duration", metavar="DURATION", help="Open the group again after this time (8h, 7d).")
@_note_option
@location_options
def mute_command(
    fingerprints: Sequence[str], duration: str | None, note: str, location: StoreLocation
) -> None:
    """Mute groups of failures, for ever or for a time.

    Their deaths are counted, but the alert about a surge of deaths leaves them out, and the daily summary
    does not list the groups as unresolved.
    """

    async def mute() -> None:
        async with opened_store(location) as store:
            for each in fingerprints:
                found = await failure_groups.mute(
                    store, each, by=current_user(_WHO), note=note, duration=duration
                )
                print_message(f"{found}: muted" + (f" for {duration}" if duration else ""))

    run(mute())


@click.command("reopen")
@_fingerprints
@location_options
def reopen_command(fingerprints: Sequence[str], location: StoreLocation) -> None:
    """Open groups of failures that were resolved or muted."""

    async def reopen() -> None:
        async with opened_store(location) as store:
            for each in fingerprints:
                done = await failure_groups.reopen(store, each)
                print_message(f"{each}: {'open' if done else 'it was open'}")

    run(reopen())
