"""`tidegate metrics`: print the metrics in Prometheus' text format."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, location_options, opened_store, run
from tidegate.errors import ConfigError


@click.command()
@location_options
def command(location: StoreLocation) -> None:
    """Print the metrics in Prometheus' text format, as GET /metrics of `tidegate web` does.

    For a quick check, or for the textfile collector of Prometheus' node exporter where no `tidegate web`
    runs.
    """
    run(_print(location))


async def _print(location: StoreLocation) -> None:
    try:
        from tidegate.monitor.exposition import expose
    except ImportError as error:
        raise ConfigError(
            f"the metrics need packages that are not installed: {error}",
            fix='install them: pip install "tidegate[server]"',
        ) from error
    from tidegate.monitor.reading import read_metrics

    async with opened_store(location) as store:
        reading = await read_metrics(store, location.pools)
    click.echo(expose(reading).body.decode(), nl=False)
