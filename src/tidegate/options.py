"""The options of one enqueue: how each is read, and which field it sets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypedDict

from tidegate.domain.calls import RECORD_CALLS_LABEL, RECORD_CALLS_WORDS
from tidegate.domain.final_hook import FinalHook
from tidegate.domain.ids import TaskReference, id_or_none
from tidegate.domain.readers import (
    Deadline,
    Seconds,
    attempts_option,
    choice_option,
    flag_option,
    instant_option,
    key_option,
    limit_option,
    name_option,
    positive_option,
    require_before_deadline,
    require_names,
    seconds_option,
    whole_option,
    wrong,
)
from tidegate.domain.schedule import LABEL_PREFIX
from tidegate.domain.spec import Priority, TaskSpec
from tidegate.domain.trace import TRACEPARENT_LABEL, TRACESTATE_LABEL, TraceContext
from tidegate.errors import OptionError


class FinalFunction(Protocol):
    """A task function that may follow others, as `@app.task` returns it."""

    @property
    def spec(self) -> Any:
        """Its settings. Not part of the public API."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself. It takes a `FinalState`."""


class EnqueueOptions(TypedDict, total=False):
    """The options of `f.using(…)`. An option that is missing or None takes the task function's value.

    Durations are seconds, a timedelta, or text such as `30s`, `5m`, `1h`.
    """

    queue: str | None
    priority: Priority | str | None
    """`interactive`, `normal` or `bulk`."""
    tenant: str | None
    """The tenant that the task belongs to."""
    delay: Seconds | None
    """Time until the task is due."""
    run_at: datetime | None
    """The moment when the task is due, with a time zone. A past moment makes it due at once."""
    total_timeout: Seconds | None
    """The time limit of the whole task from its first start; waits for an upstream do not count. May be
    `NO_LIMIT`."""
    deadline: Deadline | None
    """A moment with a time zone, or a time from the enqueue, at which the task ends even if it still waits.
    `NO_LIMIT` means no deadline."""
    timeout: Seconds | None
    """Time for one attempt."""
    max_attempts: int | None
    """Charged attempts, 1 to 1,000."""
    key: str | None
    """Idempotency key, 255 characters at most. During `key_kept` the same key returns the first task, in any
    state. The same key with other arguments is an error."""
    key_kept: Seconds | None
    """How long the key is kept; 7 days by default."""
    unique: str | None
    """Refuse an equal task (same function and arguments) until this one ends (`until_final`), or for a time
    such as `1h`."""
    labels: Mapping[str, str] | None
    """A few names and values by which the task can be found."""
    traceparent: str | None
    """The W3C trace context that the task continues, as the HTTP header of that name carries it. Default:
    OpenTelemetry's current span, else that of the task that enqueues it. An invalid one is ignored."""
    tracestate: str | None
    """The HTTP header of that name, which belongs to `traceparent`."""
    after: Iterable[TaskReference | str] | TaskReference | str | None
    """Handles or ids of tasks that must succeed before this one may run; it is `held` until then."""
    on_failure: str | None
    """What happens if one of them dies or is cancelled: `wait` (the default) until it is redriven, `cancel`
    this task, or `run` it all the same."""
    on_final: FinalFunction | None
    """A task function that gets a `FinalState` when the task succeeds, dies or is cancelled. The hook's task
    is enqueued in the transaction of that state."""
    record_calls: bool | None
    """Whether the responses to the calls of this task are kept, see `@app.task(record_calls=…)`."""


MOST_PARENTS = 1_000
"""A task may wait for this many others."""


class MapSettings(TypedDict, total=False):
    """The settings of `f.map(…)`."""

    name: str
    """Shown to people; need not be unique."""
    key: str | None
    """Idempotency key of the map, 255 characters at most. As long as the map is stored, the same key returns
    it. The same key with other items is an error."""
    max_failures: int | None
    """If more items than this are dead, the rest is cancelled. By default all items run."""
    on_complete: FinalFunction | None
    """A task function that gets a `MapEnd` when all items are final, also if some failed. Exactly one task of
    it is enqueued."""


def read_map_settings(given: MapSettings) -> dict[str, Any]:
    """Check the settings of a map and return the fields of `NewMap` that they set.

    Raises:
        OptionError: There is no such setting, or a value is invalid.
    """
    require_names(given, MapSettings.__annotations__)
    key, most, callback = given.get("key"), given.get("max_failures"), given.get("on_complete")
    return {
        "name": name_option("name", given["name"]) if given.get("name") else "",
        "key": None if key is None else key_option("key", key),
        "max_failures": None if most is None else whole_option("max_failures", most, least=0),
        "on_complete": None if callback is None else final_hook_option("on_complete", callback, "MapEnd"),
    }


