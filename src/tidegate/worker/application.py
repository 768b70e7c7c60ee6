"""What a worker needs from an application, and how to load one by its name.

`tidegate.app` is a higher layer, which this module must not import. The protocols here describe its shape.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.calls.upstream import Upstream
from tidegate.codec.signature import Signature
from tidegate.domain.links import LinkSettings
from tidegate.domain.readers import shown
from tidegate.domain.retention import Retention
from tidegate.domain.spec import Backoff, Exponential, Fixed, TaskSpec
from tidegate.errors import ConfigError
from tidegate.internals import core_of, is_application
from tidegate.limits.settings import LimitDeclaration
from tidegate.schedule.declared import ScheduleSet
from tidegate.store.rows import CrashPolicy
from tidegate.worker.settings import Pool, Timings

if TYPE_CHECKING:
    from tidegate.events import EventBus
    from tidegate.policy.classify import Classifier
    from tidegate.store.protocol import Store


class Runnable(Protocol):
    """A task function as the worker sees it."""

    spec: TaskSpec
    function: Callable[..., Any]
    is_async: bool

    @property
    def signature(self) -> Signature:
        """The parameters and return annotation of the function."""
        ...


class Application(Protocol):
    """The internals of a `Tidegate` as the worker sees them: what `core_of(app)` returns."""

    url: str
    pools: tuple[Pool, ...]
    timings: Timings
    retention: Retention

    @property
    def links(self) -> LinkSettings | None:
        """Makes the links of approvals; None if links are not configured."""
        ...

    @property
    def store(self) -> Store:
        """The store that holds the tasks."""
        ...

    @property
    def functions(self) -> Mapping[str, Runnable]:
        """Task functions by name."""
        ...

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The upstreams that the application's tasks call, by name."""
        ...

    @property
    def start_hooks(self) -> Sequence[Callable[[], Awaitable[None] | None]]:
        """Hooks that run in the event loop before the first task."""
        ...

    @property
    def child_start_hooks(self) -> Sequence[Callable[[], Awaitable[None] | None]]:
        """Hooks that run once in each child process, before its first task."""
        ...

    @property
    def stop_hooks(self) -> Sequence[Callable[[], Awaitable[None] | None]]:
        """Hooks that run in the event loop after the last task, in reverse order."""
        ...

    @property
    def classifiers(self) -> Sequence[Classifier]:
        """The user's own classifiers of exceptions, called before Tidegate's."""
        ...

    @property
    def events(self) -> EventBus:
        """Passes events to their subscribers in this process."""
        ...

    def observe(self) -> None:
        """Subscribe OpenTelemetry to the events, if this process uses it. Safe to repeat."""
        ...

    def declared(self) -> Sequence[LimitDeclaration]:
        """Return the limits that the application declares."""
        ...

    def schedule_set(self) -> ScheduleSet:
        """Return the schedules that the application declares."""
        ...

    def manifest(self) -> dict[str, Any]:
        """Return what the application declares."""
        ...


def load_application(reference: str) -> Any:
    """Import `module:attribute` (attribute `app` by default), with the current directory importable.

    Then import the application's `modules`, which declare more task functions, and run its load hooks.

    Raises:
        ConfigError: The reference names no application, or a module cannot be imported; the cause is kept.
    """
    module_name, _, attribute = reference.partition(":")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds text
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    module = _import_module(module_name)
    app: Any = getattr(module, attribute or "app", None)
    if not is_application(app):
        raise ConfigError(
            f"{module_name}:{attribute or 'app'} is not a Tidegate application",
            fix=f"name it: {module_name}:NAME",
        )
    core: Any = core_of(app)
    for name in core.modules:
        _import_module(name)
    for hook in core.load_hooks:
        _call_load_hook(hook, reference)
    return app


def _call_load_hook(hook: Callable[[], None], reference: str) -> None:
    """Run one load hook.

    Raises:
        ConfigError: The hook raised; the cause is kept.
    """
    try:
        hook()
    except Exception as error:
        raise ConfigError(
            f"{reference} cannot be loaded{_source_location(error)}: {type(error).__name__}: {error}",
            fix="see its cause",
        ) from error


def _import_module(name: str) -> ModuleType:
    """Import a module of the application.

    Raises:
        ConfigError: The module does not exist, or raises.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name or name.startswith(f"{error.name}."):
            raise ConfigError(
                f"there is no module {shown(name)} here",
                fix="run in the application's directory, or name it MODULE:APP",
            ) from None  # the traceback shows only importlib
        raise ConfigError(f"{name} cannot be imported: {error}", fix="see the cause above") from error
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be imported{_source_location(error)}: {type(error).__name__}: {error}",
            fix="see its cause",
        ) from error


def _source_location(error: Exception) -> str:
    """Return the line of the application's own code that raised an error: ` (app.py, line 12)`."""
    ours, location = str(Path(__file__).parent.parent), ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith((ours, "<frozen ")):
            location = f" ({file}, line {line})"
    return location


def short_timeouts(app: Application) -> list[tuple[str, float, float]]:
    """Return (function, timeout, call seconds) for each function with a timeout too short for one call."""
    found = []
    for name, function in app.functions.items():
        upstream = app.upstreams.get(function.spec.upstream)
        if upstream is not None and upstream.has_transport:
            seconds = upstream.calls.times.seconds
            if function.spec.timeout <= seconds:
                found.append((name, function.spec.timeout, seconds))
    return found


def crash_terms(spec: TaskSpec) -> CrashPolicy:
    """Return the crash policy of this function, which maintenance needs without importing the function."""
    try:
        base, cap = _first_and_longest_delay(spec.backoff)
        limit = int(spec.crash_limit)
        are_usable = all(math.isfinite(seconds) and seconds >= 0 for seconds in (base, cap))
    except Exception:  # the option may be any object
        are_usable = False
    if not are_usable:  # a broken option must not stop claims: the function's own run reports it
        base, cap = _first_and_longest_delay(Exponential())
        limit = TaskSpec(spec.name).crash_limit
    return CrashPolicy(
        crash_limit=limit, base_seconds=base, max_seconds=cap, max_attempts=_max_attempts(spec)
    )


def _max_attempts(spec: TaskSpec) -> int:
    return spec.max_attempts if isinstance(spec.max_attempts, int) else TaskSpec(spec.name).max_attempts


def _first_and_longest_delay(backoff: Backoff) -> tuple[float, float]:
    if isinstance(backoff, Exponential):
        return backoff.base, backoff.cap
    if isinstance(backoff, Fixed):
        return backoff.seconds, backoff.seconds
    return 1.0 + backoff.plus, backoff.cap
