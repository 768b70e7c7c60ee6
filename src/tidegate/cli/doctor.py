"""`tidegate doctor`: find problems in this installation and suggest fixes."""

from __future__ import annotations

import platform
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from tidegate.cli.common import json_option, load_app, run
from tidegate.cli.error_report import FAILED
from tidegate.cli.formatting import format_duration, printable
from tidegate.cli.output import print_json, style
from tidegate.config import Config, load_config
from tidegate.domain.ids import IdMaker
from tidegate.domain.redaction import redact
from tidegate.domain.spec import Priority
from tidegate.domain.text import counted
from tidegate.errors import TidegateError
from tidegate.store.live_workers import is_live
from tidegate.store.protocol import Store
from tidegate.store.rows import NewTask
from tidegate.store.worker_rows import WorkerRow
from tidegate.task import TaskFunction
from tidegate.worker.settings import Timings, drain_grace

_SLOW_COMMIT_SECONDS = 0.05
_COMMITS = 5
_SKEW_SECONDS = 1.0
_HEALTH_TIMEOUT_SECONDS = 2.0


class CheckLevel(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


_STYLES = {CheckLevel.OK: "green", CheckLevel.WARN: "yellow", CheckLevel.FAIL: "red"}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check."""

    level: CheckLevel
    name: str
    detail: str
    fix: str = ""


@click.command()
@click.option("--app", metavar="MODULE:NAME", help="The application; default: the configured one.")
@click.option("--database", metavar="URL", help="Use this database instead of the configured one.")
@json_option
def command(app: str | None, database: str | None, as_json: bool) -> int:
    """Check Python, SQLite, configuration, application, database, clock, workers, disk and local services.

    With PostgreSQL, also check its version, connections, role, pooler, durability and vacuum.

    Exit code 1 if a check fails; a warning does not change the exit code.
    """
    findings = list(examine(app, database))
    failed = any(finding.level is CheckLevel.FAIL for finding in findings)
    if as_json:
        print_json({"healthy": not failed, "checks": findings})
    else:
        for finding in findings:
            fix = f" → {finding.fix}" if finding.fix else ""
            level = style(f"{finding.level.value:<4}", _STYLES[finding.level])
            click.echo(f"{level}  {finding.name:<11}  {printable(redact(finding.detail + fix))}")
    return FAILED if failed else 0


def examine(app: str | None, database: str | None) -> Iterator[CheckResult]:
    """Yield the result of every check that can run.

    Fix the first failure first, because it may cause the others.
    """
    yield CheckResult(
        CheckLevel.OK, "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    yield check_sqlite()
    try:
        config = load_config()
    except TidegateError as error:
        yield _failed("config", error)
        return
    yield CheckResult(
        CheckLevel.OK,
        "config",
        str(config.path.name if config.path else "defaults: there is no tidegate.toml"),
    )
    yield from _check_pools(config)
    url = database or config.database_url
    reference = app or config.app
    application = None
    if reference is None:
        yield CheckResult(
            CheckLevel.WARN, "app", "none is configured", 'write app = "app:app" into tidegate.toml'
        )
    else:
        try:
            application = load_app(reference)
        except TidegateError as error:
            yield _failed("app", error)
        else:
            yield CheckResult(
                CheckLevel.OK, "app", f"{reference}, task functions: {len(application.functions)}"
            )
            url = database or application.url
            yield check_stop(config.timings, application.functions.values())
    yield from _check_database(url, application)
    yield from _check_services(url)


def check_stop(timings: Timings, functions: Iterable[TaskFunction[Any, Any, Any]]) -> CheckResult:
    """Check whether running tasks have enough time to finish after SIGTERM."""
    timeouts = [function.spec.timeout for function in functions]
    grace, longest = drain_grace(timings, timeouts), max(timeouts, default=0.0)
    detail = f"running tasks have {format_duration(grace)} to finish after SIGTERM"
    if longest <= grace:
        return CheckResult(CheckLevel.OK, "stopping", detail)
    return CheckResult(
        CheckLevel.OK,
        "stopping",
        f"{detail}, then they are released; the longest timeout is {format_duration(longest)}",
        "to finish long calls, raise drain_grace together with the platform's limit "
        "(Kubernetes: terminationGracePeriodSeconds, 30 s; systemd: TimeoutStopSec, 90 s)",
    )


def check_sqlite(version: str | None = None) -> CheckResult:
    """Check that SQLite does not have the bug through which several writers can corrupt a file in WAL mode.

    SQLite 3.7.0 to 3.51.2 have the bug; 3.51.3 and 3.53.0 fixed it. Source: https://sqlite.org/wal.html

    Args:
        version: The SQLite version; None checks the one in use.
    """
    if version is None:
        import apsw

        version = apsw.sqlite_lib_version()
    numbers = tuple(int(part) for part in version.split(".")[:3])
    if (3, 51, 3) <= numbers < (3, 52) or numbers >= (3, 53):
        return CheckResult(CheckLevel.OK, "sqlite", f"{version} (WAL-reset bug fixed)")
    return CheckResult(
        CheckLevel.FAIL,
        "sqlite",
        f"{version} can corrupt a file that several processes write",
        "pip install -U apsw",
    )


def _check_pools(config: Config) -> Iterator[CheckResult]:
    unlimited = [pool.name for pool in config.pools if pool.memory_limit is None]
    if unlimited:
        yield CheckResult(
            CheckLevel.WARN,
            "memory",
            f"these pools have no memory limit: {', '.join(unlimited)}",
            'one task can use up the machine\'s memory; write memory_limit = "2GiB" into the pool',
        )
    else:
        yield CheckResult(CheckLevel.OK, "memory", "every pool has a memory limit")
    if any(pool.vram_limit is not None for pool in config.pools) and find_spec("pynvml") is None:
        yield CheckResult(
            CheckLevel.WARN,
            "gpu memory",
            "vram_limit has no effect: nvidia-ml-py is not installed",
            "pip install 'tidegate[gpu]'",
        )


def _check_services(url: str) -> Iterator[CheckResult]:
    """Check the health of the workers and schedulers of this user and database on this machine."""
    from tidegate.store.connect import absolute_url
    from tidegate.worker.supervisor.health import query_health

    try:
        database_url = absolute_url(url)
    except TidegateError:
        return
    for kind in ("worker", "scheduler"):
        for answer in query_health(kind, None, _HEALTH_TIMEOUT_SECONDS):
            if answer is not None and answer.database_url != database_url:
                continue
            if answer is None:
                yield CheckResult(
                    CheckLevel.WARN, kind, f"a {kind} on this machine does not answer: it hangs", "restart it"
                )
            elif answer.problems:
                yield CheckResult(
                    CheckLevel.WARN,
                    kind,
                    f"{answer.name} (process {answer.pid}): {'; '.join(answer.problems)}",
                    "see its log" if answer.crash_loops else "",
                )
            else:
                yield CheckResult(
                    CheckLevel.OK, kind, f"{answer.name} (process {answer.pid}) runs here: {answer.status}"
                )


def _check_database(url: str, application: Any = None) -> Sequence[CheckResult]:
    from tidegate.store.connect import is_postgres, sqlite_path

    if is_postgres(url):
        return run(_check_store(url, application))
    try:
        path = sqlite_path(url)
    except TidegateError as error:
        return [_failed("database", error)]
    if not path.exists():
        return [
            CheckResult(
                CheckLevel.WARN,
                "database",
                f"{path} does not exist yet",
                "the first worker or enqueue creates it",
            )
        ]
    return [_check_file_system(path), *run(_check_store(url, application))]


def _check_file_system(path: Path) -> CheckResult:
    from tidegate.store.sqlite.connection import check_place, file_system_of

    try:
        check_place(path)
    except TidegateError as error:
        return _failed("file system", error)
    return CheckResult(
        CheckLevel.OK, "file system", file_system_of(path) or "unknown: this system does not report its type"
    )


async def _check_store(url: str, application: Any = None) -> list[CheckResult]:
    from tidegate.cli.doctor_limits import check_limits
    from tidegate.store.connect import is_postgres, open_store

    store = open_store(url)
    try:
        await store.open()
        live = await _live_workers(store)
        return [
            _check_schema(url, await store.count_newer_migrations()),
            await _check_clock(store),
            _check_workers(live),
            await _check_disk(store),
            *(() if application is None else await check_limits(store, application)),
            *(() if application is None else await _check_unserved(store, application)),
            *await check_capacity(store),
            *(await _check_server(store, live) if is_postgres(url) else ()),
        ]
    except TidegateError as error:
        return [_failed("database", error)]
    finally:
        await store.close()


def _check_schema(url: str, newer_migrations: int) -> CheckResult:
    if not newer_migrations:
        return CheckResult(CheckLevel.OK, "database", f"{url}, schema up to date")
    return CheckResult(
        CheckLevel.WARN,
        "database",
        f"{url}, schema newer than this version of Tidegate by {counted(newer_migrations, 'migration')};"
        " this version can still use it",
        "upgrade Tidegate here: pip install -U tidegate",
    )


async def _check_server(store: Any, live: list[WorkerRow]) -> list[CheckResult]:
    from tidegate.cli.doctor_postgres import check_server

    return await check_server(store, live)


async def _check_clock(store: Store) -> CheckResult:
    skew = await store.now() - time.time()
    if abs(skew) <= _SKEW_SECONDS:
        return CheckResult(CheckLevel.OK, "clock", f"skew {abs(skew):.1f} s")
    return CheckResult(
        CheckLevel.WARN,
        "clock",
        f"the store's clock is {format_duration(abs(skew))} "
        f"{'ahead of' if skew > 0 else 'behind'} this machine's",
        "set the machine's clock (NTP); the store's clock never goes back",
    )


async def _live_workers(store: Store) -> list[WorkerRow]:
    now = await store.now()
    return [worker for worker in await store.list_workers() if is_live(worker, now)]


def _check_workers(live: list[WorkerRow]) -> CheckResult:
    if live:
        slots = sum(worker.slots for worker in live)
        return CheckResult(CheckLevel.OK, "workers", f"{len(live)} live, {slots} slots")
    return CheckResult(CheckLevel.WARN, "workers", "no worker is live", "start one: tidegate worker")


async def _check_disk(store: Store) -> CheckResult:
    """Time a durable commit: enqueue a task in a batch that is never committed, then drop the batch."""
    make_id = IdMaker(lambda: time.time_ns() // 1_000_000, random.SystemRandom().getrandbits)
    took: list[float] = []
    for _ in range(_COMMITS):
        task = NewTask(make_id(), "tidegate:doctor", "default", Priority.NORMAL, b"{}", "json/1")
        batch_id = make_id()
        started = time.perf_counter()
        await store.enqueue_part(batch_id, [task])
        took.append(time.perf_counter() - started)
        await store.drop_batch(batch_id)
    typical = statistics.median(took)
    detail = f"{typical * 1000:.1f} ms for a durable commit"
    if typical <= _SLOW_COMMIT_SECONDS:
        return CheckResult(CheckLevel.OK, "disk", detail)
    return CheckResult(
        CheckLevel.WARN, "disk", detail, "a slow disk limits every enqueue; move the database to a faster one"
    )


async def _check_unserved(store: Store, application: Any) -> list[CheckResult]:
    """Warn about functions whose queue no pool serves, and about stored tasks that no live worker runs."""
    from tidegate.worker.supervisor.unserved import unserved_reasons

    functions = application.manifest()["functions"]
    reasons = await unserved_reasons(store, application.pools, functions)
    found = [CheckResult(CheckLevel.WARN, "queues", *_split_reason(reason)) for reason in reasons]
    return found or [CheckResult(CheckLevel.OK, "queues", "a pool serves the queue of every function")]


def _split_reason(reason: str) -> tuple[str, str]:
    what, _, fix = reason.partition("; ")
    return what, fix


async def check_capacity(store: Store) -> list[CheckResult]:
    """Warn about each upstream whose limit allows more calls than the live workers have slots for."""
    from tidegate.store.live_workers import find_slot_shortages

    return [
        CheckResult(CheckLevel.WARN, "slots", short.description, short.fix)
        for short in await find_slot_shortages(store)
    ]


def _failed(name: str, error: TidegateError) -> CheckResult:
    return CheckResult(CheckLevel.FAIL, name, error.message, error.fix)