def after_option(option: str, value: object) -> tuple[str, ...]:
    """Return the ids of the tasks to wait for: handles or ids, one or several."""
    given = [value] if isinstance(value, TaskReference | str) else value
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise wrong(option, value, "give handles of tasks, or their ids: after=[first, second]")
    found = []
    for each in given:
        text = each.id if isinstance(each, TaskReference) else each
        task_id = id_or_none(text) if isinstance(text, str) else None
        if task_id is None:
            raise wrong(option, each, "give handles of tasks, or their full ids: after=[first, second]")
        found.append(task_id)
    if len(found) > MOST_PARENTS:
        raise OptionError(
            f"{option} names {len(found):,} tasks",
            fix=f"wait for {MOST_PARENTS:,} at most; for more, use a map with on_complete",
            option=option,
            value=len(found),
        )
    return tuple(dict.fromkeys(found))


def priority_option(option: str, value: Priority | str) -> Priority:
    """Return the priority of that name."""
    if isinstance(value, Priority):
        return value
    try:
        return Priority[value.upper()]
    except (KeyError, AttributeError):
        names = ", ".join(priority.word for priority in Priority)
        raise wrong(option, value, f"use one of {names}: the most urgent first") from None


def final_hook_option(option: str, value: FinalFunction, takes: str = "FinalState") -> FinalHook:
    """Return what is enqueued for a task function given as `on_final`, or for a map as `on_complete`.

    Args:
        option: The name of the option.
        value: The task function.
        takes: The name of the type of its argument.

    Raises:
        OptionError: The value is not a task function, or does not take exactly one argument.
    """
    spec = getattr(value, "spec", None)
    if not isinstance(spec, TaskSpec):
        raise wrong(option, value, "pass a task function: what @app.task returned")
    signature = inspect.signature(value.function)
    if not any(_accepts(signature, count) for count in (1, 2)):
        raise wrong(option, value, f"use a task function that takes one argument, the {takes}")
    return FinalHook(spec.name, spec.queue, int(spec.priority), spec.upstream, spec.on_final)


def require_no_cycle(function: str, hook: FinalHook | None) -> None:
    """Raise unless the chain of hooks of a function ends.

    Raises:
        OptionError: The function follows itself.
    """
    if hook is not None and function in hook.functions:
        raise OptionError(
            f"on_final: {function} would follow its own end again and again",
            fix="use a task function whose on_final does not lead back to it",
            option="on_final",
            value=function,
        )


