"""Test your tasks: `Kit` gives an application its own store for one test, and controls its tasks and clock.

Also tools for Tidegate's own tests and demo: a simulated provider and virtual time. Each name is loaded when
it is first used: pytest imports this package at its start in every project.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.testing.kit.cases import AsyncKitTestCase, KitMixin, KitTestCase
    from tidegate.testing.kit.enqueued import EnqueuedTask
    from tidegate.testing.kit.kit import Kit
    from tidegate.testing.kit.network_guard import NetworkBlockedError, blocked_network
    from tidegate.testing.kit.results import (
        Drained,
        DrainedRun,
        KitError,
        NeverEndedError,
        RunFailedError,
    )
    from tidegate.testing.kit.scripted_upstream import ScriptedRequest, ScriptedUpstream
    from tidegate.testing.kit.stored_task import enqueue_stored

__all__ = [
    "AsyncKitTestCase",
    "Drained",
    "DrainedRun",
    "EnqueuedTask",
    "Kit",
    "KitError",
    "KitMixin",
    "KitTestCase",
    "NetworkBlockedError",
    "NeverEndedError",
    "RunFailedError",
    "ScriptedRequest",
    "ScriptedUpstream",
    "blocked_network",
    "enqueue_stored",
]

_HOMES = {
    "AsyncKitTestCase": "cases",
    "Drained": "results",
    "DrainedRun": "results",
    "EnqueuedTask": "enqueued",
    "Kit": "kit",
    "KitError": "results",
    "KitMixin": "cases",
    "KitTestCase": "cases",
    "NetworkBlockedError": "network_guard",
    "NeverEndedError": "results",
    "RunFailedError": "results",
    "ScriptedRequest": "scripted_upstream",
    "ScriptedUpstream": "scripted_upstream",
    "blocked_network": "network_guard",
    "enqueue_stored": "stored_task",
}
"""The module of `tidegate.testing.kit` that each name lives in."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.kit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
