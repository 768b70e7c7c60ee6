"""`tidegate version`."""

from __future__ import annotations

import click

from tidegate._version import __version__
from tidegate.cli.common import json_option
from tidegate.cli.output import print_json


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": __version__})
    else:
        click.echo(f"tidegate {__version__}")
