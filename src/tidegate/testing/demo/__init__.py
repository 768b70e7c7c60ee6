"""The demo: a minute of tasks against a provider that throttles, fails and goes down.

It runs the unchanged example `examples/summarise` with the real commands in separate processes, serves the
HTTP API as well, and kills the whole worker midway. Then the demo compares three records: what it enqueued,
which calls the provider received, and what the store contains. Needs the extra `demo`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tidegate.errors import ConfigError

_NEEDED = ("httpx2", "fastapi", "uvicorn")


def run_demo(
    *, json: bool = False, tasks: int = 300, seconds: float = 60.0, directory: Path | None = None
) -> int:
    """Run the demo, print a report and return the exit code.

    Args:
        json: Print only one JSON object to stdout; progress goes to stderr.
        tasks: How many texts to summarise, 1 or more.
        seconds: About how long the demo takes, 5 or more; times and speeds are scaled to it.
        directory: Where to keep the queue, the call logs and the logs; created if missing. None uses a
            temporary directory, which is removed after a success.

    Returns:
        0: no task was lost, and each ran and was paid only as recorded. 1: something else happened.
        130, 143: interrupted.

    Raises:
        ConfigError: A package that the demo needs is not installed.
        OptionError: A number is out of range.
        TidegateError: A process of the demo did not start.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the demo needs {' and '.join(missing)}: not installed", fix='pip install "tidegate[demo]"'
        )
    from tidegate.testing.demo.command import run_and_report
    from tidegate.testing.demo.plan import DemoPlan

    return run_and_report(DemoPlan.make(tasks, seconds), json=json, directory=directory)
