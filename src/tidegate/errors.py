"""Every error a user can meet, in one tree.

    TidegateError
    ├── UsageError                 fix the call
    │   ├── ArgumentsError         arguments do not fit the function, or cannot be stored
    │   ├── OptionError            an option's value is wrong
    │   ├── KeyConflictError       this key= already names a task with another payload
    │   ├── NotAcceptedError       no task has that id, or its state forbids the request
    │   │   ├── TaskNotFoundError
    │   │   └── WrongStateError
    │   ├── UnknownFunctionError   no such task function is declared
    │   └── UnknownUpstreamError   no such upstream is known to the store
    ├── ConfigError                fix the configuration
    │   └── SchemaError            the database's schema is older or too new
    ├── StoreError                 try again
    │   ├── StoreUnavailableError  the store cannot be reached, is full, or was lost
    │   └── StoreBusyError         another process locked the store for too long; nothing was written
    ├── UpstreamError              a call to an outside service was refused
    │   ├── UpstreamParkedError    its gate is closed for now
    │   └── CallTooLargeError      larger than the upstream's whole limit
    ├── ResultTimeoutError         the task is not final yet
    └── TaskFailedError            the task is final, without success
        └── TaskCancelledError

A task raises `Transient`, `Permanent` and `RetryAfter` (in `tidegate.verdicts`) to state how its failure must
be treated. They are not errors of Tidegate.
"""

from __future__ import annotations

from typing import Any


class TidegateError(Exception):
    """The base of every error that Tidegate raises.

    Args:
        message: What is wrong and where, in one sentence.
        fix: What to do about it; printed after an arrow.
        facts: The values in the message, kept in the attribute `facts`.
    """

    code = "TG000"
    """Stable across releases; each has a heading in `docs/errors.md`."""

    def __init__(self, message: str, *, fix: str = "", **facts: Any) -> None:
        self.message = message
        self.fix = fix
        self.facts = facts
        for name, value in facts.items():
            if name in _declared_fields(type(self)):
                setattr(self, name, value)
        super().__init__(f"{self.code} {message}" + (f" → {fix}" if fix else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.fix, self.facts))


def _declared_fields(kind: type) -> frozenset[str]:
    """Return the facts that a class of errors declares as attributes."""
    return frozenset(name for each in kind.__mro__ for name in vars(each).get("__annotations__", ()))


def _rebuild(kind: type[TidegateError], message: str, fix: str, facts: dict[str, Any]) -> TidegateError:
    return kind(message, fix=fix, **facts)


class UsageError(TidegateError):
    """The call is wrong. The same call will be refused again."""

    code = "TG100"


class ArgumentsError(UsageError):
    """Arguments do not fit the task function, or one cannot be stored. `facts["path"]` names the place."""

    code = "TG104"
    path: str = ""
    """Which argument or part of it: `doc.tags[0]`; empty: all of them."""
    function: str = ""
    """The name of the task function; empty where there is none."""


class OptionError(UsageError):
    """An option has an invalid value."""

    code = "TG105"


class KeyConflictError(UsageError):
    """The idempotency key belongs to a task with another payload. `facts["task_id"]` is that task."""

    code = "TG109"
    key: str = ""
    task_id: str = ""
    """The task that has the key."""


class UnknownFunctionError(UsageError):
    """No task function of that name is declared."""

    code = "TG110"


class UnknownUpstreamError(UsageError):
    """No upstream of that name is known to the store. `facts["upstream"]` is the name."""

    code = "TG111"
    upstream: str = ""


class NotAcceptedError(UsageError):
    """The request does not fit the state of the store."""

    code = "TG120"
    functions: tuple[str, ...] = ()
    """Task functions that no application declares, where that is why."""


class TaskNotFoundError(NotAcceptedError):
    """No task has this id: it never existed, or its retention time is over."""

    code = "TG121"
    task_id: str = ""


class WrongStateError(NotAcceptedError):
    """The task exists, but its state forbids the request."""

    code = "TG122"


class ConfigError(TidegateError):
    """The configuration is wrong. Nothing was started."""

    code = "TG200"


class SchemaError(ConfigError):
    """The database's schema is older than this version of Tidegate needs, or too new for it."""

    code = "TG201"


class StoreError(TidegateError):
    """The store could not do this now. The same call may succeed later."""

    code = "TG300"


class StoreUnavailableError(StoreError):
    """The store cannot be reached, its disk is full, or the connection was lost.

    A write in progress may or may not have been committed. Every write of Tidegate can safely be repeated
    with the same ids.
    """

    code = "TG301"


class StoreBusyError(StoreError):
    """Another process held the store's lock for longer than the busy timeout. Nothing was written."""

    code = "TG302"


class ResultTimeoutError(TidegateError, TimeoutError):
    """The task did not reach a final state in time. It is still active; ask again later."""

    code = "TG400"
    task_id: str = ""


class TaskFailedError(TidegateError):
    """The task is dead. `facts` holds `task_id`, `reason`, `error_class` and `error_message`."""

    code = "TG401"
    task_id: str = ""
    reason: str = ""
    """A word of `Reason`."""
    error_class: str = ""
    """Dotted name of the exception class; empty if there was none."""
    error_message: str = ""


class TaskCancelledError(TaskFailedError):
    """The task was cancelled."""

    code = "TG402"


class UpstreamError(TidegateError):
    """A call to an upstream was not made. `facts["upstream"]` names it."""

    code = "TG500"
    upstream: str = ""


class UpstreamParkedError(UpstreamError):
    """The upstream's gate is closed, or its limits allow no call in time. The call was not made.

    Do not catch it in a task: the task then waits, without a charged attempt, until the gate opens. `facts`
    holds `upstream`, `reason` (a value of `Reason`) and `wait_seconds` (None if a person must open the gate).
    """

    code = "TG501"
    reason: str = ""
    """A word of `Reason`."""
    wait_seconds: float | None = None
    """Until the call is worth another try; None: only a person opens the gate."""


class CallTooLargeError(UpstreamError):
    """One call needs more than the upstream's whole limit. Waiting does not help."""

    code = "TG502"
