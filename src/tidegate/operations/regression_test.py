"""Writes a dead letter as a test: in this pytest, a task with the same arguments fails in the same way.

The test uses `tidegate.testing`. The test passes while the fault exists, and fails once the fault is fixed.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from tidegate.calls.upstream import Upstream
from tidegate.codec.source import SourceText, SourceWriter, UnwritableError
from tidegate.domain.failure import Reason
from tidegate.domain.moments import to_datetime
from tidegate.domain.schedule import LABEL_PREFIX
from tidegate.domain.text import format_duration
from tidegate.errors import ArgumentsError, NotAcceptedError, UnknownFunctionError
from tidegate.internals import core_of, is_application
from tidegate.operations.recorded_answer import recorded_answer
from tidegate.operations.recorded_task import RecordedTask
from tidegate.providers.understand import understand_answer
from tidegate.store.rows import HistoryRow
from tidegate.worker.application import Runnable

LONGEST_TIMEOUT_SECONDS = 5.0
"""The longest time after which the test stops a function that runs too long."""

_TIME_LIMIT = "ran longer than its timeout"
_LINE = 96
_VOLATILE = re.compile(r"0x[0-9a-f]{4,}|/tmp/|[0-9a-f]{8}-[0-9a-f]{4}-|\d{4}-\d\d-\d\d[T ]\d\d|\*\*\*")
"""The parts of a message that differ from run to run: addresses, temporary files, ids, times, masked
secrets."""
_NOT_OF_THE_FUNCTION = {
    Reason.CRASH: "its process died, which would end a test process too",
    Reason.DEADLINE: "the time of the whole task ran out, which no single run shows",
    Reason.CANCELLED: "it was cancelled",
}
"""Reasons that no test of one run can reproduce, and why."""


class FaultKind(StrEnum):
    """What a test reproduces."""

    CODE = "code"
    """The function raises by itself."""
    ARGUMENTS = "arguments"
    """The stored arguments do not fit the function."""
    TIME_LIMIT = "time limit"
    """The function runs longer than its timeout."""
    RESPONSE = "response"
    """A provider responds with an error. The test scripts the response."""
    CALL = "call"
    """A provider does not respond, or cannot be reached. The test scripts this."""


class Declarations(Protocol):
    """The parts of an application that a test of its tasks uses."""

    @property
    def functions(self) -> Mapping[str, Runnable]:
        """The task functions of the application, by name."""
        ...

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The upstreams of the application, by name."""
        ...


@dataclass(frozen=True, slots=True)
class RegressionTest:
    """A dead letter as a test."""

    kind: FaultKind
    file_name: str
    source: str
    masked: tuple[str, ...]
    """The paths in the arguments at which secrets were replaced."""


def write_test(task: RecordedTask, app: Declarations) -> RegressionTest:
    """Return a dead letter as the source of a pytest.

    Args:
        task: The dead letter.
        app: The application that declares its function.

    Raises:
        UnknownFunctionError: The application does not declare the task's function.
        NotAcceptedError: The failure of the task cannot be reproduced in a test.
    """
    return _Writer(task, app).write()


