"""Tidegate: a durable task queue for AI work. The public names, and nothing else.

Each name is loaded when it is first used, so that `import tidegate` costs a program next to nothing.
"""

from typing import TYPE_CHECKING, Any

from tidegate._version import __version__

if TYPE_CHECKING:
    from tidegate.admin import (
        Admin,
        DeadLetterAdmin,
        FunctionAdmin,
        OperationAdmin,
        QueueAdmin,
        ScheduleAdmin,
        TaskAdmin,
        UpstreamAdmin,
        WorkerAdmin,
    )
    from tidegate.admin.history_values import DeathCount, FailureGroup, PeriodStatistics
    from tidegate.admin.operation_values import Operation, RedrivenLetter
    from tidegate.admin.schedule_values import PlannedTick, ScheduleStatus, TickStatus
    from tidegate.admin.tasks import TaskFilters
    from tidegate.admin.values import (
        DeadLetter,
        PauseStatus,
        ProviderLimit,
        QueueStatus,
        RetryBudgetStatus,
        UpstreamStatus,
        WaitExplanation,
        WorkerStatus,
    )
    from tidegate.app import Tidegate
    from tidegate.application.task_schedule import ScheduleDecorator, ScheduleSettings
    from tidegate.calls.keys import Key
    from tidegate.calls.manual_call import ManualCall
    from tidegate.calls.settings import CallTimes
    from tidegate.calls.transport.transport import UpstreamTransport
    from tidegate.calls.upstream import Upstream
    from tidegate.codec import Unstorable
    from tidegate.configured import CallArguments, ConfiguredTaskFunction, PreparedTask
    from tidegate.context import Context, Progress, RetryRequested, TaskStopped
    from tidegate.domain.failure import Failure, LastFailure, Reason, Verdict
    from tidegate.domain.final_hook import FinalState
    from tidegate.domain.schedule import CatchUp, Overlap, TickOutcome
    from tidegate.domain.spec import NO_LIMIT, Exponential, Fixed, Jitter, Polynomial, Priority, Rule
    from tidegate.domain.states import State
    from tidegate.domain.trace import TraceContext
    from tidegate.domain.usage import Usage, UsageTotals
    from tidegate.errors import (
        ArgumentsError,
        CallTooLargeError,
        ConfigError,
        KeyConflictError,
        NotAcceptedError,
        OperationNotFoundError,
        OptionError,
        ResultTimeoutError,
        SchemaError,
        StoreBusyError,
        StoreError,
        StoreUnavailableError,
        TaskCancelledError,
        TaskFailedError,
        TaskNotFoundError,
        TidegateError,
        UnknownFunctionError,
        UnknownScheduleError,
        UnknownUpstreamError,
        UpstreamError,
        UpstreamParkedError,
        UsageError,
        WrongStateError,
    )
    from tidegate.events import (
        CallFinished,
        CallStarted,
        GateOpened,
        GateParked,
        RunFinished,
        RunOutcome,
        RunStarted,
        TaskDied,
        TaskEnqueued,
        WorkerStarted,
        WorkerStopped,
    )
    from tidegate.handle import Handle
    from tidegate.limits.options import UpstreamLimits
    from tidegate.limits.pauses import PauseKind
    from tidegate.limits.values import GateState, ParkedBy
    from tidegate.operations.dead_letters import DeadLetterFilters, DeadLetterReport
    from tidegate.operations.history import DeathFilters, HistoryFilters, StatisticsFilters
    from tidegate.operations.surges import GroupSurge
    from tidegate.options import EnqueueOptions, FinalFunction
    from tidegate.policy.backlog import WaitKind, WaitReason
    from tidegate.policy.classify import Classifier
    from tidegate.policy.drain import Drain, DrainKind
    from tidegate.policy.surge import Surge, SurgeComparison
    from tidegate.store.operation_rows import LetterState, OperationKind, OperationState
    from tidegate.store.rows import ActionStatus, CancelStatus
    from tidegate.task import TaskFunction
    from tidegate.task_settings import TaskSettings, discard, on
    from tidegate.values import Chunk, HistoryEntry, TaskStatus
    from tidegate.verdicts import Permanent, RetryAfter, Transient
    from tidegate.worker.embedded import EmbeddedWorker
    from tidegate.worker.settings import Pool, Timings