def _accepts(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _unique_seconds(option: str, value: str) -> float | None:
    """Return how long equal tasks are refused; None: until the final state."""
    if value == "until_final":
        return None
    try:
        return positive_option(option, value)
    except OptionError as error:
        fix = 'use "until_final", or a time above 0 such as 90s, 15m, 1h, 7d; a century at most'
        raise OptionError(error.message, fix=fix, **error.facts) from None


def _labels(option: str, labels: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(labels, Mapping):
        raise wrong(option, labels, 'give names and values: {"document": "7"}')
    if len(labels) > 32:
        raise OptionError(
            f"{len(labels)} labels",
            fix="use 32 at most; put data into the arguments",
            option=option,
            value=labels,
        )
    for name in labels:
        if isinstance(name, str) and name.startswith(LABEL_PREFIX):
            raise wrong("label name", name, f"use a name that does not begin with {LABEL_PREFIX}")
    return {
        name_option("label name", name): name_option(f"label {name}", value) for name, value in labels.items()
    }


def _record_calls(option: str, value: bool) -> dict[str, str]:
    return {RECORD_CALLS_LABEL: RECORD_CALLS_WORDS[flag_option(option, value)]}


def _header(option: str, value: str) -> str:
    if not isinstance(value, str):
        raise wrong(option, value, "use the text of the HTTP header of that name")
    return value


class EnqueueOption(NamedTuple):
    """How one option is read, and which field it sets."""

    field: str
    """The field of `NewTask` that the option sets."""
    read: Callable[[str, Any], Any]
    """Takes the option's name, for errors, and its value. Returns the value of the field."""
    http: tuple[str, ...] = ()
    """The fields of the option in a request of the HTTP API. At most one may be given."""
    for_operators: bool = False
    """Whether a request with the option must come from an operator or admin."""


ENQUEUE_OPTIONS: Mapping[str, EnqueueOption] = {
    "queue": EnqueueOption("queue", name_option, ("queue",), for_operators=True),
    "priority": EnqueueOption("priority", priority_option, ("priority",), for_operators=True),
    "tenant": EnqueueOption("tenant", name_option),
    "delay": EnqueueOption("delay_seconds", seconds_option, ("delay_seconds",)),
    "run_at": EnqueueOption("run_at", instant_option, ("run_at",)),
    "total_timeout": EnqueueOption(
        "total_timeout_seconds", limit_option, ("total_timeout_seconds",), for_operators=True
    ),
    "deadline": EnqueueOption("deadline_seconds", limit_option, ("deadline_seconds", "deadline_at")),
    "timeout": EnqueueOption("timeout_seconds", positive_option, ("timeout_seconds",), for_operators=True),
    "max_attempts": EnqueueOption("max_attempts", attempts_option, ("max_attempts",), for_operators=True),
    "key": EnqueueOption("key", key_option, ("key",)),
    "key_kept": EnqueueOption("key_seconds", positive_option),
    "unique": EnqueueOption("unique_seconds", _unique_seconds, ("unique",)),
    "labels": EnqueueOption("labels", _labels, ("labels",)),
    "traceparent": EnqueueOption("labels", lambda name, text: {TRACEPARENT_LABEL: _header(name, text)}),
    "tracestate": EnqueueOption("labels", lambda name, text: {TRACESTATE_LABEL: _header(name, text)}),
    "after": EnqueueOption("after", after_option, ("after",)),
    "on_failure": EnqueueOption(
        "on_parent_failure",
        lambda name, value: choice_option(name, value, ("wait", "cancel", "run")),
        ("on_failure",),
    ),
    "on_final": EnqueueOption("on_final", final_hook_option, ("on_final",)),
    "record_calls": EnqueueOption("labels", _record_calls),
}
"""Every option of an enqueue. A new one needs a row here and a field in `EnqueueOptions`.

For the command line it also needs an option of `tidegate enqueue`, for HTTP a field of `SubmitRequest`.
"""
_DEADLINE_MOMENT = EnqueueOption("deadline_at", instant_option)


def read_options(given: Mapping[str, object], *, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Check the options of one enqueue and return the fields of `NewTask` that they set.

    Args:
        given: Values by option. None: not given.
        names: The option names to use in errors, if the caller uses other names.

    Raises:
        OptionError: A value is invalid. The error names the option, the value and the fix.
    """
    require_names(given, ENQUEUE_OPTIONS)
    names = names or {}
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None:
            is_moment = name == "deadline" and isinstance(value, datetime)
            option = _DEADLINE_MOMENT if is_moment else ENQUEUE_OPTIONS[name]
            read = option.read(names.get(name, name), value)
            fields[option.field] = {**fields.get("labels", {}), **read} if option.field == "labels" else read
    if "delay_seconds" in fields and "run_at" in fields:
        delay = names.get("delay", "delay")
        raise OptionError(
            f"both {delay} and run_at are given",
            fix="give one of them",
            option=delay,
            value=given["delay"],
        )
    _require_parents_fit(fields, names)
    require_before_deadline(fields.get("delay_seconds", 0.0), fields.get("deadline_seconds"))
    if "labels" in fields:
        fields["labels"] = _with_valid_trace(fields["labels"])
    return fields


def _require_parents_fit(fields: Mapping[str, Any], names: Mapping[str, str]) -> None:
    after = names.get("after", "after")
    if fields.get("after") and ("delay_seconds" in fields or "run_at" in fields):
        raise OptionError(
            f"{after} with a delay or run_at: the task would wait for both",
            fix="let the task that it waits for be the delayed one",
            option=after,
            value=fields["after"],
        )
    if "on_parent_failure" in fields and not fields.get("after"):
        option = names.get("on_failure", "on_failure")
        raise OptionError(
            f"{option} without {after}",
            fix=f"it says what happens if a task of {after} fails",
            option=option,
            value=fields["on_parent_failure"],
        )


def _with_valid_trace(labels: dict[str, str]) -> dict[str, str]:
    """Return labels without the labels of an invalid trace."""
    trace = TraceContext.of_labels(labels)
    own = {name: text for name, text in labels.items() if name not in (TRACEPARENT_LABEL, TRACESTATE_LABEL)}
    return own if trace is None else own | trace.labels()
