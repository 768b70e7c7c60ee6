"""Tidegate: a durable task queue for AI work. The public names, and nothing else.

Each name is loaded when it is first used, so that `import tidegate` costs a program next to nothing.
"""

from typing import TYPE_CHECKING, Any

from tidegate._version import __version__

if TYPE_CHECKING:
    from tidegate.app import Tidegate
    from tidegate.calls.keys import Key
    from tidegate.calls.settings import CallTimes
    from tidegate.codec import Unstorable
    from tidegate.configured import CallArguments, ConfiguredTaskFunction, PreparedTask
    from tidegate.context import Context, Progress, TaskStopped
    from tidegate.domain.failure import Failure, LastFailure, Reason, Verdict
    from tidegate.domain.spec import NO_LIMIT, Exponential, Fixed, Polynomial, Priority
    from tidegate.domain.states import State
    from tidegate.domain.usage import UsageTotals
    from tidegate.errors import (
        ArgumentsError,
        ConfigError,
        KeyConflictError,
        OptionError,
        Permanent,
        ResultTimeoutError,
        RetryAfter,
        StoreBusyError,
        StoreError,
        StoreUnavailableError,
        TaskCancelledError,
        TaskFailedError,
        TaskNotFoundError,
        TidegateError,
        Transient,
        UsageError,
    )
    from tidegate.handle import Handle
    from tidegate.store.rows import CancelStatus
    from tidegate.task import TaskFunction, discard, on
    from tidegate.values import Chunk, HistoryEntry, TaskStatus
    from tidegate.worker.settings import Pool, Timings

__all__ = [
    "NO_LIMIT",
    "ArgumentsError",
    "CallArguments",
    "CallTimes",
    "CancelStatus",
    "Chunk",
    "ConfigError",
    "ConfiguredTaskFunction",
    "Context",
    "Exponential",
    "Failure",
    "Fixed",
    "Handle",
    "HistoryEntry",
    "Key",
    "KeyConflictError",
    "LastFailure",
    "OptionError",
    "Permanent",
    "Polynomial",
    "Pool",
    "PreparedTask",
    "Priority",
    "Progress",
    "Reason",
    "ResultTimeoutError",
    "RetryAfter",
    "State",
    "StoreBusyError",
    "StoreError",
    "StoreUnavailableError",
    "TaskCancelledError",
    "TaskFailedError",
    "TaskFunction",
    "TaskNotFoundError",
    "TaskStatus",
    "TaskStopped",
    "Tidegate",
    "TidegateError",
    "Timings",
    "Transient",
    "Unstorable",
    "UsageError",
    "UsageTotals",
    "Verdict",
    "__version__",
    "discard",
    "on",
]

_HOMES = {
    "ArgumentsError": "tidegate.errors",
    "CallArguments": "tidegate.configured",
    "CallTimes": "tidegate.calls.settings",
    "CancelStatus": "tidegate.store.rows",
    "Chunk": "tidegate.values",
    "ConfigError": "tidegate.errors",
    "ConfiguredTaskFunction": "tidegate.configured",
    "Context": "tidegate.context",
    "Exponential": "tidegate.domain.spec",
    "Failure": "tidegate.domain.failure",
    "Fixed": "tidegate.domain.spec",
    "Handle": "tidegate.handle",
    "HistoryEntry": "tidegate.values",
    "Key": "tidegate.calls.keys",
    "KeyConflictError": "tidegate.errors",
    "LastFailure": "tidegate.domain.failure",
    "NO_LIMIT": "tidegate.domain.spec",
    "OptionError": "tidegate.errors",
    "Permanent": "tidegate.errors",
    "Polynomial": "tidegate.domain.spec",
    "Pool": "tidegate.worker.settings",
    "PreparedTask": "tidegate.configured",
    "Priority": "tidegate.domain.spec",
    "Progress": "tidegate.context",
    "Reason": "tidegate.domain.failure",
    "ResultTimeoutError": "tidegate.errors",
    "RetryAfter": "tidegate.errors",
    "State": "tidegate.domain.states",
    "StoreBusyError": "tidegate.errors",
    "StoreError": "tidegate.errors",
    "StoreUnavailableError": "tidegate.errors",
    "TaskCancelledError": "tidegate.errors",
    "TaskFailedError": "tidegate.errors",
    "TaskFunction": "tidegate.task",
    "TaskNotFoundError": "tidegate.errors",
    "TaskStatus": "tidegate.values",
    "TaskStopped": "tidegate.context",
    "Tidegate": "tidegate.app",
    "TidegateError": "tidegate.errors",
    "Timings": "tidegate.worker.settings",
    "Transient": "tidegate.errors",
    "Unstorable": "tidegate.codec",
    "UsageError": "tidegate.errors",
    "UsageTotals": "tidegate.domain.usage",
    "Verdict": "tidegate.domain.failure",
    "discard": "tidegate.task",
    "on": "tidegate.task",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
