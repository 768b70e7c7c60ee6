"""Schedules of task functions: what `@app.schedule(…)` takes, and what it declares."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

from tidegate.domain.readers import Seconds, duration_deadline, require_names, wrong
from tidegate.domain.schedule import ScheduleRule
from tidegate.domain.spec import NO_LIMIT, Priority
from tidegate.errors import ArgumentsError, ConfigError, UsageError
from tidegate.options import read_options
from tidegate.schedule.declared import DeclaredSchedule
from tidegate.schedule.options import (
    RULE_SETTINGS,
    CatchUpName,
    OverlapName,
    read_rule,
    schedule_name_option,
)
from tidegate.schedule.scheduled_tasks import scheduled_task, stored_limit
from tidegate.store.rows import NewTask
from tidegate.task import TaskFunction

F = TypeVar("F", bound=TaskFunction[..., Any, Any])

ScheduleArguments = tuple[Any, ...] | Mapping[str, Any]
"""The arguments of each task: a tuple of positional ones, or a mapping of keyword ones."""
TASK_OPTIONS = (
    "queue",
    "priority",
    "tenant",
    "total_timeout",
    "deadline",
    "timeout",
    "max_attempts",
    "labels",
)
"""The options of an enqueue that a schedule may set for its tasks."""


class ScheduleSettings(TypedDict, total=False):
    """The settings of `@app.schedule(…)`. Durations are seconds, a timedelta, or text such as `30m`.

    From `queue` on they are options of each task, as in `EnqueueOptions`.
    """

    name: str | None
    """The schedule's name; the task function's unless given. If a function has several schedules, give each
    a name."""
    args: ScheduleArguments
    """The arguments of each task: a tuple of positional ones, or a mapping of keyword ones."""
    timezone: str
    """The IANA time zone of a cron expression, such as `Europe/Berlin`; `UTC` unless given."""
    catch_up: CatchUpName
    """What happens to ticks that were missed because no process could fire them. `one` (unless given): the
    latest fires, late. `all`: each fires, in order. `none`: they are only recorded."""
    catch_up_limit: int
    """The most ticks that `catch_up="all"` makes up, the latest ones; 100 unless given."""
    catch_up_window: Seconds
    """How long ago a tick may have been missed for `catch_up="all"`; `1d` unless given."""
    overlap: OverlapName
    """What happens to a tick while a task of an earlier tick is not final: it is ready, running, waiting for
    a retry, parked or held. `skip` (unless given): the tick is skipped. `queue`: it waits for that task.
    `allow`: it fires."""
    not_later_than: Seconds | None
    """A tick that could not fire for this long after its moment is skipped; None (unless given): no limit."""
    queue: str | None
    """Where the tasks go."""
    priority: Priority | str | None
    """`interactive`, `normal` or `bulk`."""
    tenant: str | None
    """Who the tasks are for."""
    total_timeout: Seconds | None
    """The time limit of one task from its first start."""
    deadline: Seconds | None
    """The time from its enqueue after which a task ends, even if it is still waiting."""
    timeout: Seconds | None
    """Time for one attempt."""
    max_attempts: int | None
    """Charged attempts, 1 to 1,000."""
    labels: Mapping[str, str] | None
    """A few names and values by which the tasks can be found."""


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """A schedule of a task function, as its application declares it."""

    name: str
    function: TaskFunction[..., Any, Any]
    rule: ScheduleRule
    args: ScheduleArguments
    options: Mapping[str, Any]
    """The options of each task that are set."""

    def prepare(self) -> NewTask:
        """Check the arguments and return the task that each tick enqueues.

        Raises:
            ArgumentsError: The arguments do not fit the function.
            ConfigError: An annotation of the function cannot be resolved.
        """
        return prepare_task(self.function, self.args, self.options)

    def declared(self) -> DeclaredSchedule:
        """Return the schedule in its stored form.

        Raises:
            ArgumentsError, ConfigError: As `prepare`.
        """
        return DeclaredSchedule(self.name, self.rule, scheduled_task(self.prepare()))


def prepare_task(
    function: TaskFunction[..., Any, Any], args: ScheduleArguments, options: Mapping[str, Any]
) -> NewTask:
    """Check arguments and options and return the task that each tick enqueues.

    Raises:
        ArgumentsError: The arguments do not fit the function.
        OptionError: An option is invalid.
    """
    using = function.using(**options)
    prepared = using.prepare(**args) if isinstance(args, Mapping) else using.prepare(*args)
    return prepared.new_task


def read_schedule(
    function: TaskFunction[..., Any, Any], when: str, settings: ScheduleSettings
) -> TaskSchedule:
    """Check the settings of a schedule.

    Raises:
        OptionError: There is no such setting, or a value is invalid.
        ArgumentsError: The arguments do not fit the function.
    """
    given: Mapping[str, Any] = settings
    require_names(given, ("name", "args", *RULE_SETTINGS, *TASK_OPTIONS))
    name = given.get("name") or function.spec.name
    schedule = TaskSchedule(
        schedule_name_option("name", name),
        function,
        read_rule(when, given),
        read_args(given.get("args", ())),
        read_task_options(given),
    )
    with suppress(ConfigError):  # an annotation may name what comes later: the worker checks again
        try:
            schedule.prepare()
        except ArgumentsError as error:
            raise ArgumentsError(
                f"schedule {schedule.name}: {error.message}",
                fix=error.fix or "give the arguments of each task as args=",
                **error.facts,
            ) from None
    return schedule


def read_args(args: Any) -> ScheduleArguments:
    """Return the arguments of a schedule's tasks.

    Raises:
        OptionError: The arguments are neither a tuple nor a mapping of names.
    """
    if isinstance(args, list):
        return tuple(args)
    if isinstance(args, Mapping) and all(isinstance(name, str) for name in args):
        return dict(args)
    if not isinstance(args, tuple):
        raise wrong("args", args, 'write a tuple, such as ("Ada",), or a mapping, such as {"name": "Ada"}')
    return args


def read_task_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options that a schedule sets for its tasks, and return those that are set.

    Raises:
        OptionError: A value is invalid.
    """
    options = {name: given[name] for name in TASK_OPTIONS if given.get(name) is not None}
    if "deadline" in options:
        options["deadline"] = duration_deadline("deadline", options["deadline"])
    read_options(options)
    return options


