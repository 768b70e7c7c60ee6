"""`tidegate demo`."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.common import json_option
from tidegate.errors import ConfigError

_EXTRAS = {"h11", "httpx2", "rich"}


@click.command()
@click.option("--tasks", type=click.IntRange(1), default=300, show_default=True, help="Texts to summarise.")
@click.option(
    "--seconds", type=click.FloatRange(5), default=60.0, show_default=True, help="About how long to take."
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to keep queue, ledgers and logs; default: nowhere, if all goes well.",
)
@json_option
def command(tasks: int, seconds: float, directory: Path | None, as_json: bool) -> int:
    """Run a minute of real work against a simulated provider that throttles, fails and goes away.

    A worker is killed midway. Ends with exit code 1 if anything was lost or an invariant broke.
    """
    try:
        from tidegate.testing.demo import run_demo
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        raise ConfigError(
            f"the demo needs {error.name}, which is not installed", fix="pip install 'tidegate[demo]'"
        ) from None
    return run_demo(json=as_json, tasks=tasks, seconds=seconds, directory=directory)
