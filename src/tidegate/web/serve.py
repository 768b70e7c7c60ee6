"""Serving the API alone, as `tidegate web` does."""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

import uvicorn

from tidegate.app import Tidegate
from tidegate.domain.access import Role, digest_of, make_token
from tidegate.errors import ConfigError
from tidegate.internals import core_of
from tidegate.store.access import NewAuditEntry, NewToken
from tidegate.store.connect import is_postgres, sqlite_path
from tidegate.web.app import create_app
from tidegate.web.client_errors import ClientErrorFilter
from tidegate.web.connection_limits import ClientLimits, limited_protocol
from tidegate.web.open_access import is_loopback, non_local_names
from tidegate.web.pages import Pages, demand_pages
from tidegate.web.settings import WebSettings

_CLIENT_ERROR_FILTER = ClientErrorFilter()
GRACE_SECONDS = 5
"""After SIGTERM requests have so long; streams end at once, and their clients come again."""


async def require_access(
    app: Tidegate, host: str, settings: WebSettings, print_line: Callable[[str], None]
) -> bool:
    """Return whether this machine's requests may do without a token; if they may not, there is a good token.

    They may at a loopback address, unless a public host or origin is named: then a proxy serves others. Where
    that is so and no token was ever made, an admin token is made and printed.

    Args:
        app: Whose API.
        host: Address it is served at.
        settings: Hosts and origins, as given.
        print_line: Given lines for people.

    Raises:
        ConfigError: The address can be reached by other machines, and no token is good.
        SchemaError: The schema is not this version's.
        StoreUnavailableError: The store does not answer.
    """
    if not is_loopback(host):
        await _require_token(app, host)
        return False
    names = non_local_names(settings)
    if not names:
        await _demand_store(app)
        return True
    await _make_first_token(app, names, print_line)
    return False


async def _demand_store(app: Tidegate) -> None:
    """Open the database once, so that what is wrong with it is an error of the command."""
    try:
        await core_of(app).opened_store()
    finally:
        await app.aclose()  # a forked or later loop opens it again


async def _require_token(app: Tidegate, host: str) -> None:
    store = await core_of(app).opened_store()
    try:
        now = await store.now()
        tokens = await store.list_tokens()
    finally:
        await app.aclose()  # a forked or later loop opens it again
    good = [
        one for one in tokens if one.revoked_at is None and (one.expires_at is None or one.expires_at > now)
    ]
    if not good:
        raise ConfigError(
            f"the API is not served at {host}, which other machines can reach, without tokens",
            fix="make one: tidegate tokens create NAME --role submitter --tenant NAME",
            host=host,
        )


async def _make_first_token(app: Tidegate, names: Sequence[str], print_line: Callable[[str], None]) -> None:
    store = await core_of(app).opened_store()
    try:
        if await store.list_tokens():
            return
        token_id = secrets.token_hex(5)
        token = make_token(token_id, secrets.token_urlsafe(32))
        # Printed first: a token that is stored but was not shown would be one that nobody can use.
        print_line(
            f"requests need a token, because others reach this API as {', '.join(names)}; none was made yet"
        )
        print_line(f"admin token, shown this once: {token}")
        await store.add_token(NewToken(token_id, digest_of(token), "first start", Role.ADMIN, None))
        answer = f"{Role.ADMIN} of all tenants"
        entry_id = core_of(app).next_id()
        entry = NewAuditEntry(entry_id, "tidegate web", "", None, "token created", token_id, answer)
        await store.add_audit_entries([entry])
    finally:
        await app.aclose()


def serve(
    app: Tidegate,
    *,
    host: str,
    port: int,
    settings: WebSettings,
    print_line: Callable[[str], None],
    clients: ClientLimits | None = None,
    pages: Path | None = None,
) -> None:
    """Serve the API of an application until told to stop (SIGTERM, Ctrl-C).

    Who may do without a token is in the settings: see `require_access`.

    Args:
        app: Whose task functions may be submitted.
        host: Address to listen at.
        port: 0 for a free one.
        settings: Hosts, origins, limits.
        print_line: Given a line for people once it listens.
        clients: What one client may hold; None: the defaults.
        pages: A directory of static pages to serve beside the API; None: none.

    Raises:
        ConfigError: The address cannot be listened at, or the pages may not be served.
    """
    if pages is not None:
        demand_pages(pages, None if is_postgres(app.url) else sqlite_path(app.url))
    listening = _listen(host, port)
    bound = listening.getsockname()[1]
    settings = replace(settings, hosts=(*settings.hosts, *_names(host)))
    api = create_app(app, settings=settings)
    config = uvicorn.Config(
        api if pages is None else Pages(api, pages, settings),
        http=limited_protocol(clients or ClientLimits()),
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws_max_size=65_536,
    )
    shown = f"[{host}]" if ":" in host else host
    print_line(f"the API answers at http://{shown}:{bound}/api/v1")
    if pages is not None:
        print_line(f"the pages of {pages} are at http://{shown}:{bound}/")
    for name in ("uvicorn.error", "websockets.server"):
        logging.getLogger(name).addFilter(_CLIENT_ERROR_FILTER)
    try:
        _UvicornServer(config).run(sockets=[listening])
    finally:
        listening.close()


class _UvicornServer(uvicorn.Server):
    """Ends with status 0 when it was told to stop."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # else it dies of the signal at the end, as if it had failed


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(
            f"cannot listen at {host} port {port}: {error.strerror or error}",
            fix="use another --port, or stop what listens there",
        ) from error


def _names(host: str) -> tuple[str, ...]:
    """Return the names that an address adds to those a request may be for; any address adds none."""
    return () if host in ("0.0.0.0", "::") else (f"[{host.strip('[]')}]" if ":" in host else host,)  # noqa: S104
