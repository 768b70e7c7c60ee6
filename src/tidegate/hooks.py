"""Functions of the application that Tidegate calls at its start and end, on failures and on events."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from tidegate.domain.readers import callable_option, wrong
from tidegate.events import EVENTS, Event, EventBus

if TYPE_CHECKING:
    from tidegate.policy.classify import Classifier

Hook = Callable[[], Awaitable[None] | None]
E = TypeVar("E", bound=Event)


class HookLists:
    """The functions that were registered, in order."""

    def __init__(self) -> None:
        self.load_hooks: list[Callable[[], None]] = []
        self.start_hooks: list[Hook] = []
        self.stop_hooks: list[Hook] = []
        self.child_start_hooks: list[Hook] = []
        self.classifiers: list[Classifier] = []
        self.events = EventBus()
        """Passes events to their subscribers in this process."""


class Hooks:
    """The part of `Tidegate` that registers functions to be called."""

    _core: HookLists

    def on_load(self, hook: Callable[[], None]) -> Callable[[], None]:
        """Register a hook that declares more after the application is imported.

        The hook runs in workers, commands and clients, each time the application is loaded by its name. The
        hook must be safe to repeat.
        """
        self._core.load_hooks.append(callable_option("on_load", hook))
        return hook

    def on_start(self, hook: Hook) -> Hook:
        """Register a hook that runs in each worker process's event loop before its first task.

        Open HTTP clients and connections here.
        """
        self._core.start_hooks.append(callable_option("on_start", hook))
        return hook

    def on_child_start(self, hook: Hook) -> Hook:
        """Register a hook that runs once in each child process before its first task: load models here."""
        self._core.child_start_hooks.append(callable_option("on_child_start", hook))
        return hook

    def on_stop(self, hook: Hook) -> Hook:
        """Register a hook that runs in that loop after the last task. Stop hooks run in reverse order."""
        self._core.stop_hooks.append(callable_option("on_stop", hook))
        return hook

    def classifier(self, classify: Classifier) -> Classifier:
        """Register a function that classifies exceptions, called after the `retry=` rules and before ours.

        Args:
            classify: Takes the exception that a task function raised. Returns a `Failure`, or None to leave
                it to the next classifier. A classifier that raises is skipped.
        """
        self._core.classifiers.append(callable_option("classifier", classify))
        return classify

    def on_event(self, kind: type[E]) -> Callable[[Callable[[E], object]], Callable[[E], object]]:
        """Subscribe a function to a type of `tidegate.events`. Use it as a decorator.

        The function is called where the event happens: `RunStarted` and `RunFinished` in the pool process,
        the events of calls in the process that makes the call. The subscriber must return quickly, because
        the event loop of the tasks waits for it. If it raises, that is logged once, and the run is not
        affected.

        Args:
            kind: The type of the events.

        Raises:
            OptionError: `kind` is no type of events, or the function is async or does not take one argument.

        Example:
            >>> from tidegate.events import TaskDied
            >>> app = Tidegate("sqlite:///queue.db")
            >>> @app.on_event(TaskDied)
            ... def page(event: TaskDied) -> None:
            ...     print(event.function, event.failure.reason)
        """
        if kind not in EVENTS:
            raise wrong("on_event", kind, f"use one of {', '.join(known.__name__ for known in EVENTS)}")

        def subscribe(subscriber: Callable[[E], object]) -> Callable[[E], object]:
            require_subscriber(subscriber)
            self._core.events.subscribe(kind, subscriber)
            return subscriber

        return subscribe


def require_subscriber(subscriber: Callable[..., object]) -> None:
    """Raise unless a function can be called with an event.

    Raises:
        OptionError: The hook is async, cannot be called, or does not take exactly one argument.
    """
    callable_option("on_event", subscriber)
    if inspect.iscoroutinefunction(subscriber):
        raise wrong("on_event", subscriber, "use a plain function: nothing would await this one")
    try:
        inspect.signature(subscriber).bind(None)
    except TypeError:
        raise wrong("on_event", subscriber, "use a function that takes one argument, the event") from None
    except ValueError:  # a builtin without a signature, such as print
        return
