"""The settings of a task function: what `@app.task(…)` takes, and how it is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from tidegate.calls.upstream import Upstream
from tidegate.domain.failure import Reason
from tidegate.domain.modules import module_name
from tidegate.domain.readers import (
    Seconds,
    Size,
    attempts_option,
    choice_option,
    duration_deadline,
    flag_option,
    limit_option,
    name_option,
    require_names,
    seconds_option,
    size_option,
    whole_option,
    wrong,
)
from tidegate.domain.spec import (
    TIMEOUT_WITH_UPSTREAM_SECONDS,
    TOTAL_TIMEOUT_WITH_UPSTREAM_SECONDS,
    Backoff,
    OnCrash,
    Priority,
    Rule,
    RunsIn,
    backoff_option,
)
from tidegate.errors import ConfigError, OptionError
from tidegate.limits.options import rate_window
from tidegate.options import FinalFunction, final_hook_option, priority_option


class TaskSettings(TypedDict, total=False):
    """The settings of `@app.task(…)`.

    Durations are seconds, a timedelta, or text such as `90s`, `15m`, `1h`.
    """

    name: str | None
    """The stable name of the function in the store; default: `module:function`."""
    queue: str
    """The queue of its tasks; default: `default`."""
    priority: Priority | str
    """`interactive`, `normal` (unless given) or `bulk`."""
    upstream: Upstream | str | None
    """The outside service it calls, if any: what `app.upstream(…)` returned, or its name."""
    rate_limit: str | None
    """How many runs all workers together may start in a time, such as `50/min`."""
    timeout: Seconds
    """The time limit of one attempt; default: 300 s, or 15 min with an upstream. May be `NO_LIMIT`, not
    None."""
    total_timeout: Seconds
    """The time limit of the whole task from its first start, over all its runs; default: 30 min, or 1 h with
    an upstream. Time that the task waits for an upstream, parked or behind its gate, is not counted."""
    deadline: Seconds | None
    """The time limit of the whole task from its enqueue; waits of every kind count. None unless given."""
    max_attempts: int
    """The most charged attempts before a task is dead; default: 3."""
    backoff: Backoff | Seconds | None
    """`Exponential` (10 s doubled, 600 s at most, unless given), `Polynomial` or `Fixed`; a duration alone
    means `Fixed`."""
    retry: Sequence[Rule | type[BaseException] | Reason | str]
    """Rules made by `on(…)` and `discard(…)`; the first that matches applies. An exception class or a reason
    alone stands for `on(…)` with it."""
    on_unknown: str
    """`retry` (unless given) or `dead`, for failures of unknown meaning."""
    on_crash: str
    """`retry` (unless given), or `fail`: dead at the first crash of its process."""
    runs_in: str | None
    """`loop` (for `async def`, the default), `process` (the default for `def`: a warm child process, which
    can be killed) or `thread` (which cannot)."""
    memory_limit: Size | None
    """Bytes, or text such as `2GiB`, that its child process may hold."""
    on_final: FinalFunction | None
    """A task function that gets a `FinalState` when a task of this one succeeds, dies or is cancelled."""
    cancel_grace: Seconds | None
    """Seconds after which a cancelled function is stopped by force; None: at its time limit."""
    record_calls: bool | None
    """Whether the responses to its calls are kept, so that a re-run does not make them again, for every
    upstream. None (unless given): as `app.upstream(record=…)` says."""


class _Setting(NamedTuple):
    """How one setting is read, and what it sets."""

    field: str
    """The field of `TaskSpec` that the option sets."""
    read: Callable[[str, Any], Any]
    """Takes the name, for errors, and the value. Returns the value of the field."""
    may_be_none: bool = False
    """Whether None counts as not given."""


def on(
    error: type[BaseException] | Reason | str,
    *,
    wait: Backoff | Seconds | None = None,
    attempts: int | None = None,
) -> Rule:
    """Make a retry rule: this kind of error is tried again.

    Args:
        error: An exception class, or a reason such as `"timeout"`.
        wait: A duration, or a backoff; None: the function's own.
        attempts: Charged attempts for this kind, in addition to the limit `max_attempts`.

    Raises:
        OptionError: A value is invalid.
    """
    return Rule(
        _error_or_reason(error),
        retry=True,
        wait=None if wait is None else backoff_option("on(…): wait", wait),
        attempts=None if attempts is None else whole_option("on(…): attempts", attempts),
    )


def discard(error: type[BaseException] | Reason | str) -> Rule:
    """Make a retry rule: this kind of error is never tried again. The task is kept as a dead letter."""
    return Rule(_error_or_reason(error), retry=False)


def _rules(option: str, retry: Sequence[Rule | type[BaseException] | Reason | str]) -> tuple[Rule, ...]:
    """Return the rules of `retry=[…]`; an exception class or a reason alone means `on(…)` for it.

    Raises:
        OptionError: The value is not a list, or an item is not a rule.
    """
    if isinstance(retry, str) or not isinstance(retry, Sequence):
        raise wrong(option, retry, 'write a list: retry=[on(ValueError, wait="5s"), discard(KeyError)]')
    return tuple(rule if isinstance(rule, Rule) else on(rule) for rule in retry)


def _error_or_reason(error: type[BaseException] | Reason | str) -> type[BaseException] | Reason:
    if isinstance(error, type) and issubclass(error, BaseException):
        return error
    fix = f"use an exception class or one of {', '.join(Reason)}"
    if not isinstance(error, str):
        raise wrong("retry", error, fix)
    try:
        return Reason(error)
    except ValueError:
        raise wrong("retry", error, fix) from None


def _retries_unknown(option: str, value: str) -> bool:
    return choice_option(option, value, ("retry", "dead")) == "retry"


def _on_crash(option: str, value: str) -> OnCrash:
    return OnCrash(choice_option(option, value, OnCrash))


_SETTINGS: Mapping[str, _Setting] = {
    "queue": _Setting("queue", name_option),
    "priority": _Setting("priority", priority_option),
    "rate_limit": _Setting("rate_limit", rate_window, may_be_none=True),
    "timeout": _Setting("timeout", limit_option),
    "total_timeout": _Setting("total_timeout", limit_option),
    "deadline": _Setting("deadline", duration_deadline, may_be_none=True),
    "max_attempts": _Setting("max_attempts", attempts_option),
    "backoff": _Setting("backoff", backoff_option, may_be_none=True),
    "retry": _Setting("rules", _rules),
    "on_unknown": _Setting("retry_unknown", _retries_unknown),
    "on_crash": _Setting("on_crash", _on_crash),
    "memory_limit": _Setting("memory_limit", size_option, may_be_none=True),
    "on_final": _Setting("on_final", final_hook_option, may_be_none=True),
    "cancel_grace": _Setting("cancel_grace", seconds_option, may_be_none=True),
    "record_calls": _Setting("record_calls", flag_option, may_be_none=True),
}
"""Every setting but the name, the upstream and where it runs, which need the application or the function."""


def read_settings(given: TaskSettings) -> dict[str, Any]:
    """Check the settings of a task function and return the fields of `TaskSpec` that they set.

    Raises:
        OptionError: There is no such setting, or a value is invalid.
    """
    values: Mapping[str, Any] = given
    require_names(values, TaskSettings.__annotations__)
    if values.get("name") is not None:
        name_option("name", values["name"])
    fields = {
        setting.field: setting.read(name, values[name])
        for name, setting in _SETTINGS.items()
        if name in values and not (setting.may_be_none and values[name] is None)
    }
    if values.get("upstream") is not None:
        fields.setdefault("timeout", TIMEOUT_WITH_UPSTREAM_SECONDS)
        fields.setdefault("total_timeout", TOTAL_TIMEOUT_WITH_UPSTREAM_SECONDS)
    return fields


def choose_runs_in(function: Callable[..., Any], wanted: str | None, *, memory_limit: bool) -> RunsIn:
    """Return where a function runs: as set, or else coroutines on the loop and plain functions in a process.

    Raises:
        OptionError: It cannot run there.
    """
    is_async = inspect.iscoroutinefunction(function)
    if wanted is not None:
        runs_in = RunsIn(choice_option("runs_in", wanted, RunsIn))
    else:
        runs_in = RunsIn.LOOP if is_async else RunsIn.PROCESS
    if runs_in is RunsIn.LOOP and not is_async:
        raise OptionError(
            'runs_in="loop" on a plain function',
            fix='make it async def, or use "process" or "thread"',
            option="runs_in",
            value=wanted,
        )
    if runs_in is RunsIn.THREAD and is_async:
        raise OptionError(
            'runs_in="thread" on an async function',
            fix='use "loop" or "process"',
            option="runs_in",
            value=wanted,
        )
    if memory_limit and runs_in is not RunsIn.PROCESS:
        raise OptionError(
            "memory_limit needs a process of its own",
            fix='add runs_in="process"',
            option="runs_in",
            value=runs_in,
        )
    return runs_in


def function_name(function: Callable[..., Any]) -> str:
    """Return the stable name of a function: `module:function`, never `__main__`.

    Raises:
        ConfigError: The function is a lambda, is defined inside another function, or is in a script without
            a file. No worker could import it.
    """
    qualname = function.__qualname__
    if "<" in qualname:
        raise ConfigError(
            f"{function.__module__}.{qualname} cannot be a task function",
            fix="define it at the top of a module, or name it",
            function=f"{function.__module__}:{qualname}",
        )
    return f"{module_name(function.__module__)}:{qualname}"
