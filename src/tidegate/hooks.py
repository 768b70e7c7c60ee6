"""Functions of the application that Tidegate calls when it is loaded, starts, stops, or a task fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tidegate.domain.readers import callable_option

if TYPE_CHECKING:
    from tidegate.policy.classify import Classifier

Hook = Callable[[], Awaitable[None] | None]


class HookLists:
    """The functions that were registered, in order."""

    def __init__(self) -> None:
        self.load_hooks: list[Callable[[], None]] = []
        self.start_hooks: list[Hook] = []
        self.stop_hooks: list[Hook] = []
        self.child_start_hooks: list[Hook] = []
        self.classifiers: list[Classifier] = []


class Hooks:
    """The part of `Tidegate` that registers functions to be called."""

    _core: HookLists

    def on_load(self, hook: Callable[[], None]) -> Callable[[], None]:
        """Register a hook that declares more after the application is imported.

        It runs in workers, commands and clients, each time the application is loaded by its name. It must be
        safe to repeat.
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
