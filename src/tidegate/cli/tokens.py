"""`tidegate tokens`: create, list and revoke the tokens of the HTTP API."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.error_report import NOT_FOUND
from tidegate.cli.formatting import moment
from tidegate.cli.output import print_json, print_message
from tidegate.cli.table import print_table
from tidegate.cli.values import as_seconds
from tidegate.domain.access import Role, digest_of, make_token
from tidegate.domain.readers import name_option
from tidegate.operations.pauses import current_user, record
from tidegate.store.access import NewToken, TokenRow
from tidegate.store.protocol import Store

_ROLES = click.Choice([role.value for role in Role])


@click.group("tokens")
def command() -> None:
    """Create, list and revoke tokens for the HTTP API. The store keeps only digests of tokens."""


@command.command("create")
@click.argument("name")
@click.option("--role", required=True, type=_ROLES, help="What the token may do; see the list above.")
@click.option("--tenant", metavar="NAME", help="Limit the token to the tasks of this tenant.")
@click.option(
    "--all-tenants",
    is_flag=True,
    help="Give access to the tasks of all tenants; tasks it submits have no tenant.",
)
@click.option(
    "--expires",
    metavar="SPAN",
    type=as_seconds,
    help="How long the token is valid: 30d. Default: for ever.",
)
@location_options
@json_option
def create_command(
    name: str,
    role: str,
    tenant: str | None,
    all_tenants: bool,
    expires: float | None,
    location: StoreLocation,
    as_json: bool,
) -> None:
    r"""Create a token and print it. The token cannot be shown again.

    \b
    submitter  submits tasks; reads, follows and cancels them by id. For front ends.
    viewer     reads everything but the audit log
    operator   all that, and retries, redrives, purges; may choose queue and priority
    admin      everything
    """
    if (tenant is None) != all_tenants:
        raise click.UsageError("give --tenant NAME or --all-tenants")
    tenant = None if tenant is None else name_option("tenant", tenant)
    run(_create(location, name_option("name", name), Role(role), tenant, expires, as_json))


async def _create(
    location: StoreLocation, name: str, role: Role, tenant: str | None, expires: float | None, as_json: bool
) -> None:
    token_id = secrets.token_hex(5)
    token = make_token(token_id, secrets.token_urlsafe(32))
    async with opened_store(location, make=True) as store:
        await _record(store, "token created", token_id, f"{role} of {tenant or 'all tenants'}")
        await store.add_token(NewToken(token_id, digest_of(token), name, role, tenant, expires))
        try:
            _show(token_id, token, role, tenant, as_json=as_json)
        except BaseException:  # this token was not printed, so it must not stay valid
            await store.revoke_token(token_id)
            raise


def _show(token_id: str, token: str, role: Role, tenant: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": token_id, "token": token, "role": role, "tenant": tenant})
    else:
        click.echo(token)
    sys.stdout.flush()
    if not as_json:
        print_message("store this token now: it is not shown again")


@command.command("ls")
@location_options
@json_option
def ls_command(location: StoreLocation, as_json: bool) -> None:
    """List all tokens, including expired and revoked tokens, without their secrets."""
    run(_list(location, as_json))


async def _list(location: StoreLocation, as_json: bool) -> None:
    async with opened_store(location) as store:
        rows, now = await store.list_tokens(), await store.now()
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ["ID", "NAME", "ROLE", "TENANT", "CREATED", "STATE"],
        [
            [row.id, row.name, row.role, row.tenant or "(all)", moment(row.created_at), _state(row, now)]
            for row in rows
        ],
    )


@command.command("revoke")
@click.argument("token_ids", metavar="ID...", nargs=-1, required=True)
@location_options
def revoke_command(token_ids: Sequence[str], location: StoreLocation) -> int:
    """Revoke tokens permanently. A running API may accept them for 2 s more."""
    return run(_revoke(location, token_ids))


async def _revoke(location: StoreLocation, token_ids: Sequence[str]) -> int:
    code = 0
    async with opened_store(location) as store:
        for token_id in token_ids:
            was_there = await store.revoke_token(token_id)
            if was_there:
                await _record(store, "token revoked", token_id, "revoked")
            else:
                code = NOT_FOUND
            click.echo(f"{token_id}  {'revoked' if was_there else 'unknown'}")
    return code


async def _record(store: Store, action: str, token_id: str, answer: str) -> None:
    await record(store, current_user("command line"), action, token_id, answer)


def _state(row: TokenRow, now: float) -> str:
    if row.revoked_at is not None:
        return "revoked"
    if row.expires_at is None:
        return "valid"
    return f"valid until {moment(row.expires_at)}" if row.expires_at > now else "expired"
