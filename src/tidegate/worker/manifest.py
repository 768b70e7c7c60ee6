"""Asks an application what it declares, in a short-lived process: the supervisor imports no user code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tidegate.errors import ConfigError, TidegateError
from tidegate.worker.application import load_application
from tidegate.worker.process import pool_from_plain, pool_to_plain
from tidegate.worker.settings import Pool, Timings


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an application declares, as plain values."""

    application: str
    database_url: str
    pools: tuple[Pool, ...]
    timings: Timings
    functions: dict[str, Any]
    body: dict[str, Any]
    """To be kept in the store."""


def read_manifest(application: str, database_url: str | None = None) -> Manifest:
    """Import the application in a child process and return what it declares.

    Args:
        application: `module:attribute`.
        database_url: Overrides the application's own, as `TIDEGATE_DATABASE_URL` does.

    Raises:
        ConfigError: It cannot be imported; the child's traceback went to standard error.
    """
    env = os.environ | ({"TIDEGATE_DATABASE_URL": database_url} if database_url else {})
    reading, writing = os.pipe()
    try:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
            [sys.executable, "-m", "tidegate.worker.manifest", application, str(writing)],
            stdin=subprocess.DEVNULL,
            pass_fds=[writing],
            env=env,
        )
    finally:
        os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    child.wait()
    if child.returncode != 0 or not text:
        raise ConfigError(f"the application {application} cannot be loaded", fix="see its traceback above")
    plain = json.loads(text)
    return Manifest(
        application=application,
        database_url=database_url or plain["database_url"],
        pools=tuple(pool_from_plain(pool) for pool in plain["pools"]),
        timings=Timings(**plain["timings"]),
        functions=plain["body"]["functions"],
        body=plain["body"],
    )


def _write(application: str, fd: int) -> int:
    try:
        app = load_application(application)
    except TidegateError as error:
        import traceback

        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(error, file=sys.stderr)  # noqa: T201 - the supervisor's standard error is ours
        return 78
    timings = {name: getattr(app.timings, name) for name in Timings.__dataclass_fields__}
    plain = {
        "database_url": app.url,
        "pools": [pool_to_plain(pool) for pool in app.pools],
        "timings": timings,
        "body": app.manifest(),
    }
    with os.fdopen(fd, "w") as answer:
        json.dump(plain, answer)
    return 0


if __name__ == "__main__":
    sys.exit(_write(sys.argv[1], int(sys.argv[2])))