def changed_task_fields(
    function: TaskFunction[..., Any, Any] | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of `ScheduledTask` that settings change.

    Args:
        function: The task function, if `args` is among them.
        settings: Settings of a schedule.

    Raises:
        OptionError: A value is invalid.
        ArgumentsError: The arguments do not fit the function.
    """
    fields = read_options(read_task_options(settings))
    if (total := fields.get("total_timeout_seconds")) is not None:
        fields["total_timeout_seconds"] = stored_limit(total)
    if fields.get("deadline_seconds") == NO_LIMIT:
        fields["deadline_seconds"] = None
    if "args" in settings and function is not None:
        made = scheduled_task(prepare_task(function, read_args(settings["args"]), {}))
        fields |= {"args": made.args, "codec_tag": made.codec_tag, "fingerprint": made.fingerprint}
    return fields


class ScheduleDecorator:
    """What `app.schedule(…)` returns: it declares the schedule of a task function, and returns the function.

    Args:
        declare: Checks and keeps the schedule of a task function.
    """

    def __init__(self, declare: Any) -> None:
        self._declare = declare

    def __call__(self, function: F, /) -> F:
        """Declare the schedule.

        Raises:
            UsageError: The value is not a task function.
            OptionError, ArgumentsError, ConfigError: The schedule cannot work.
        """
        if not isinstance(function, TaskFunction):
            raise UsageError(
                f"{getattr(function, '__name__', function)!r} has a schedule, but is not a task function",
                fix="write @app.task below @app.schedule(…)",
            )
        self._declare(function)
        return function
