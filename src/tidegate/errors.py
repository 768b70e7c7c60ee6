"""Every error a user can meet, in one tree.

    TidegateError
    ├── UsageError                 fix the call
    │   ├── ArgumentsError         arguments do not fit the function, or cannot be stored
    │   ├── OptionError            an option's value is wrong
    │   ├── KeyConflictError       this key= already names a task with another payload
    │   ├── NotAcceptedError       no task has that id, or its state forbids the request
    │   │   ├── TaskNotFoundError
    │   │   ├── WrongStateError
    │   │   ├── OperationNotFoundError
    │   │   ├── MapNotFoundError
    │   │   ├── DoubtNotFoundError
    │   │   ├── ApprovalNotFoundError
    │   │   ├── ApprovalClosedError    somebody has answered, or nobody waits any more
    │   │   └── DataRemovedError    the task is kept, but what was asked for is not
    │   ├── UnknownFunctionError   no such task function is declared
    │   ├── UnknownUpstreamError   no such upstream is known to the store
    │   └── UnknownScheduleError   no schedule of that name is stored
    ├── ConfigError                fix the configuration
    │   └── SchemaError            the database's schema is older or too new
    ├── StoreError                 try again
    │   ├── StoreUnavailableError  the store cannot be reached, is full, or was lost
    │   ├── ArchiveError           the archive cannot be written or read; nothing was removed
    │   └── StoreBusyError         another process locked the store for too long; nothing was written
    ├── UpstreamError              a call to an outside service was refused
    │   ├── UpstreamParkedError    its gate is closed for now
    │   └── CallTooLargeError      larger than the upstream's whole limit
    ├── StepError                  a step of a task cannot be done
    │   ├── StepInDoubtError       it may have been done; a person must decide
    │   ├── StepRejectedError      a person decided that it must not be done again
    │   ├── StepChangedError       its arguments differ from those of its recorded result
    │   ├── EventTimeoutError      the event that it waited for did not come in time
    │   ├── ProviderJobFailedError  a provider's job has no result
    │   ├── ProviderJobTimeoutError  a provider's job took too long
    │   └── ApprovalTimeoutError   nobody answered its question in time
    ├── ResultTimeoutError         the task is not final yet
    └── TaskFailedError            the task is final, without success
        └── TaskCancelledError

A task raises `Transient`, `Permanent` and `RetryAfter` (in `tidegate.verdicts`) to state how its failure must
be treated. They are not errors of Tidegate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TidegateError(Exception):
    """The base of every error that Tidegate raises.

    Args:
        message: What is wrong and where, in one sentence.
        fix: What to do about the error; printed after an arrow.
        facts: The values in the message. Each is an attribute that the class declares with its type;
            one that is not given has its empty value.
    """

    code = "TG000"
    """Stable across releases; each has a heading in `docs/reference/errors.md`."""

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


def _picklable(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that cannot be pickled, such as an open connection, as text that can."""
    import pickle
    import reprlib

    replaced = {}
    for name, value in facts.items():
        try:
            pickle.dumps(value)
        except Exception:  # pickling calls code of the value's class
            replaced[name] = reprlib.repr(value)
    return replaced


class UsageError(TidegateError):
    """The call is wrong. The same call will be refused again."""

    code = "TG100"


class ArgumentsError(UsageError):
    """Arguments do not fit the task function, or one cannot be stored."""

    code = "TG104"
    path: str = ""
    """The wrong argument or part of one, such as `doc.tags[0]`; empty if it concerns all arguments."""
    type: str = ""
    """The name of the value's class; empty if its class is not the problem."""
    size: int | None = None
    """Size of the arguments in bytes, if they are too large; None if counting stopped early."""
    limit: int | None = None
    """The largest allowed size in bytes, if the arguments are too large."""
    function: str = ""
    """The function, as `module:function`; empty if there is none."""
    signature: str = ""
    """Its parameters: `(a, b=2)`."""
    index: int | None = None
    """The index of the task in the argument of `enqueue_many`, from 0; None for a single enqueue."""


