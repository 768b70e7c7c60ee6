"""The application as a drain's engine sees it: on the test's store, with its runs observed."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.calls.upstream import Upstream
from tidegate.codec.signature import Signature
from tidegate.context import RetryRequested, TaskStopped, TaskSuspended, current_context
from tidegate.domain.links import LinkSettings
from tidegate.domain.outcome import Fence
from tidegate.domain.retention import Retention
from tidegate.domain.spec import RunsIn, TaskSpec
from tidegate.limits.settings import LimitDeclaration
from tidegate.schedule.declared import ScheduleSet
from tidegate.worker.application import Application, Runnable
from tidegate.worker.settings import Pool, Timings

if TYPE_CHECKING:
    from tidegate.events import EventBus
    from tidegate.policy.classify import Classifier
    from tidegate.store.protocol import Store


TEST_LINKS = LinkSettings("https://tidegate.test", (b"the secret of links in tests",))
"""What links are made with in tests of an application that has no settings for them."""


class Around(Protocol):
    """Encloses each run of a function."""

    def __call__(self, *, is_in_thread: bool) -> AbstractContextManager[None]:
        """Return what to enter while a function runs."""
        ...


class KitApplication:
    """An application whose functions are observed while they run.

    Args:
        app: The user's application.
        store: The test's store.
        around: Encloses each run.
    """

    def __init__(self, app: Application, store: Store, around: Around) -> None:
        self._app = app
        self.url = app.url
        self.pools: tuple[Pool, ...] = app.pools
        self.timings: Timings = app.timings
        self.retention: Retention = app.retention
        self.links: LinkSettings = app.links or TEST_LINKS
        self.store = store
        self.errors: dict[Fence, BaseException] = {}
        """What functions raised, by run."""
        self.functions: Mapping[str, Runnable] = {
            name: _ObservedFunction(function, around, self.errors) for name, function in app.functions.items()
        }

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The upstreams that the application's tasks call, by name."""
        return self._app.upstreams

    @property
    def start_hooks(self) -> Sequence[Callable[[], Awaitable[None] | None]]:
        """The application's own start hooks."""
        return self._app.start_hooks

    @property
    def child_start_hooks(self) -> Sequence[Callable[[], Awaitable[None] | None]]:
        """The application's own hooks for child processes. No such hook runs here."""
        return self._app.child_start_hooks

    @property
    def stop_hooks(self) -> Sequence[Callable[[], Awaitable[None] | None]]:
        """The application's own stop hooks."""
        return self._app.stop_hooks

    @property
    def classifiers(self) -> Sequence[Classifier]:
        """The application's own classifiers."""
        return self._app.classifiers

    @property
    def events(self) -> EventBus:
        """The application's own events."""
        return self._app.events

    def observe(self) -> None:
        """Have OpenTelemetry subscribe to the application's events, if it is used here."""
        self._app.observe()

    def declared(self) -> Sequence[LimitDeclaration]:
        """Return the limits that the application declares."""
        return self._app.declared()

    def schedule_set(self) -> ScheduleSet:
        """Return the schedules that the application declares."""
        return self._app.schedule_set()

    def manifest(self) -> dict[str, Any]:
        """Return what the application declares."""
        return self._app.manifest()


class _ObservedFunction:
    """A task function that notes what it raises."""

    def __init__(self, function: Runnable, around: Around, errors: dict[Fence, BaseException]) -> None:
        runs_in = RunsIn.LOOP if function.is_async else RunsIn.THREAD
        self.spec: TaskSpec = replace(function.spec, runs_in=runs_in)
        self.is_async = function.is_async
        self._observed = function
        self._around = around
        self._errors = errors
        self.function = self._observed_coroutine() if function.is_async else self._observed_call()

    @property
    def signature(self) -> Signature:
        """The parameters and return annotation of the function."""
        return self._observed.signature

    def _observed_coroutine(self) -> Callable[..., Any]:
        function = self._observed.function

        @functools.wraps(function)
        async def observed(*args: Any, **kwargs: Any) -> Any:
            with self._around(is_in_thread=False):
                try:
                    return await function(*args, **kwargs)
                except BaseException as error:
                    self._note(error)
                    raise

        return observed

    def _observed_call(self) -> Callable[..., Any]:
        function = self._observed.function

        @functools.wraps(function)
        def observed(*args: Any, **kwargs: Any) -> Any:
            with self._around(is_in_thread=True):
                try:
                    return function(*args, **kwargs)
                except BaseException as error:
                    self._note(error)
                    raise

        return observed

    def _note(self, error: BaseException) -> None:
        context = current_context()
        was_stopped = isinstance(error, asyncio.CancelledError | TaskStopped | TaskSuspended | RetryRequested)
        if context is not None and not was_stopped:
            self._errors[Fence(context.task_id, context.run)] = error
