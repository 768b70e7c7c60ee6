"""`tidegate web`: serve the HTTP API of an application until SIGTERM or Ctrl-C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from tidegate.cli.common import app_reference, log_format_option, run
from tidegate.cli.output import print_message
from tidegate.config import load_config
from tidegate.domain.links import LinkSettings
from tidegate.errors import ConfigError
from tidegate.internals import core_of

DEFAULT_PORT = 4180


@click.command()
@click.argument("app", metavar="[APP]", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=DEFAULT_PORT,
    show_default=True,
    type=click.IntRange(0, 65_535),
    help="0 chooses a free port.",
)
@log_format_option
@click.option(
    "--host-name",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name under which clients reach this API. Repeatable.",
)
@click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="A site whose pages may call this API. Repeatable.",
)
@click.option(
    "--connections-per-address",
    "connections",
    default=1_000,
    show_default=True,
    type=click.IntRange(0),
    help="The most open connections per client address; 0: no limit. Loopback addresses are not limited.",
)
@click.option(
    "--pages",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also serve the static pages in DIR to everybody, without a token.",
)
def command(
    app: str | None,
    host: str,
    port: int,
    hosts: Sequence[str],
    origins: Sequence[str],
    connections: int,
    pages: Path | None,
) -> None:
    """Serve the HTTP API of APP (MODULE:NAME).

    On a loopback address (the default), requests from this machine need no token until you create the first
    token. Requests through a proxy always need a token. With --host-name or --origin, every request needs a
    token, and the first start prints an admin token. On any other address, create tokens first: see `tidegate
    tokens`. Requests for any other host name are refused.
    """
    try:
        from tidegate.web.connection_limits import ClientLimits
        from tidegate.web.serve import require_access, serve
        from tidegate.web.settings import WebSettings
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", fix="pip install 'tidegate[server]'") from error
    from tidegate.worker import signals
    from tidegate.worker.application import load_application
    from tidegate.worker.logs import register_application_loggers, set_up_logging

    signals.reset_inherited_signals()
    set_up_logging(app_reference(app))
    application = load_application(app_reference(app))
    register_application_loggers(core_of(application).functions)
    settings = WebSettings(
        hosts=(*hosts, *_link_host(core_of(application).links)),
        origins=tuple(origins),
        alerts=load_config().alerts,
    )
    is_open = run(require_access(application, host, settings, print_message))
    settings = replace(settings, open_without_tokens=is_open)
    clients = ClientLimits(per_address=connections)
    serve(
        application,
        host=host,
        port=port,
        settings=settings,
        print_line=print_message,
        clients=clients,
        pages=pages,
    )


def _link_host(links: LinkSettings | None) -> tuple[str, ...]:
    """Return the host of the links of approvals, which lead here; empty if links are not configured."""
    host = None if links is None else urlsplit(links.url).hostname
    return () if host is None else (f"[{host}]" if ":" in host else host,)