class OptionError(UsageError):
    """An option has an invalid value."""

    code = "TG105"
    option: str = ""
    """The option's name. If two options exclude each other, the first one."""
    value: object = None
    """The given value. In another process it is the value's `repr` if the value cannot be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.fix, self.facts | _picklable(self.facts)))


class KeyConflictError(UsageError):
    """The idempotency key belongs to a task with another payload."""

    code = "TG109"
    key: str = ""
    task_id: str = ""
    """The task that has the key."""


class UnknownFunctionError(UsageError):
    """No task function of that name is declared, or several end in it."""

    code = "TG110"
    function: str = ""
    """The name that the caller gave."""


class UnknownUpstreamError(UsageError):
    """No upstream of that name is known to the store."""

    code = "TG111"
    upstream: str = ""
    """The name that the caller gave."""


class UnknownScheduleError(UsageError):
    """No schedule of that name is stored."""

    code = "TG112"
    schedule: str = ""
    """The name that the caller gave."""


class NotAcceptedError(UsageError):
    """The request does not fit the state of the store."""

    code = "TG120"
    functions: tuple[str, ...] = ()
    """Task functions that no application declares, if this caused the error."""
    place: str = ""
    """The database that the tasks moved to, or are moving to, if this caused the error."""
    workers: int = 0
    """Number of live workers at the source of a move, if this caused the error."""
    running: int = 0
    """Number of running tasks at the source of a move, if this caused the error."""


class TaskNotFoundError(NotAcceptedError):
    """No task has this id: it never existed, or its retention time is over."""

    code = "TG121"
    task_id: str = ""
    """The id as the caller gave it, which may be a short id."""


class WrongStateError(NotAcceptedError):
    """The task exists, but its state forbids the request."""

    code = "TG122"
    task_id: str = ""
    state: str = ""
    """The task's state, a value of `State`."""
    batch_id: str = ""
    """The batch of an `enqueue_many` that was deleted or closed; empty if the error is about a task."""


class OperationNotFoundError(NotAcceptedError):
    """No operation has this id: it never existed, or its retention time is over."""

    code = "TG123"
    operation_id: str = ""
    """The id as the caller gave it, which may be a short id."""


class MapNotFoundError(NotAcceptedError):
    """No map has this id: it never existed, or its retention time is over."""

    code = "TG125"
    map_id: str = ""
    """The id as the caller gave it, which may be a short id."""


class DoubtNotFoundError(NotAcceptedError):
    """No entry of the ledger of doubts has this number, or its task is gone."""

    code = "TG126"
    doubt_id: int = 0


class ApprovalNotFoundError(NotAcceptedError):
    """The task has asked no such question, or it is not clear which of its questions is meant."""

    code = "TG127"
    task_id: str = ""
    key: str = ""
    """The key of the question; empty if none was given."""


class ApprovalClosedError(NotAcceptedError):
    """The question takes no answer any more. Nothing was changed."""

    code = "TG128"
    task_id: str = ""
    key: str = ""
    state: str = ""
    """`approved` or `rejected`: somebody has answered. `timed_out`: the time is over. `final`: the task has
    ended."""
    by: str = ""
    """Who has answered."""
    at: float = 0.0
    """When the question was answered or timed out, in seconds since the epoch; 0 if neither."""


class DataRemovedError(NotAcceptedError):
    """The task still exists, but its retention removed its arguments or its result earlier."""

    code = "TG124"
    task_id: str = ""
    data: str = ""
    """`payloads` or `results`: the setting of retention."""


class ConfigError(TidegateError):
    """The configuration is wrong. Nothing was started."""

    code = "TG200"
    place: str = ""
    """The file, table of a file, variable, database or address that is wrong, without secrets."""
    option: str = ""
    """The wrong setting at that place; empty if it is not a setting."""
    function: str = ""
    """The task function that cannot be declared; empty if it is not about one."""
    parameter: str = ""
    """The function's parameter with an unusable annotation, or `return`."""


class SchemaError(ConfigError):
    """The database's schema is too old, too new, or of another generation for this version of Tidegate.

    `place` is the database, without credentials.
    """

    code = "TG201"
    database_version: int | None = None
    """Number of the database's newest migration; None if it has none of this generation."""
    code_version: int | None = None
    """Number of the newest migration that this version of Tidegate knows."""
    generation: str = ""
    """Name of the migration that shows that the database is of another generation; else empty."""
    schema: str = ""
    """The schema of a PostgreSQL database, if it contains no tables of Tidegate."""


