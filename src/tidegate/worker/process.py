"""A pool process: a fresh interpreter that imports the application and runs one engine.

It never beats: the supervisor does, as long as this process answers. Signals meant for the group do
nothing; when the supervisor dies, it gives its tasks back and ends within seconds.
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
from tidegate.worker import scratch
from tidegate.worker.application import Application, load_application
from tidegate.worker.control import Line, Message
from tidegate.worker.engine import Engine
from tidegate.worker.logs import application_loaded, set_up_logging
from tidegate.worker.opening import open_in_time
from tidegate.worker.settings import Pool, Timings
from tidegate.worker.signals import outlive_the_group
from tidegate.worker.slots import tree
from tidegate.worker.spot import Spot
from tidegate.worker.surroundings import Surroundings
from tidegate.worker.title import set_title

log = logging.getLogger("tidegate.worker")

EXIT_CONFIG = 78
EXIT_REPLACE = 75
"""The process is to be replaced at once: lease lost, supervisor gone, or a coroutine that will not stop."""
YOUNG_OBJECTS = 50_000
"""New objects, net of freed ones, before the cyclic collector looks at them."""
ORPHAN_SECONDS = 4.0
"""How long a process may take to give its tasks back after its supervisor died."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What the supervisor passes to a pool process on its command line, as JSON."""

    application: str
    worker_id: str
    control_fd: int
    spot_fd: int
    pool: Pool
    timings: Timings
    database_url: str | None = None


@dataclass(slots=True)
class _State:
    """Shared by the control thread and the loop."""

    pool: Pool
    spoiled_grace: float
    """Seconds the neighbours of a coroutine that will not stop have to end; later ones go back uncharged."""
    loop: asyncio.AbstractEventLoop | None = None
    """None while the application is imported: there is nothing to give back yet, and no loop to tell."""
    engine: Engine | None = None
    good_until: float = 0.0
    """Told before there was a loop."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held to look at `loop` and act on it."""
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    grace: float = 0.0
    exit_code: int = 0


def main(argv: list[str]) -> int:
    """Run until told to end; return the exit code."""
    outlive_the_group()
    orders = orders_from_json(argv[0])
    set_up_logging(orders.application)
    set_title(f"pool {orders.pool.name}: importing")
    end = socket.socket(fileno=orders.control_fd)
    end.set_inheritable(False)
    state = _State(orders.pool, spoiled_grace=10 * orders.timings.stop_grace)
    line = Line(end, lambda message: _heard(state, line, message), lambda: _orphaned(state))
    line.start()
    try:
        if orders.database_url is not None:
            os.environ["TIDEGATE_DATABASE_URL"] = orders.database_url
        surroundings = Surroundings()  # as the supervisor's: nothing of the application has run yet
        app = load_application(orders.application)
        application_loaded(app.functions)
        # Not asyncio.run: at its end it waits for every coroutine, and some will not stop.
        return asyncio.new_event_loop().run_until_complete(_serve(app, orders, state, line, surroundings))
    except ConfigError as error:
        log.exception("%s", error)
        return EXIT_CONFIG
    except TidegateError:
        log.exception("the pool process cannot go on")
        return 1


def _spare_what_is_loaded() -> None:
    """Keep the cyclic collector away from the loaded program, and from tasks that have only just begun.

    A claim brings thousands of objects, which reference counts free soon; Python's own threshold of some
    hundred would look through them several times before. An application that set its own keeps it.
    """
    gc.collect()
    gc.freeze()
    young, *older = gc.get_threshold()
    if 0 < young < YOUNG_OBJECTS:
        gc.set_threshold(YOUNG_OBJECTS, *older)


