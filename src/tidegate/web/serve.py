"""Serves the API in a process of its own, as `tidegate web` does."""

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
from tidegate.web.pages import Pages, require_servable
from tidegate.web.settings import WebSettings

_CLIENT_ERROR_FILTER = ClientErrorFilter()
GRACE_SECONDS = 5
"""How long requests may take after SIGTERM. Streams end at once, and their clients reconnect."""


async def require_access(
    app: Tidegate, host: str, settings: WebSettings, print_line: Callable[[str], None]
) -> bool:
    """Return whether requests from this machine need no token; otherwise make sure that a valid token exists.

    Such requests need no token on a loopback address, unless `settings` name a public host or origin: then a
    proxy passes on requests of others. In that case, if no token was ever created, create an admin token and
    print it.

    Args:
        app: The application whose API is served.
        host: The address to listen on.
        settings: Hosts and origins.
        print_line: Prints a line for the user.

    Raises:
        ConfigError: Other machines can reach the address, and there is no valid token.
        SchemaError: The schema does not fit this version.
        StoreUnavailableError: The store does not answer.
    """
    if not is_loopback(host):
        await _require_token(app, host)
        return False
    names = non_local_names(settings)
    if not names:
        await _check_store(app)
        return True
    await _make_first_token(app, names, print_line)
    return False


async def _check_store(app: Tidegate) -> None:
    """Open the store once, so that the command fails early if the database cannot be used."""
    try:
        await core_of(app).opened_store()
    finally:
        await app.aclose()  # a forked process or a later event loop opens it again


async def _require_token(app: Tidegate, host: str) -> None:
    store = await core_of(app).opened_store()
    try:
        now = await store.now()
        tokens = await store.list_tokens()
    finally:
        await app.aclose()  # a forked process or a later event loop opens it again
    if not any(
        token.revoked_at is None and (token.expires_at is None or token.expires_at > now) for token in tokens
    ):
        raise ConfigError(
            f"other machines can reach {host}, so the API needs a token first",
            fix="create one: tidegate tokens create NAME --role submitter --tenant NAME",
            place=host,
        )


async def _make_first_token(app: Tidegate, names: Sequence[str], print_line: Callable[[str], None]) -> None:
    store = await core_of(app).opened_store()
    try:
        if await store.list_tokens():
            return
        token_id = secrets.token_hex(5)
        token = make_token(token_id, secrets.token_urlsafe(32))
        # Print the token before it is stored: nobody could use a stored token that was never shown.
        print_line(
            f"requests need a token, because others reach this API as {', '.join(names)}; there is none yet"
        )
        print_line(f"created an admin token; it is not shown again: {token}")
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
    """Serve the API of an application until SIGTERM or Ctrl-C.

    The settings say which requests need no token; see `require_access`.

    Args:
        app: The application whose task functions may be submitted.
        host: The address to listen on.
        port: The port to listen on; 0 chooses a free one.
        settings: Hosts, origins and limits.
        print_line: Prints a line for the user once the server listens.
        clients: Limits for each client; None for the defaults.
        pages: A directory of static pages to serve with the API; None for no pages.

    Raises:
        ConfigError: The server cannot listen on the address, or the pages may not be served.
    """
    if pages is not None:
        require_servable(pages, None if is_postgres(app.url) else sqlite_path(app.url))
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
    """Exits with status 0 after SIGTERM."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        # otherwise uvicorn ends by raising the signal again, as if it had failed
        self._captured_signals.clear()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            fix="use another --port, or stop the program that uses this one",
        ) from error
    # Connections inherit this option. asyncio sets it only for sockets that name their protocol. Without it,
    # each body waits until the client acknowledges the head of the response.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _names(host: str) -> tuple[str, ...]:
    """Return the host names that requests to this address may use; a wildcard address adds none."""
    return () if host in ("0.0.0.0", "::") else (f"[{host.strip('[]')}]" if ":" in host else host,)  # noqa: S104