class StoreError(TidegateError):
    """The store could not do this now. The same call may succeed later."""

    code = "TG300"
    place: str = ""
    """The database: the path of its file, or its server and name without credentials."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached, its disk is full, or the connection was lost.

    A write in progress may or may not have been committed. Every write of Tidegate can safely be repeated
    with the same ids.
    """

    code = "TG301"
    may_pass: bool = False
    """Whether the problem may end by itself, such as a restarting server or too many connections."""
    sqlstate: str = ""
    """PostgreSQL's error code; empty if there is none."""
    seconds: float | None = None
    """Seconds that the caller waited, if the store did not answer in time."""
    is_replaced: bool = False
    """Whether the database file was replaced while the store had it open."""


class StoreBusyError(StoreError):
    """Another process held the store's lock for longer than the busy timeout. Nothing was written."""

    code = "TG302"
    seconds: float | None = None
    """Seconds that the caller waited for the lock; None if unknown."""


class ArchiveError(StoreError):
    """The archive of removed rows cannot be written or read.

    The tasks that this claim should have taken stay in the store.

    `place` is its folder.
    """

    code = "TG303"


class ResultTimeoutError(TidegateError, TimeoutError):
    """The task did not reach a final state in time. The task is still active; ask again later."""

    code = "TG400"
    task_id: str = ""
    """Empty if a whole queue or a map was waited for."""
    seconds: float = 0.0
    """Seconds that the caller waited."""


class TaskFailedError(TidegateError):
    """The task is dead."""

    code = "TG401"
    task_id: str = ""
    reason: str = ""
    """A value of `Reason`."""
    error_class: str = ""
    """Dotted name of the exception class; empty if there was none."""
    error_message: str = ""


class TaskCancelledError(TaskFailedError):
    """The task was cancelled."""

    code = "TG402"


class UpstreamError(TidegateError):
    """A call to an upstream was not made."""

    code = "TG500"
    upstream: str = ""


class UpstreamParkedError(UpstreamError):
    """The upstream's gate is closed, or its limits allow no call in time. The call was not made.

    Do not catch it in a task: the task then waits, without a charged attempt, until the gate opens.
    """

    code = "TG501"
    reason: str = ""
    """A value of `Reason`."""
    wait_seconds: float | None = None
    """Seconds until the call should be tried again; None if only a person can open the gate."""


class CallTooLargeError(UpstreamError):
    """A single call needs more than the upstream's whole limit. Waiting does not help."""

    code = "TG502"


class StepError(TidegateError):
    """A step of a task cannot be done. The task is dead, without a retry."""

    code = "TG600"

    step: str = ""
    """The step's name."""


class StepInDoubtError(StepError):
    """An earlier run may have done the step, and its `in_doubt` is `ask`: a person must decide."""

    code = "TG601"


class StepRejectedError(StepError):
    """A person decided that the step must not be done again."""

    code = "TG602"


class StepChangedError(StepError):
    """The step's arguments differ from those of its recorded result, and its `on_change` is `error`."""

    code = "TG603"


class EventTimeoutError(StepError, TimeoutError):
    """The event that a task waited for was not sent in time. A later run of the task gets the same error."""

    code = "TG604"
    event: str = ""
    """The event's name."""


class ProviderJobFailedError(StepError):
    """A provider's job has no result, and will get none. A `poll` raises it when the provider says so.

    Each run gets the same error until one fails. Then a retry or a redrive submits the job once more.
    """

    code = "TG605"

    job_id: str = ""
    """What the provider calls the job."""


class ProviderJobTimeoutError(StepError, TimeoutError):
    """A provider's job took longer than the `timeout` of `ctx.remote`."""

    code = "TG606"

    job_id: str = ""
    """What the provider calls the job."""


class ApprovalTimeoutError(StepError, TimeoutError):
    """Nobody answered the question of a task in time. A later run gets the same; a redrive asks again."""

    code = "TG607"
    question: str = ""