def require_room(pool: Pool, app: Application, excess: Callable[[int], int | None]) -> None:
    """Refuse memory limits that the application alone exceeds: no task could ever run under them.

    Args:
        pool: Whose limits.
        app: Imported, with nothing begun; a child process holds as much once it has imported it.
        excess: Returns the bytes this process holds if they are more than the given number, else None.

    Raises:
        ConfigError: A limit is below what the application holds; both numbers are named.
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
    app: Application, orders: Orders, state: _State, line: Line, surroundings: Surroundings
) -> int:
    _spare_what_is_loaded()
    require_room(orders.pool, app, lambda limit: tree.excess(os.getpid(), limit, other_sessions=False))
    await open_in_time(app.store.open)
    engine = Engine(
        app=app,
        pool=orders.pool,
        worker_id=orders.worker_id,
        timings=orders.timings,
        scratch_root=scratch.scratch_root(orders.worker_id),
        slots_of=orders.application,
        surroundings=surroundings,
        spot=Spot(orders.spot_fd),
    )
    with state.lock:
        state.engine, state.loop = engine, asyncio.get_running_loop()
    engine.good_until(state.good_until)  # nothing starts before the first renewed lease
    if await _started(engine, state):
        line.send(ready=os.getpid())
        await _until_end(state, line)
    with contextlib.suppress(TimeoutError):  # a store that hangs must not hold the process
        async with asyncio.timeout(orders.timings.stop_grace):
            await app.store.close()
    scratch.remove(orders.worker_id)
    line.send(done=True, killed=engine.executor.killed)
    return state.exit_code


async def _started(engine: Engine, state: _State) -> bool:
    """Run the start hooks; return False if a reason to end came first."""
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


async def _until_end(state: _State, line: Line) -> None:
    """Wait for a reason to end, then drain; a later word of the supervisor can only make it shorter."""
    engine = state.engine
    assert engine is not None
    reasons = [asyncio.create_task(event.wait()) for event in (state.ending, engine.retired, engine.spoiled)]
    await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
    for reason in reasons:
        reason.cancel()
    if engine.retired.is_set():
        state.exit_code = EXIT_REPLACE
        await engine.stop(0.0)
    elif engine.replacement_reason and not state.ending.is_set():
        line.send(leaving=engine.replacement_reason)
        await engine.stop()
    elif engine.spoiled.is_set() and not state.ending.is_set():
        log.warning("this process cannot be trusted any more: it ends and is replaced")
        state.exit_code = EXIT_REPLACE
        await engine.stop(state.spoiled_grace)
    else:
        await engine.stop(state.grace)


def _heard(state: _State, line: Line, message: Message) -> None:
    """Obey one message; runs in the control thread."""
    with state.lock:
        if state.loop is None:
            _obey_early(state, message)
            return
    try:
        state.loop.call_soon_threadsafe(_obey, state, line, message)
    except RuntimeError:
        return  # the loop has ended; so will the process


def _obey_early(state: _State, message: Message) -> None:
    """Obey one message while the application is imported; runs in the control thread."""
    if "beat" in message:
        state.good_until = message["beat"]
    elif "ping" not in message:
        os._exit(0)  # drain, release or lost: nothing was claimed yet


def _obey(state: _State, line: Line, message: Message) -> None:
    engine = state.engine
    assert engine is not None
    if "beat" in message:
        engine.good_until(message["beat"])  # the monotonic clock is one for all processes of a machine
        line.send(pong=True)
    elif "ping" in message:
        busy = engine.executor.busy
        line.send(pong=True, busy=busy, trouble=engine.trouble)
        set_title(f"pool {state.pool.name}: {busy} of {state.pool.concurrency} busy")
    elif "drain" in message:
        state.grace = message["drain"]
        state.ending.set()
    elif "release" in message:
        _release_all(state)
    elif "lost" in message:
        engine.lose()


def _orphaned(state: _State) -> None:
    """Give everything back because the supervisor is gone; runs in the control thread."""
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


def _release_all(state: _State) -> None:
    if state.engine is not None:
        state.engine.shorten()
    state.ending.set()


def orders_to_json(orders: Orders) -> str:
    """Return orders as one command-line argument."""
    pool, timings = orders.pool, orders.timings
    return json.dumps(
        {
            "application": orders.application,
            "worker_id": orders.worker_id,
            "control_fd": orders.control_fd,
            "spot_fd": orders.spot_fd,
            "database_url": orders.database_url,
            "pool": pool_to_plain(pool),
            "timings": {name: getattr(timings, name) for name in timings.__dataclass_fields__},
        }
    )


def orders_from_json(text: str) -> Orders:
    """Return the orders that `orders_to_json` wrote."""
    plain = json.loads(text)
    return Orders(
        application=plain["application"],
        worker_id=plain["worker_id"],
        control_fd=plain["control_fd"],
        spot_fd=plain["spot_fd"],
        database_url=plain["database_url"],
        pool=pool_from_plain(plain["pool"]),
        timings=Timings(**plain["timings"]),
    )


def pool_to_plain(pool: Pool) -> dict[str, Any]:
    """Return a pool as plain JSON values."""
    plain = {name: getattr(pool, name) for name in pool.__dataclass_fields__}
    return plain | {"shares": {str(priority.value): share for priority, share in pool.shares.items()}}


def pool_from_plain(plain: dict[str, Any]) -> Pool:
    """Return the pool that `pool_to_plain` described."""
    from tidegate.domain.spec import Priority

    shares = {Priority(int(number)): share for number, share in plain["shares"].items()}
    tuples = {name: tuple(plain[name]) for name in ("queues", "gpus", "fatal_errors")}
    return Pool(**(plain | tuples | {"shares": shares}))


if __name__ == "__main__":
    code = 1
    try:
        code = main(sys.argv[1:])
    except BaseException:
        log.exception("the pool process cannot go on")
    logging.shutdown()
    os._exit(code)  # threads that never return must not hold the process
