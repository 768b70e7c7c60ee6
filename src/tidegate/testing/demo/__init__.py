"""The demo: a minute of real work against a provider that throttles, fails and goes away.

It runs the example `examples/summarise` as it is, by the real commands in processes of their own, serves
the HTTP API beside it, kills the whole worker midway, and then holds three accounts against each other: what
it enqueued, what the bodies wrote down, and what the store says. Needs the extra `demo`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tidegate.errors import ConfigError

_NEEDED = ("httpx2", "h11", "fastapi", "uvicorn")


def run_demo(
    *, json: bool = False, tasks: int = 300, seconds: float = 60.0, directory: Path | None = None
) -> int:
    """Run the demo and print how it ended; return the exit code.

    Args:
        json: Print one JSON object on stdout and nothing else there; progress goes to stderr.
        tasks: How many texts are summarised, 1 or more.
        seconds: About how long it shall take, 5 or more; moments and speeds are scaled to it.
        directory: Where queue, ledgers and logs are kept, made if missing; None: a temporary one, which is
            removed if all went well.

    Returns:
        0: nothing was lost and every invariant held. 1: not so. 130, 143: interrupted.

    Raises:
        ConfigError: Something the demo needs is not installed.
        OptionError: A number cannot work.
        TidegateError: A process of the demo did not start.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the demo needs {' and '.join(missing)}, not installed here", fix='pip install "tidegate[demo]"'
        )
    from tidegate.testing.demo.command import run_and_report
    from tidegate.testing.demo.plan import DemoPlan

    return run_and_report(DemoPlan.make(tasks, seconds), json=json, directory=directory)
