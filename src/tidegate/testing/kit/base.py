"""What is behind `Kit`: the store of a test, and the drains on it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import shutil
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from tidegate.app import Tidegate
from tidegate.calls.upstream import Upstream
from tidegate.context import plain_call_observers
from tidegate.domain.readers import Seconds, choice_option, positive_option, shown, whole_option
from tidegate.errors import UnknownUpstreamError, UsageError
from tidegate.internals import core_of
from tidegate.schedule.declared import ScheduleDeclarer
from tidegate.store.connect import is_postgres
from tidegate.testing.kit.clock import KitClock
from tidegate.testing.kit.django import sharing_for_this_thread
from tidegate.testing.kit.recording import PlainCalls
from tidegate.testing.kit.results import Drained, NeverEndedError, drained_run
from tidegate.testing.kit.scripted_transport import make_transport
from tidegate.testing.kit.scripted_upstream import ScriptedUpstream
from tidegate.testing.kit.session import WorkSession
from tidegate.testing.kit.store import KitStore, new_directory
from tidegate.threads.bridge import abandon_bridge_loop, run_sync, running_or_bridge_loop
from tidegate.worker.embedded import EmbeddedWorker
from tidegate.worker.settings import Pool

T = TypeVar("T")
Mode = Literal["inline", "manual", "real"]
CONCURRENCY = 8
_SEED = 20_260_101
"""The seed of the retries' jitter: the same in each test, so that a test gives the same result each time."""
LIMIT_SECONDS = 30.0
"""Real seconds after which a drain gives up, unless the test says otherwise."""
BLOCKED_SECONDS = 2.0
"""Real seconds after that, for an event loop that a task blocks."""


