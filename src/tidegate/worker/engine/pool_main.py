"""A pool process: a new interpreter that imports the application and runs one engine.

The process does not renew its lease; the supervisor does that, as long as the process answers. The process
ignores signals meant for the process group. When the supervisor dies, it releases its tasks and ends within
seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidegate.errors import ConfigError, TidegateError
from tidegate.internals import core_of
from tidegate.worker import scratch
from tidegate.worker.application import Application, load_application
from tidegate.worker.children import process_tree
from tidegate.worker.control import ControlConnection, Message
from tidegate.worker.engine.current_task import CurrentTaskSlot
from tidegate.worker.engine.engine import Engine
from tidegate.worker.engine.event_loop import new_event_loop
from tidegate.worker.engine.other_code import code_version
from tidegate.worker.logs import register_application_loggers, set_up_logging
from tidegate.worker.opening import open_with_retries
from tidegate.worker.process_snapshot import ProcessSnapshot
from tidegate.worker.settings import Pool, Timings
from tidegate.worker.signals import ignore_group_signals
from tidegate.worker.title import set_title

log = logging.getLogger("tidegate.worker")

EXIT_CONFIG = 78
EXIT_REPLACE = 75
"""Exit code if the process must be replaced at once: its lease is lost, its supervisor is gone, or a
coroutine does not stop."""
YOUNG_OBJECTS = 50_000
"""The garbage collector runs after this many new objects that were not freed."""
FLUSH_SECONDS = 3.0
"""How long an ending process waits until its traces and metrics are sent."""
ORPHAN_SECONDS = 4.0
"""How long a process may take to release its tasks after its supervisor died."""


@dataclass(frozen=True, slots=True)
class PoolProcessOptions:
    """What the supervisor passes to a pool process on its command line, as JSON."""

    application: str
    worker_id: str
    control_fd: int
    current_task_fd: int
    pool: Pool
    timings: Timings
    database_url: str | None = None


@dataclass(slots=True)
class _SharedState:
    """State that the control thread and the event loop share."""

    pool: Pool
    unhealthy_grace: float
    """If a coroutine did not stop, seconds until the other tasks must end. Tasks that still run then are
    released uncharged."""
    loop: asyncio.AbstractEventLoop | None = None
    """The engine; None until the application is imported. Until then there are no tasks to release."""
    engine: Engine | None = None
    good_until: float = 0.0
    """Until when the lease holds, if the message came before there was an event loop."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """The lock that guards `loop`."""
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    grace: float = 0.0
    exit_code: int = 0
    wanted: Message | None = None
    """The settings received before there was an engine; None if no settings came."""


def main(argv: list[str]) -> int:
    """Run until asked to end; return the exit code."""
    ignore_group_signals()
    options = options_from_json(argv[0])
    set_up_logging(options.application)
    set_title(f"pool {options.pool.name}: importing")
    sock = socket.socket(fileno=options.control_fd)
    sock.set_inheritable(False)
    state = _SharedState(options.pool, unhealthy_grace=10 * options.timings.stop_grace)
    connection = ControlConnection(
        sock, lambda message: _receive(state, connection, message), lambda: _on_supervisor_death(state)
    )
    connection.start()
    try:
        if options.database_url is not None:
            os.environ["TIDEGATE_DATABASE_URL"] = options.database_url
        snapshot = ProcessSnapshot()  # before any code of the application has run
        app: Application = core_of(load_application(options.application))
        register_application_loggers(app.functions)
        # Not asyncio.run: it waits for every coroutine at its end, and some may not stop.
        loop = new_event_loop(options.pool.event_loop)
        code = loop.run_until_complete(_serve(app, options, state, connection, snapshot))
        app.events.exporters.flush(FLUSH_SECONDS)
        return code
    except ConfigError as error:
        log.exception("%s", error)
        return EXIT_CONFIG
    except TidegateError:
        log.exception("the pool process cannot continue")
        return 1


def _freeze_loaded_objects() -> None:
    """Exempt the loaded program from garbage collection, and collect new objects less often.

    A claim creates thousands of objects that reference counting soon frees. With Python's default threshold
    of some hundreds, the collector would scan them several times before that. A larger threshold that the
    application set is kept.
    """
    gc.collect()
    gc.freeze()
    young, *older = gc.get_threshold()
    if 0 < young < YOUNG_OBJECTS:
        gc.set_threshold(YOUNG_OBJECTS, *older)


def check_memory_limits(pool: Pool, app: Application, excess: Callable[[int], int | None]) -> None:
    """Refuse memory limits that the application alone exceeds: no task could ever run under them.

    Args:
        pool: The pool with the limits.
        app: The application, imported but not started. A child process uses as much after its import.
        excess: Returns the bytes that this process uses if more than the given number, else None.

    Raises:
        ConfigError: A limit is below what the application uses; the message has both numbers.
    """
    limits = {
        f"pool {pool.name}: memory_limit": pool.memory_limit,
        f"pool {pool.name}: memory_soft_limit": pool.memory_soft_limit,
    } | {f"{name}: memory_limit": function.spec.memory_limit for name, function in app.functions.items()}
    for option, limit in limits.items():
        if limit is not None and (held := excess(limit)) is not None:
            raise ConfigError(
                f"{option} is {limit >> 20} MiB; the application alone holds {held >> 20} MiB once imported",
                fix=f"raise it well above {held >> 20} MiB, or import less",
            )


async def _serve(
    app: Application,
    options: PoolProcessOptions,
    state: _SharedState,
    connection: ControlConnection,
    snapshot: ProcessSnapshot,
) -> int:
    _freeze_loaded_objects()
    check_memory_limits(
        options.pool, app, lambda limit: process_tree.excess(os.getpid(), limit, other_sessions=False)
    )
    await open_with_retries(app.store.open)
    engine = Engine(
        app=app,
        pool=options.pool,
        worker_id=options.worker_id,
        timings=options.timings,
        scratch_root=scratch.scratch_root(options.worker_id),
        child_application=options.application,
        snapshot=snapshot,
        current_task=CurrentTaskSlot(options.current_task_fd),
    )
    with state.lock:
        state.engine, state.loop = engine, asyncio.get_running_loop()
    if state.wanted is not None:
        _apply_settings(engine, connection, state.wanted)
    engine.extend_lease(state.good_until)  # nothing starts before the first renewed lease
    if await _start_engine(engine, state):
        connection.send(ready=os.getpid(), code=code_version(app.functions), slots=engine.slots.total)
        await _serve_until_stopped(state, connection)
    with contextlib.suppress(TimeoutError):  # a store that hangs must not hold the process
        async with asyncio.timeout(options.timings.stop_grace):
            await app.store.close()
    scratch.remove(options.worker_id)
    connection.send(done=True, killed=engine.executor.killed)
    return state.exit_code


async def _start_engine(engine: Engine, state: _SharedState) -> bool:
    """Start the engine; return False if a reason to end came first."""
    starting = asyncio.create_task(engine.start())
    reasons = [asyncio.create_task(event.wait()) for event in (state.ending, engine.retired)]
    await asyncio.wait([starting, *reasons], return_when=asyncio.FIRST_COMPLETED)
    for reason in reasons:
        reason.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    if engine.retired.is_set():
        state.exit_code = EXIT_REPLACE
    return False


async def _serve_until_stopped(state: _SharedState, connection: ControlConnection) -> None:
    """Wait for a reason to end, then drain. Later messages of the supervisor can only shorten the drain."""
    engine = state.engine
    assert engine is not None
    reasons = [
        asyncio.create_task(event.wait()) for event in (state.ending, engine.retired, engine.unhealthy)
    ]
    await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
    for reason in reasons:
        reason.cancel()
    if engine.retired.is_set():
        state.exit_code = EXIT_REPLACE
        await engine.stop(0.0)
    elif engine.replacement_reason and not state.ending.is_set():
        connection.send(leaving=engine.replacement_reason)
        await engine.stop()
    elif engine.unhealthy.is_set() and not state.ending.is_set():
        log.warning("this process is unhealthy: it ends and is replaced")
        state.exit_code = EXIT_REPLACE
        await engine.stop(state.unhealthy_grace)
    else:
        await engine.stop(state.grace)


def _receive(state: _SharedState, connection: ControlConnection, message: Message) -> None:
    """Apply one message; runs in the control thread."""
    with state.lock:
        if state.loop is None:
            _apply_early(state, message)
            return
    try:
        state.loop.call_soon_threadsafe(_apply, state, connection, message)
    except RuntimeError:
        return  # the loop has ended, and the process is about to end


def _apply_early(state: _SharedState, message: Message) -> None:
    """Apply one message while the application is imported; runs in the control thread."""
    if "beat" in message:
        state.good_until = message["beat"]
    elif "set" in message:
        state.wanted = message
    elif "ping" not in message:
        os._exit(0)  # the message is drain, release or lost: no task has been claimed yet


def _apply(state: _SharedState, connection: ControlConnection, message: Message) -> None:
    engine = state.engine
    assert engine is not None
    if "beat" in message:
        engine.extend_lease(message["beat"])  # all processes of a machine share the monotonic clock
        connection.send(pong=True)
    elif "ping" in message:
        busy = engine.executor.busy
        connection.send(pong=True, busy=busy, slots=engine.slots.total, problem=engine.problem)
        set_title(f"pool {state.pool.name}: {busy} of {engine.slots.total} busy")
    elif "set" in message:
        _apply_settings(engine, connection, message)
    elif "drain" in message:
        state.grace = message["drain"]
        state.ending.set()
    elif "release" in message:
        _release_all(state)
    elif "lost" in message:
        engine.on_lease_lost()


def _apply_settings(engine: Engine, connection: ControlConnection, message: Message) -> None:
    """Apply the requested settings of this process, and confirm them."""
    engine.slots.apply(concurrency=message["concurrency"], is_quiet=message["quiet"])
    connection.send(was_set=message["set"], slots=engine.slots.total)


def _on_supervisor_death(state: _SharedState) -> None:
    """Release all tasks because the supervisor is gone; runs in the control thread."""
    with state.lock:
        if state.loop is None:
            os._exit(EXIT_REPLACE)
    if state.exit_code == 0:
        state.exit_code = EXIT_REPLACE
    threading.Timer(ORPHAN_SECONDS, os._exit, [EXIT_REPLACE]).start()
    try:
        state.loop.call_soon_threadsafe(_release_all, state)
    except RuntimeError:
        return


def _release_all(state: _SharedState) -> None:
    if state.engine is not None:
        state.engine.release_now()
    state.ending.set()


def options_to_json(options: PoolProcessOptions) -> str:
    """Return the options as one command-line argument."""
    pool, timings = options.pool, options.timings
    return json.dumps(
        {
            "application": options.application,
            "worker_id": options.worker_id,
            "control_fd": options.control_fd,
            "current_task_fd": options.current_task_fd,
            "database_url": options.database_url,
            "pool": pool_to_dict(pool),
            "timings": {name: getattr(timings, name) for name in timings.__dataclass_fields__},
        }
    )


def options_from_json(text: str) -> PoolProcessOptions:
    """Return the options that `options_to_json` wrote."""
    plain = json.loads(text)
    return PoolProcessOptions(
        application=plain["application"],
        worker_id=plain["worker_id"],
        control_fd=plain["control_fd"],
        current_task_fd=plain["current_task_fd"],
        database_url=plain["database_url"],
        pool=pool_from_dict(plain["pool"]),
        timings=Timings(**plain["timings"]),
    )


def pool_to_dict(pool: Pool) -> dict[str, Any]:
    """Return a pool as plain JSON values."""
    plain = {name: getattr(pool, name) for name in pool.__dataclass_fields__}
    return plain | {"shares": {str(priority.value): share for priority, share in pool.shares.items()}}


def pool_from_dict(plain: dict[str, Any]) -> Pool:
    """Return the pool that `pool_to_dict` wrote."""
    from tidegate.domain.spec import Priority

    shares = {Priority(int(number)): share for number, share in plain["shares"].items()}
    tuples = {name: tuple(plain[name]) for name in ("queues", "gpus", "fatal_errors")}
    return Pool(**(plain | tuples | {"shares": shares}))


if __name__ == "__main__":
    code = 1
    try:
        code = main(sys.argv[1:])
    except BaseException:
        log.exception("the pool process cannot continue")
    logging.shutdown()
    os._exit(code)  # threads that never return must not keep the process alive
