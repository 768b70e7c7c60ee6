"""`tidegate demo`: run tasks against a simulated provider that fails."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.common import json_option
from tidegate.errors import ConfigError

_EXTRAS = {"httpx2", "rich", "starlette", "uvicorn"}


@click.command()
@click.option(
    "--tasks", type=click.IntRange(1), default=300, show_default=True, help="How many texts to summarise."
)
@click.option(
    "--seconds",
    type=click.FloatRange(5),
    default=60.0,
    show_default=True,
    help="The approximate length of the demo.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the database and the logs in this folder; by default they are kept only after a failure.",
)
@json_option
def command(tasks: int, seconds: float, directory: Path | None, as_json: bool) -> int:
    """Run a minute of tasks against a simulated provider that throttles, fails and goes down.

    The demo also kills a worker midway. Exit code 1 if a task was lost, or ran or was paid for twice without
    a recorded reason.
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