class KitBase:
    """Binds an application to a store of its own, and runs the engine on it.

    Args:
        app: The application under test.
        mode: How its tasks run.
        raise_on_failure: Whether a run that fails raises.
    """

    def __init__(self, app: Tidegate, *, mode: Mode = "manual", raise_on_failure: bool = False) -> None:
        self.app = app
        self.mode: Mode = choice_option("mode", mode, ("inline", "manual", "real"))  # type: ignore[assignment]
        self._core = core_of(app)
        self._raises = raise_on_failure
        self._stack: contextlib.ExitStack | None = None
        self._store_or_none: KitStore | None = None
        self._plain_calls = PlainCalls()
        self._clock = KitClock()
        self._session: WorkSession | None = None
        self._session_lock = threading.Lock()
        self._sharing = sharing_for_this_thread()
        self._worker: EmbeddedWorker | None = None
        self._rng = random.Random(_SEED)
        self._scripts: dict[str, ScriptedUpstream] = {}
        self._upstreams: dict[str, Upstream] = {}
        """The upstreams whose permits were reset for this test."""

    def __repr__(self) -> str:
        return f"<Kit of {self.app!r}, mode {self.mode}>"

    def __enter__(self) -> Self:
        self._enter()
        if self.mode == "real":
            self._start_worker_sync()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._worker is not None:
                _on_bridge(self._worker.stop(0.0))
        finally:
            self._exit()

    async def __aenter__(self) -> Self:
        self._enter()
        if self.mode == "real":
            try:
                self._worker = await self._new_worker().__aenter__()
            except BaseException:
                self._exit()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._worker is not None:
                await self._worker.stop(0.0)
        finally:
            self._exit()

    @property
    def _store(self) -> KitStore:
        if self._store_or_none is None:
            raise _used_outside()
        return self._store_or_none

    @property
    def _open_stack(self) -> contextlib.ExitStack:
        if self._stack is None:
            raise _used_outside()
        return self._stack

    def _enter(self) -> None:
        if self._stack is not None:
            raise UsageError("this test kit is entered already", fix="make one kit for each test")
        with contextlib.ExitStack() as stack:
            directory = new_directory()
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            store = KitStore(directory / "queue.db", self._clock, joins=is_postgres(self._core.url))
            stack.callback(store.runner.end)
            store.now_complete(store.open())
            stack.enter_context(self._core.replaced_store(store, f"sqlite:///{store.path}"))
            self._begin_upstreams(stack)
            self._declare_schedules(store)
            stack.enter_context(_observed_plain_calls(self._plain_calls))
            if self.mode == "inline":
                store.on_enqueued = self._drain_inline
            self._store_or_none = store
            self._stack = stack.pop_all()

    def _exit(self) -> None:
        stack, self._stack, self._store_or_none = self._stack, None, None
        if stack is not None:
            stack.close()

    def _begin_upstreams(self, stack: contextlib.ExitStack) -> None:
        """Reset the upstreams until the end of the test, also those declared after its start."""
        for name, upstream in self._core.upstreams.items():
            if self._upstreams.get(name) is not upstream:
                stack.enter_context(upstream.fresh_permits(self._clock.monotonic, self._rng))
                self._upstreams[name] = upstream

    def _declare_schedules(self, store: KitStore) -> None:
        """Store the schedules of the application, also those declared since the test began."""
        if self._core.schedules:
            store.now_complete(ScheduleDeclarer(store, self._core.schedule_set()).run_once())

    def _script_upstream(self, name: str) -> ScriptedUpstream:
        """Return the script of an upstream, which replaces the transports inside its own.

        Raises:
            UnknownUpstreamError: The application declares no such upstream.
            UsageError: The test has not begun, or has ended.
        """
        self._begin_upstreams(self._open_stack)
        upstream = self._core.upstreams.get(name)
        if upstream is None:
            raise UnknownUpstreamError(
                f"the application declares no upstream {shown(name)}",
                fix=f"declared: {', '.join(sorted(self._core.upstreams)) or 'none'}",
                upstream=name,
            )
        if name not in self._scripts:
            script = self._scripts[name] = ScriptedUpstream(name)
            script.pass_time = self._clock.jump
            upstream.stand_in = functools.partial(make_transport, script)
        return self._scripts[name]

    def _jumps_at_once(self, seconds: float) -> bool:
        """Move the clock if nothing can happen on the way. Return whether it did."""
        self._require_clock()
        self._store.drop_rolled_back()
        self._declare_schedules(self._store)
        self._store.pass_over_ticks()
        store, now = self._store, self._clock()
        is_free = (
            self._session is None
            and not store.has_ready()
            and store.next_due_at() > now + seconds
            and store.next_tick_at() > now + seconds
            and store.next_expiry_at(self._core.retention) > now + seconds
        )
        if is_free:
            self._clock.jump(seconds)
        return is_free

    async def _drain_inline(self) -> None:
        if self._session is None:  # else the drain that is under way runs it
            await self._work(None, None, CONCURRENCY, LIMIT_SECONDS, None)

    async def _work(
        self,
        advance_by: float | None,
        queue: str | None,
        concurrency: int,
        limit: Seconds,
        raise_on_failure: bool | None,
    ) -> Drained:
        self._require_clock()
        store = self._store
        store.drop_rolled_back()
        self._begin_upstreams(self._open_stack)
        session = WorkSession(
            self._core,
            store,
            pool=Pool(
                "test",
                queues=("*",) if queue is None else (queue,),
                concurrency=whole_option("concurrency", concurrency),
                poll_interval=3_600.0,
            ),
            rng=self._rng,
            limit_seconds=positive_option("limit", limit),
            sharing=self._sharing,
        )
        with self._only_session(session):
            store.forget_runs()
            async with session.working():
                if advance_by is None:
                    await session.run_due()
                else:
                    await session.advance_to(self._clock() + advance_by)
            drained = Drained(
                tuple(
                    drained_run(store.claimed[outcome.fence], outcome, session.app.errors.get(outcome.fence))
                    for outcome in store.outcomes
                    if outcome.fence in store.claimed
                )
            )
        for script in self._scripts.values():
            if script.fault is not None:
                raise script.fault
        if self._raises if raise_on_failure is None else raise_on_failure:
            drained.raise_if_failed()
        return drained

    @contextlib.contextmanager
    def _only_session(self, session: WorkSession) -> Iterator[None]:
        with self._session_lock:
            if self._session is not None:
                raise UsageError(
                    "a drain is under way already",
                    fix="await it first; inside a task nothing has to be drained",
                )
            self._session = session
        try:
            yield
        finally:
            self._session = None

    def _run_sync(self, work: Coroutine[Any, Any, T], limit: Seconds) -> T:
        """Run a drain on the bridge's loop, and give up if a task blocks that loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise UsageError(
                "a …_sync method of the test kit was called inside an event loop",
                fix="await the method without _sync",
            )
        seconds = positive_option("limit", limit) + BLOCKED_SECONDS
        loop = running_or_bridge_loop()
        waiting = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return waiting.result(seconds)
        except TimeoutError:
            if waiting.done():
                raise
            session, self._session = self._session, None
            abandon_bridge_loop(loop)
            if session is not None:
                session.give_up()
            waiting.cancel()
            raise NeverEndedError(
                f"expected the due tasks to end within {seconds:g} s of real time, and one blocks the loop:",
                [] if session is None else session.running(),
                "await in the async task, for example asyncio.sleep instead of time.sleep",
            ) from None
        except BaseException:
            waiting.cancel()
            raise

    @staticmethod
    def _require_loop(method: str) -> None:
        """Refuse the async form of a method in a sync test: nothing would await it, and nothing would run.

        Raises:
            UsageError: No event loop runs.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                f"kit.{method}() was called without an event loop, so nothing can await it",
                fix=f"write kit.{method}_sync() in a sync test",
            ) from None

    def _require_clock(self) -> None:
        if self.mode == "real":
            raise UsageError(
                "in mode real a worker runs the tasks by the real clock: nothing can be drained or advanced",
                fix="wait for a result instead: handle.result_sync(timeout=5); or use mode manual",
            )

    # --- mode real ---------------------------------------------------------------------------------------

    def _new_worker(self) -> EmbeddedWorker:
        return EmbeddedWorker(self._core, self._core.pools, self._core.timings)

    def _start_worker_sync(self) -> None:
        worker = self._new_worker()
        try:
            _on_bridge(worker.__aenter__())
        except BaseException:
            self._exit()
            raise
        self._worker = worker


def _used_outside() -> UsageError:
    return UsageError(
        "the test kit is used outside its `with` block", fix="use it inside: with Kit(app) as kit:"
    )


def _on_bridge(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the bridge's loop, also from a thread whose own loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_sync(work)
    work.close()
    raise UsageError("mode real was entered by `with` inside an event loop", fix="write `async with`")


@contextlib.contextmanager
def _observed_plain_calls(calls: PlainCalls) -> Iterator[None]:
    plain_call_observers.append(calls.observe)
    try:
        yield
    finally:
        plain_call_observers.remove(calls.observe)
