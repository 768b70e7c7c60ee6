"""Reads what an application declares, in a short-lived process: the supervisor must import no user code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

from tidegate.domain.retention import Retention, retention_from_dict, retention_to_dict
from tidegate.errors import ConfigError, TidegateError
from tidegate.internals import core_of
from tidegate.schedule.declared import ScheduleSet
from tidegate.worker.application import Application, load_application
from tidegate.worker.engine.pool_main import pool_from_dict, pool_to_dict
from tidegate.worker.settings import Pool, Timings


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an application declares, as plain values."""

    application: str
    database_url: str
    pools: tuple[Pool, ...]
    timings: Timings
    retention: Retention
    functions: dict[str, Any]
    content: dict[str, Any]
    """The whole manifest, to be saved in the store."""
    schedule_set: ScheduleSet
    """The schedules that the application declares."""


async def read_manifest(application: str, database_url: str | None = None) -> Manifest:
    """Import the application in a child process and return what it declares.

    At the end, also after a cancellation, the child process and its whole process group are killed.

    Args:
        application: `module:attribute`.
        database_url: Overrides the application's own, as `TIDEGATE_DATABASE_URL` does.

    Raises:
        ConfigError: The application cannot be imported (the child's traceback went to standard error), or it
            names a database of its own, which cannot be overridden.
    """
    env = os.environ | ({"TIDEGATE_DATABASE_URL": database_url} if database_url else {})
    # A file, not a pipe: processes that the application starts during its import would keep a pipe open.
    with tempfile.TemporaryFile() as answer:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tidegate.worker.supervisor.manifest",
            application,
            str(answer.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[answer.fileno()],
            env=env,
            start_new_session=True,  # Ctrl-C must reach only this process
        )
        try:
            await child.wait()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        answer.seek(0)
        text = answer.read()
    if child.returncode != 0 or not text:
        raise ConfigError(f"the application {application} cannot be loaded", fix="see the error above")
    plain = json.loads(text)
    if database_url is not None and plain["database_url"] != database_url:
        raise ConfigError(
            f"{application} names its own database ({plain['database_url']}), not {database_url}",
            fix="leave the URL out of Tidegate(…), so that options and TIDEGATE_DATABASE_URL can set it",
        )
    return Manifest(
        application=application,
        database_url=plain["database_url"],
        pools=tuple(pool_from_dict(pool) for pool in plain["pools"]),
        timings=Timings(**plain["timings"]),
        retention=retention_from_dict(plain["retention"]),
        functions=plain["content"]["functions"],
        content=plain["content"],
        schedule_set=ScheduleSet.from_manifest(application, plain["content"]),
    )


def _write(application: str, fd: int) -> int:
    try:
        app: Application = core_of(load_application(application))
    except TidegateError as error:
        import traceback

        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(error, file=sys.stderr)  # noqa: T201 - the supervisor's standard error is ours
        return 78
    timings = {name: getattr(app.timings, name) for name in Timings.__dataclass_fields__}
    plain = {
        "database_url": app.url,
        "pools": [pool_to_dict(pool) for pool in app.pools],
        "timings": timings,
        "retention": retention_to_dict(app.retention),
        "content": app.manifest(),
    }
    with os.fdopen(fd, "w") as answer:
        json.dump(plain, answer)
    return 0


if __name__ == "__main__":
    code = 1
    try:
        code = _write(sys.argv[1], int(sys.argv[2]))
    except SystemExit as left:
        print(f"{sys.argv[1]} called sys.exit({left.code!r})", file=sys.stderr)  # noqa: T201
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)  # threads that the application started must not keep the process alive