__all__ = [
    "NO_LIMIT",
    "ActionStatus",
    "Admin",
    "ArgumentsError",
    "CallArguments",
    "CallFinished",
    "CallStarted",
    "CallTimes",
    "CallTooLargeError",
    "CancelStatus",
    "CatchUp",
    "Chunk",
    "Classifier",
    "ConfigError",
    "ConfiguredTaskFunction",
    "Context",
    "DeadLetter",
    "DeadLetterAdmin",
    "DeadLetterFilters",
    "DeadLetterReport",
    "DeathCount",
    "DeathFilters",
    "Drain",
    "DrainKind",
    "EmbeddedWorker",
    "EnqueueOptions",
    "Exponential",
    "Failure",
    "FailureGroup",
    "FinalFunction",
    "FinalState",
    "Fixed",
    "FunctionAdmin",
    "GateOpened",
    "GateParked",
    "GateState",
    "GroupSurge",
    "Handle",
    "HistoryEntry",
    "HistoryFilters",
    "Jitter",
    "Key",
    "KeyConflictError",
    "LastFailure",
    "LetterState",
    "ManualCall",
    "NotAcceptedError",
    "Operation",
    "OperationAdmin",
    "OperationKind",
    "OperationNotFoundError",
    "OperationState",
    "OptionError",
    "Overlap",
    "ParkedBy",
    "PauseKind",
    "PauseStatus",
    "PeriodStatistics",
    "Permanent",
    "PlannedTick",
    "Polynomial",
    "Pool",
    "PreparedTask",
    "Priority",
    "Progress",
    "ProviderLimit",
    "QueueAdmin",
    "QueueStatus",
    "Reason",
    "RedrivenLetter",
    "ResultTimeoutError",
    "RetryAfter",
    "RetryBudgetStatus",
    "RetryRequested",
    "Rule",
    "RunFinished",
    "RunOutcome",
    "RunStarted",
    "ScheduleAdmin",
    "ScheduleDecorator",
    "ScheduleSettings",
    "ScheduleStatus",
    "SchemaError",
    "State",
    "StatisticsFilters",
    "StoreBusyError",
    "StoreError",
    "StoreUnavailableError",
    "Surge",
    "SurgeComparison",
    "TaskAdmin",
    "TaskCancelledError",
    "TaskDied",
    "TaskEnqueued",
    "TaskFailedError",
    "TaskFilters",
    "TaskFunction",
    "TaskNotFoundError",
    "TaskSettings",
    "TaskStatus",
    "TaskStopped",
    "TickOutcome",
    "TickStatus",
    "Tidegate",
    "TidegateError",
    "Timings",
    "TraceContext",
    "Transient",
    "UnknownFunctionError",
    "UnknownScheduleError",
    "UnknownUpstreamError",
    "Unstorable",
    "Upstream",
    "UpstreamAdmin",
    "UpstreamError",
    "UpstreamLimits",
    "UpstreamParkedError",
    "UpstreamStatus",
    "UpstreamTransport",
    "Usage",
    "UsageError",
    "UsageTotals",
    "Verdict",
    "WaitExplanation",
    "WaitKind",
    "WaitReason",
    "WorkerAdmin",
    "WorkerStarted",
    "WorkerStatus",
    "WorkerStopped",
    "WrongStateError",
    "__version__",
    "discard",
    "on",
]

