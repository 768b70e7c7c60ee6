"""What an application has called at certain moments: when it is loaded, starts, stops, or a task fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tidegate.readers import callable_option

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
        """Register what declares more once the application is imported, in workers, commands and clients.

        It is called each time the application is loaded by its name, and must be safe to repeat.
        """
        self._core.load_hooks.append(callable_option("on_load", hook))
        return hook

    def on_start(self, hook: Hook) -> Hook:
        """Register what runs in each worker process's loop before its first task: open clients here."""
        self._core.start_hooks.append(callable_option("on_start", hook))
        return hook

    def on_child_start(self, hook: Hook) -> Hook:
        """Register what runs once in each child process before its first task: load models here."""
        self._core.child_start_hooks.append(callable_option("on_child_start", hook))
        return hook

    def on_stop(self, hook: Hook) -> Hook:
        """Register what runs in the same loop after the last task, in reverse order."""
        self._core.stop_hooks.append(callable_option("on_stop", hook))
        return hook

    def classifier(self, classify: Classifier) -> Classifier:
        """Register a judgement of exceptions, asked after the rules of `retry=` and before Tidegate's own.

        Args:
            classify: Takes the exception a body raised; returns a `Failure`, or None to leave it to the next.
                One that raises is passed over.
        """
        self._core.classifiers.append(callable_option("classifier", classify))
        return classify
