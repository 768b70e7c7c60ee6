"""`python -m tidegate.testing.provider`: run the simulated provider in its own process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import click

from tidegate.errors import OptionError
from tidegate.testing.provider import Outage, ProviderSettings, SimulatedProvider
from tidegate.testing.provider.outages import OUTAGE_KINDS


def _all_outages(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> tuple[Outage, ...]:
    """Read outages written as `start:end` or `start:end:kind`."""
    return tuple(_outage(text) for text in texts)


def _outage(text: str) -> Outage:
    start, _, rest = text.partition(":")
    end, _, word = rest.partition(":")
    kind = next((known for known in OUTAGE_KINDS if known == (word or "503")), None)
    try:
        if kind is None:
            raise OptionError(f"no kind of outage: {word!r}", fix=f"one of {', '.join(OUTAGE_KINDS)}")
        return Outage(float(start), float(end), kind)
    except (ValueError, OptionError) as error:
        raise click.BadParameter(f"{text!r}: {error}") from error


@click.command(context_settings={"show_default": True})
@click.option("--port", default=0, help="Port on 127.0.0.1; 0 chooses a free one.")
@click.option("--ledger", "ledger_path", default="", help="SQLite file of the ledger; none: in memory.")
@click.option("--rpm", "requests_per_minute", type=int, help="Requests per minute; none: no limit.")
@click.option("--tpm", "tokens_per_minute", type=int, help="Tokens per minute; none: no limit.")
@click.option("--rpm-burst", "requests_burst", type=int, help="Requests at once; none: as --rpm.")
@click.option("--tpm-burst", "tokens_burst", type=int, help="Tokens at once; none: as --tpm.")
@click.option("--window", "window_seconds", default=60.0, help="Seconds that the minute of a limit lasts.")
@click.option("--latency", "latency_seconds", default=0.0, help="Mean seconds to a response.")
@click.option("--jitter", "latency_jitter", default=0.2, help="Share by which the latency varies.")
@click.option("--tokens-per-second", type=float, help="Speed of a stream; none: all at once.")
@click.option("--overload", "overload_probability", default=0.0, help="Share of calls that meet an overload.")
@click.option("--overload-status", "overload_statuses", type=int, multiple=True, default=(503,))
@click.option(
    "--outage",
    "outages",
    multiple=True,
    callback=_all_outages,
    metavar="START:END[:KIND]",
    help=f"Seconds from the start, and one of {', '.join(OUTAGE_KINDS)}.",
)
@click.option(
    "--blocked-phrase", "blocked_phrases", multiple=True, help="Phrase that the content policy refuses."
)
@click.option("--context-window", default=128_000, help="Tokens a prompt may have.")
@click.option("--api-key", "api_keys", multiple=True, help="An accepted key; none: any.")
@click.option("--model", "models", multiple=True, help="A known model; none: any.")
@click.option("--budget-calls", type=int, help="Billed calls the account can pay; none: any number.")
@click.option("--honour-idempotency", is_flag=True, help="Answer a repeated Idempotency-Key for free.")
@click.option("--seed", default=0, help="Of latency and overload.")
def main(**options: Any) -> None:
    """Serve until SIGTERM or SIGINT. Prints one JSON line with `url` and `pid` when ready."""
    if not options["blocked_phrases"]:
        del options["blocked_phrases"]
    try:
        settings = ProviderSettings(**options)
        asyncio.run(_serve(settings))
    except (OptionError, OSError) as error:
        raise click.ClickException(str(error)) from error


async def _serve(settings: ProviderSettings) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with SimulatedProvider(settings) as provider:
        click.echo(json.dumps({"url": provider.url, "pid": os.getpid()}))
        await stopping.wait()
    provider.ledger.close()


if __name__ == "__main__":
    main(prog_name="python -m tidegate.testing.provider")