class _Writer:
    """Writes one test."""

    def __init__(self, task: RecordedTask, app: Declarations) -> None:
        self._task = task
        self._app = app
        self._failed = _failed_run(task)
        self._function = _declared(app, task.row.function)
        self._source = SourceWriter()
        self._arguments = _arguments(task, self._function, self._failed)
        self._kind = _kind(task, app, self._failed, self._arguments)
        self._answer = recorded_answer(self._failed)

    def write(self) -> RegressionTest:
        """Return the test."""
        row = self._task.row
        name = _slug(row.function.rpartition(":")[2])
        short = row.id.replace("-", "")[:12]
        app = self._source.use(*_place_of_application(self._app))
        kit = self._source.use("tidegate.testing", "Kit")
        blocked = self._source.use("tidegate.testing", "blocked_network")
        limit = "limit=30" if self._kind is FaultKind.TIME_LIMIT else ""
        body = [
            f'    with {kit}({app}) as kit, {blocked}(["localhost"]):',
            *self._script(),
            f"        task = {self._enqueue(app)}",
            f"        runs = kit.drain_sync({limit}).runs",
            "    run = next(run for run in runs if run.task_id == task.id)",
            '    # Once it is mended, replace what follows by: assert run.outcome == "succeeded"',
            *(f"    {line}" for line in self._assertions()),
        ]
        head = [*self._docstring(), "", *self._source.import_lines(), "", ""]
        test = f"def test_{name}_fails_as_task_{short}_did() -> None:"
        source = "\n".join([*head, test, *body, ""])
        return RegressionTest(self._kind, f"test_{name}_{short}.py", source, tuple(self._source.masked))

    def _script(self) -> list[str]:
        """Return the lines that script the provider's responses; no lines if no call failed."""
        answer = self._answer
        if answer is None or self._kind not in (FaultKind.RESPONSE, FaultKind.CALL):
            return []
        own = self._task.row.upstream
        names = [own] if own in self._app.upstreams else sorted(self._app.upstreams)
        lines = []
        for name in names:
            script = f"kit.upstream({self._source.expression(name)})"
            options: dict[str, Any] = {"times": None}
            if answer.error:
                call = f"{script}.{'hangs' if answer.error == 'timeout' else 'unreachable'}"
                lines.append(f"        {self._source.call(call, [], options, column=8)}")
                continue
            options = {"status": answer.status, **options}
            if answer.request_id:
                options["headers"] = {"x-request-id": answer.request_id}
            made = self._source.call(f"{script}.answers", [answer.body], options, column=8)
            lines.append(f"        {made}")
        return lines

    def _docstring(self) -> list[str]:
        row, failed = self._task.row, self._failed
        died_at = to_datetime(row.finished_at or failed.at)
        status = f", status {failed.status}" if failed.status is not None else ""
        cause = f"{failed.error_class or failed.reason} ({failed.reason}{status})"
        facts = f"A task of {row.function} died on {died_at:%Y-%m-%d} of {cause}."
        how = f"Written by `tidegate dead export {row.id} --as-test`. It passes while the fault is there."
        notes = [facts, how]
        if self._source.masked:
            notes.append(f"Secrets were replaced by *** in: {', '.join(self._source.masked)}.")
        if self._kind in (FaultKind.RESPONSE, FaultKind.CALL):
            notes.append(
                "Every call gets the recorded answer. If the function makes other calls before the one that "
                "failed, script their answers first."
            )
        lines = [line for note in notes for line in [*textwrap.wrap(note, _LINE), ""]]
        first, *rest = (line.replace("\\", r"\\").replace('"', r"\"") for line in lines)
        return [f'"""{first}', *rest[:-1], '"""']

    def _enqueue(self, app: str) -> str:
        """Return the source that stores the task."""
        options = self._options()
        arguments = self._arguments
        place = _place_of_function(self._function, self._task.row.function)
        is_scheduled = any(label.startswith(LABEL_PREFIX) for label in self._task.row.labels)
        if arguments is not None and place is not None and not is_scheduled:
            function = self._source.use(*place)
            before = self._source.call(f"{function}.using", [], options)
            try:
                return self._source.call(f"{before}.enqueue_sync", *arguments, column=8)
            except UnwritableError:
                pass  # the stored form of the arguments can always be written
        stored = json.loads(self._task.args)
        enqueue = self._source.use("tidegate.testing", "enqueue_stored")
        return self._source.call(
            enqueue, [SourceText(app), self._task.row.function, stored], options, column=8
        )

    def _options(self) -> dict[str, Any]:
        row = self._task.row
        options: dict[str, Any] = {"max_attempts": 1}
        if self._kind is FaultKind.TIME_LIMIT and self._function.spec.timeout > LONGEST_TIMEOUT_SECONDS:
            options["timeout"] = LONGEST_TIMEOUT_SECONDS
        if row.tenant:
            options["tenant"] = row.tenant
        if row.labels:
            options["labels"] = dict(row.labels)
        return options

    def _assertions(self) -> list[str]:
        """Return what the test requires of the run."""
        failed = self._failed
        if self._kind is FaultKind.TIME_LIMIT:
            limit = format_duration(self._function.spec.timeout)
            return [
                'assert run.reason == "timeout"',
                f'assert run.message.startswith("{_TIME_LIMIT}")  # of {limit} in the application',
            ]
        if self._kind is FaultKind.ARGUMENTS:
            return ['assert run.reason == "invalid_request"', 'assert "arguments do not fit" in run.message']
        lines = [
            f'assert run.reason == "{failed.reason}"'
            if self._is_reason_shown()
            else f"# In production its reason was {failed.reason}, from headers that are not recorded"
        ]
        if (place := _place_of_error(failed.error_class)) is not None:
            lines.append(f"assert isinstance(run.error, {self._source.use(*place)})")
        if self._is_message_repeated():
            lines.append(f"assert run.message == {self._source.expression(failed.message)}")
        else:
            lines.append(f"# In production its message was {failed.message[:200]!r}")
        return lines

    def _is_reason_shown(self) -> bool:
        """Return whether the failure in the test has the recorded reason."""
        if self._kind is not FaultKind.RESPONSE or self._answer is None:
            return True
        provider, now = self._function.spec.provider, self._failed.at
        found = understand_answer(self._answer.status, [], self._answer.body, now=now, provider=provider)
        return found is not None and found.reason == self._failed.reason

    def _is_message_repeated(self) -> bool:
        """Return whether the failure in the test has the recorded message."""
        is_from_call = self._kind in (FaultKind.RESPONSE, FaultKind.CALL)
        if is_from_call and (self._answer is None or not self._answer.is_quoted):
            return False
        return not _VOLATILE.search(self._failed.message)


