"""`Kit`: gives an application a store of its own for one test, and runs its tasks when the test says so."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any

from tidegate.calls.upstream import Upstream
from tidegate.context import Progress
from tidegate.domain.moments import to_datetime
from tidegate.domain.readers import Seconds, choice_option, seconds_option
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.errors import UsageError
from tidegate.options import priority_option
from tidegate.task import TaskFunction
from tidegate.testing.kit.base import CONCURRENCY, LIMIT_SECONDS, KitBase
from tidegate.testing.kit.enqueued import (
    Args,
    EnqueuedTask,
    Wanted,
    assert_enqueued,
    list_enqueued,
)
from tidegate.testing.kit.results import Drained
from tidegate.testing.kit.scripted_upstream import ScriptedUpstream


class Kit(KitBase):
    """Gives an application a store of its own inside a `with` block, and controls its tasks and its clock.

    Enter it with `with`, or with `async with` in an async test. Each method that runs tasks has two
    forms: `await kit.drain()` in async code, `kit.drain_sync()` in sync code.

    Args:
        app: The application under test, as its tasks use it.
        mode: `manual`: tasks run when the test drains. `inline`: an enqueue runs everything that is due
            before it returns; retries are not waited for. `real`: a worker runs tasks by the real clock.
        raise_on_failure: Whether a run that fails raises at the drain or the inline enqueue that ran it.

    Example:
        >>> with Kit(app) as kit:  # doctest: +SKIP
        ...     greet.enqueue_sync("Ada")
        ...     kit.assert_enqueued(greet, args=("Ada",))
        ...     assert kit.drain_sync().succeeded == 1
    """

    # --- running tasks -----------------------------------------------------------------------------------

    def drain(
        self,
        *,
        queue: str | None = None,
        concurrency: int = CONCURRENCY,
        limit: Seconds = LIMIT_SECONDS,
        raise_on_failure: bool | None = None,
    ) -> Coroutine[Any, Any, Drained]:
        """Run every task that is due, and those that become due meanwhile; return what happened.

        Args:
            queue: Run the tasks of this queue only; None: of every queue.
            concurrency: How many tasks run at once.
            limit: Real time after which the drain fails.
            raise_on_failure: Whether a run that fails raises; None: as the kit was made.

        Raises:
            RunFailedError: A run failed, and `raise_on_failure` is set.
            NeverEndedError: The tasks did not end within `limit`.
            UsageError: The kit is in mode `real`, another drain is under way, or no event loop runs.
        """
        self._require_loop("drain")
        return self._work(None, queue, concurrency, limit, raise_on_failure)

    def drain_sync(
        self,
        *,
        queue: str | None = None,
        concurrency: int = CONCURRENCY,
        limit: Seconds = LIMIT_SECONDS,
        raise_on_failure: bool | None = None,
    ) -> Drained:
        """Same as `drain`, from sync code."""
        return self._run_sync(self._work(None, queue, concurrency, limit, raise_on_failure), limit)

    def advance(
        self,
        duration: Seconds | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        limit: Seconds = LIMIT_SECONDS,
        raise_on_failure: bool | None = None,
    ) -> Coroutine[Any, Any, Drained]:
        """Move the clock from due moment to due moment, run what is due at each, and return what happened.

        Retries, delays, limits, gates and retention follow the same clock. If nothing is due, the clock jumps
        at once.

        Args:
            duration: How far to move: seconds, a timedelta, or text such as `90s`. Or use the keywords below.
            days: Days to add.
            hours: Hours to add.
            minutes: Minutes to add.
            seconds: Seconds to add.
            limit: Real time after which the drain fails.
            raise_on_failure: Whether a run that fails raises; None: as the kit was made.

        Raises:
            RunFailedError: A run failed, and `raise_on_failure` is set.
            NeverEndedError: The tasks did not end within `limit`.
            UsageError: The kit is in mode `real`, another drain is under way, or no event loop runs.
        """
        by = _total_seconds(duration, days=days, hours=hours, minutes=minutes, seconds=seconds)
        self._require_loop("advance")
        return self._advance(by, limit, raise_on_failure)

    def advance_sync(
        self,
        duration: Seconds | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        limit: Seconds = LIMIT_SECONDS,
        raise_on_failure: bool | None = None,
    ) -> Drained:
        """Same as `advance`, from sync code."""
        by = _total_seconds(duration, days=days, hours=hours, minutes=minutes, seconds=seconds)
        if self._jumps_at_once(by):
            return Drained()
        return self._run_sync(self._work(by, None, CONCURRENCY, limit, raise_on_failure), limit)

    def now(self) -> datetime:
        """Return the current time by the test's clock, in UTC."""
        return to_datetime(self._clock())

    # --- looking -----------------------------------------------------------------------------------------

    def enqueued(
        self,
        function: TaskFunction[Any, Any, Any] | None = None,
        *,
        args: Args = None,
        queue: str | None = None,
        state: State | str | None = None,
        priority: Priority | str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
        due_at: datetime | None = None,
    ) -> list[EnqueuedTask]:
        """Return the tasks that this test enqueued, in order, in any state.

        For sync and async code. A parameter that is left out matches every task.

        Args:
            function: The task function.
            args: All positional arguments as a tuple, or some arguments by name.
            queue: The queue.
            state: Where the task is now, such as `ready`, `scheduled` or `dead`.
            priority: `interactive`, `normal` or `bulk`.
            tenant: Who it is for.
            key: Its idempotency key.
            labels: Labels that the task has; it may have more.
            due_at: When the task runs next, with a tolerance of one second.
        """
        return self._find(_wanted(function, args, queue, state, priority, tenant, key, labels, due_at))

    def assert_enqueued(
        self,
        function: TaskFunction[Any, Any, Any] | None = None,
        *,
        args: Args = None,
        queue: str | None = None,
        count: int | None = None,
        state: State | str | None = None,
        priority: Priority | str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
        due_at: datetime | None = None,
    ) -> list[EnqueuedTask]:
        """Fail the test unless it enqueued such a task; return those that match. See `enqueued`.

        Args:
            function: The task function.
            args: All positional arguments as a tuple, or some arguments by name.
            queue: The queue.
            count: Exactly how many; None: at least one.
            state: Where the task is now.
            priority: `interactive`, `normal` or `bulk`.
            tenant: Who it is for.
            key: Its idempotency key.
            labels: Labels that the task has; it may have more.
            due_at: When the task runs next, with a tolerance of one second.

        Raises:
            KitError: There is no such task, or not as many.
        """
        wanted = _wanted(function, args, queue, state, priority, tenant, key, labels, due_at)
        return assert_enqueued(wanted, count, self._find)

    def assert_not_enqueued(
        self,
        function: TaskFunction[Any, Any, Any] | None = None,
        *,
        args: Args = None,
        queue: str | None = None,
    ) -> None:
        """Fail the test if it enqueued such a task; without arguments, if it enqueued any task.

        Raises:
            KitError: There is such a task.
        """
        self.assert_enqueued(function, args=args, queue=queue, count=0)

    def upstream(self, upstream: Upstream | str) -> ScriptedUpstream:
        """Return the script of an upstream: what its calls get from now on in this test, without any socket.

        The script serves every transport of the upstream, for any SDK, also one that was made before.
        Calling this again returns the same script.

        Args:
            upstream: What `app.upstream(…)` returned, or its name.

        Raises:
            UnknownUpstreamError: The application declares no such upstream.
        """
        return self._script_upstream(upstream if isinstance(upstream, str) else upstream.name)

    @property
    def progress(self) -> list[Progress]:
        """What plain calls of task functions reported by `ctx.progress`, in order."""
        return self._plain_calls.progress

    @property
    def emitted(self) -> list[Any]:
        """What plain calls of task functions emitted by `ctx.emit`, in order."""
        return self._plain_calls.emitted

    async def _advance(self, by: float, limit: Seconds, raise_on_failure: bool | None) -> Drained:
        if self._jumps_at_once(by):
            return Drained()
        return await self._work(by, None, CONCURRENCY, limit, raise_on_failure)

    def _find(self, wanted: Wanted) -> list[EnqueuedTask]:
        self._store.drop_rolled_back()
        return list_enqueued(self._store, self._core.functions, wanted)


def _total_seconds(
    duration: Seconds | None, *, days: float, hours: float, minutes: float, seconds: float
) -> float:
    words = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    by = 0.0 if duration is None else seconds_option("advance", duration)
    return by + seconds_option("advance", words)


def _wanted(
    function: TaskFunction[Any, Any, Any] | None,
    args: Args,
    queue: str | None,
    state: State | str | None,
    priority: Priority | str | None,
    tenant: str | None,
    key: str | None,
    labels: Mapping[str, str] | None,
    due_at: datetime | None,
) -> Wanted:
    if function is not None and not isinstance(function, TaskFunction):
        raise UsageError(
            f"{function!r} is not a task function", fix="name what @app.task made: kit.enqueued(greet)"
        )
    return Wanted(
        function=function,
        args=args,
        queue=queue,
        state=None if state is None else State(choice_option("state", state, State)),
        priority=None if priority is None else priority_option("priority", priority),
        tenant=tenant,
        key=key,
        labels=labels or {},
        due_at=due_at,
    )