_HOMES = {
    "NO_LIMIT": "tidegate.domain.spec",
    "ActionStatus": "tidegate.store.rows",
    "Admin": "tidegate.admin",
    "ArgumentsError": "tidegate.errors",
    "CallArguments": "tidegate.configured",
    "CallFinished": "tidegate.events",
    "CallStarted": "tidegate.events",
    "CallTimes": "tidegate.calls.settings",
    "CallTooLargeError": "tidegate.errors",
    "CancelStatus": "tidegate.store.rows",
    "CatchUp": "tidegate.domain.schedule",
    "Chunk": "tidegate.values",
    "Classifier": "tidegate.policy.classify",
    "ConfigError": "tidegate.errors",
    "ConfiguredTaskFunction": "tidegate.configured",
    "Context": "tidegate.context",
    "DeadLetter": "tidegate.admin.values",
    "DeadLetterAdmin": "tidegate.admin",
    "DeadLetterFilters": "tidegate.operations.dead_letters",
    "DeadLetterReport": "tidegate.operations.dead_letters",
    "DeathCount": "tidegate.admin.history_values",
    "DeathFilters": "tidegate.operations.history",
    "Drain": "tidegate.policy.drain",
    "DrainKind": "tidegate.policy.drain",
    "EmbeddedWorker": "tidegate.worker.embedded",
    "EnqueueOptions": "tidegate.options",
    "Exponential": "tidegate.domain.spec",
    "Failure": "tidegate.domain.failure",
    "FailureGroup": "tidegate.admin.history_values",
    "FinalFunction": "tidegate.options",
    "FinalState": "tidegate.domain.final_hook",
    "Fixed": "tidegate.domain.spec",
    "FunctionAdmin": "tidegate.admin",
    "GateOpened": "tidegate.events",
    "GateParked": "tidegate.events",
    "GateState": "tidegate.limits.values",
    "GroupSurge": "tidegate.operations.surges",
    "Handle": "tidegate.handle",
    "HistoryEntry": "tidegate.values",
    "HistoryFilters": "tidegate.operations.history",
    "Jitter": "tidegate.domain.spec",
    "Key": "tidegate.calls.keys",
    "KeyConflictError": "tidegate.errors",
    "LastFailure": "tidegate.domain.failure",
    "LetterState": "tidegate.store.operation_rows",
    "ManualCall": "tidegate.calls.manual_call",
    "NotAcceptedError": "tidegate.errors",
    "Operation": "tidegate.admin.operation_values",
    "OperationAdmin": "tidegate.admin",
    "OperationKind": "tidegate.store.operation_rows",
    "OperationNotFoundError": "tidegate.errors",
    "OperationState": "tidegate.store.operation_rows",
    "OptionError": "tidegate.errors",
    "Overlap": "tidegate.domain.schedule",
    "ParkedBy": "tidegate.limits.values",
    "PauseKind": "tidegate.limits.pauses",
    "PauseStatus": "tidegate.admin.values",
    "PeriodStatistics": "tidegate.admin.history_values",
    "Permanent": "tidegate.verdicts",
    "PlannedTick": "tidegate.admin.schedule_values",
    "Polynomial": "tidegate.domain.spec",
    "Pool": "tidegate.worker.settings",
    "PreparedTask": "tidegate.configured",
    "Priority": "tidegate.domain.spec",
    "Progress": "tidegate.context",
    "ProviderLimit": "tidegate.admin.values",
    "QueueAdmin": "tidegate.admin",
    "QueueStatus": "tidegate.admin.values",
    "Reason": "tidegate.domain.failure",
    "RedrivenLetter": "tidegate.admin.operation_values",
    "ResultTimeoutError": "tidegate.errors",
    "RetryAfter": "tidegate.verdicts",
    "RetryBudgetStatus": "tidegate.admin.values",
    "RetryRequested": "tidegate.context",
    "Rule": "tidegate.domain.spec",
    "RunFinished": "tidegate.events",
    "RunOutcome": "tidegate.events",
    "RunStarted": "tidegate.events",
    "ScheduleAdmin": "tidegate.admin",
    "ScheduleDecorator": "tidegate.application.task_schedule",
    "ScheduleSettings": "tidegate.application.task_schedule",
    "ScheduleStatus": "tidegate.admin.schedule_values",
    "SchemaError": "tidegate.errors",
    "State": "tidegate.domain.states",
    "StatisticsFilters": "tidegate.operations.history",
    "StoreBusyError": "tidegate.errors",
    "StoreError": "tidegate.errors",
    "StoreUnavailableError": "tidegate.errors",
    "Surge": "tidegate.policy.surge",
    "SurgeComparison": "tidegate.policy.surge",
    "TaskAdmin": "tidegate.admin",
    "TaskCancelledError": "tidegate.errors",
    "TaskDied": "tidegate.events",
    "TaskEnqueued": "tidegate.events",
    "TaskFailedError": "tidegate.errors",
    "TaskFilters": "tidegate.admin.tasks",
    "TaskFunction": "tidegate.task",
    "TaskNotFoundError": "tidegate.errors",
    "TaskSettings": "tidegate.task_settings",
    "TaskStatus": "tidegate.values",
    "TaskStopped": "tidegate.context",
    "TickOutcome": "tidegate.domain.schedule",
    "TickStatus": "tidegate.admin.schedule_values",
    "Tidegate": "tidegate.app",
    "TidegateError": "tidegate.errors",
    "Timings": "tidegate.worker.settings",
    "TraceContext": "tidegate.domain.trace",
    "Transient": "tidegate.verdicts",
    "UnknownFunctionError": "tidegate.errors",
    "UnknownScheduleError": "tidegate.errors",
    "UnknownUpstreamError": "tidegate.errors",
    "Unstorable": "tidegate.codec",
    "Upstream": "tidegate.calls.upstream",
    "UpstreamAdmin": "tidegate.admin",
    "UpstreamError": "tidegate.errors",
    "UpstreamLimits": "tidegate.limits.options",
    "UpstreamParkedError": "tidegate.errors",
    "UpstreamStatus": "tidegate.admin.values",
    "UpstreamTransport": "tidegate.calls.transport.transport",
    "Usage": "tidegate.domain.usage",
    "UsageError": "tidegate.errors",
    "UsageTotals": "tidegate.domain.usage",
    "Verdict": "tidegate.domain.failure",
    "WaitExplanation": "tidegate.admin.values",
    "WaitKind": "tidegate.policy.backlog",
    "WaitReason": "tidegate.policy.backlog",
    "WorkerAdmin": "tidegate.admin",
    "WorkerStarted": "tidegate.events",
    "WorkerStatus": "tidegate.admin.values",
    "WorkerStopped": "tidegate.events",
    "WrongStateError": "tidegate.errors",
    "discard": "tidegate.task_settings",
    "on": "tidegate.task_settings",
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