def _failed_run(task: RecordedTask) -> HistoryRow:
    """Return the run of which the task died.

    Raises:
        NotAcceptedError: No test can reproduce the failure of this run.
    """
    failed = task.last_failed_run
    if failed is None:
        raise _refusal(task, "its history names no failed run")
    why = next((why for reason, why in _NOT_OF_THE_FUNCTION.items() if task.row.reason == reason), "")
    if why:
        raise _refusal(task, why)
    if failed.error_class.startswith("tidegate.errors.Upstream"):
        raise _refusal(task, "its call was refused here, by the gate of its upstream")
    if not task.codec_tag.startswith("json"):
        raise _refusal(task, f"its arguments are stored as {task.codec_tag}")
    return failed


def _refusal(task: RecordedTask, why: str) -> NotAcceptedError:
    return NotAcceptedError(
        f"task {task.row.id} cannot be written as a test: {why}",
        fix=f"see `tidegate dead show {task.row.id}`, or run it with `tidegate replay {task.row.id}`",
    )


def _declared(app: Declarations, name: str) -> Runnable:
    if name in app.functions:
        return app.functions[name]
    raise UnknownFunctionError(
        f"the application does not declare {name}",
        fix="name the application that does with --app, in the release in which the task died",
        function=name,
    )


def _arguments(
    task: RecordedTask, function: Runnable, failed: HistoryRow
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of the task; None if they do not fit the function.

    Raises:
        NotAcceptedError: The task died because the arguments did not fit, but they fit now.
    """
    try:
        loaded = function.signature.load(task.args)
    except ArgumentsError:
        return None
    if failed.error_class.endswith(".ArgumentsError") and failed.evidence == "arguments do not fit":
        raise _refusal(task, "its arguments did not fit the function then, and they fit now: redrive it")
    return loaded


def _kind(task: RecordedTask, app: Declarations, failed: HistoryRow, arguments: object) -> FaultKind:
    """Return what the test must reproduce.

    Raises:
        NotAcceptedError: A provider's response caused the failure, and the application has no upstream to
            simulate it.
    """
    if arguments is None:
        return FaultKind.ARGUMENTS
    if failed.message.startswith(_TIME_LIMIT):
        return FaultKind.TIME_LIMIT
    if failed.status is not None:
        if not app.upstreams:
            raise _refusal(task, "a response caused it, and the application declares no upstream to play it")
        return FaultKind.RESPONSE
    is_call = recorded_answer(failed) is not None and bool(task.row.upstream)
    return FaultKind.CALL if is_call else FaultKind.CODE


# --- names -----------------------------------------------------------------------------------------------


def _place_of_application(app: Declarations) -> tuple[str, str]:
    """Return the module and the name of the application.

    Raises:
        NotAcceptedError: No module has the application under a name.
    """
    modules = [function.function.__module__ for function in app.functions.values()]
    for name in dict.fromkeys([*modules, *sys.modules]):
        for attribute, value in list(vars(sys.modules.get(name, object)).items()):
            if is_application(value) and not isinstance(value, type) and core_of(value) is app:
                return name, attribute
    raise NotAcceptedError(
        "no module holds the application, so a test could not import it",
        fix="keep it in a module: app = Tidegate()",
    )


def _place_of_function(function: Runnable, name: str) -> tuple[str, str] | None:
    """Return the module and the name of a task function; None if its module does not hold it under a name."""
    module = function.function.__module__
    for attribute, value in list(vars(sys.modules.get(module, object)).items()):
        if value is function:
            return module, attribute
    return None


def _place_of_error(error_class: str) -> tuple[str, str] | None:
    """Return the module and the name of an exception class; None if it cannot be imported by this name."""
    module, _, name = error_class.rpartition(".")
    if not error_class or module.startswith("tidegate.worker"):
        return None
    try:
        kind = getattr(importlib.import_module(module or "builtins"), name, None)
    except ImportError:
        return None
    return (
        (module or "builtins", name) if isinstance(kind, type) and issubclass(kind, BaseException) else None
    )


def _slug(text: str) -> str:
    return re.sub(r"\W+", "_", text.lower()).strip("_") or "task"
