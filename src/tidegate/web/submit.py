"""Checks submit requests and turns them into tasks that can be enqueued."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from tidegate.application.core import Core
from tidegate.configured import ConfiguredTaskFunction, PreparedTask
from tidegate.domain.access import Principal
from tidegate.domain.readers import instant_from_text, shown
from tidegate.domain.text import counted
from tidegate.errors import OptionError, TidegateError, UnknownFunctionError
from tidegate.options import ENQUEUE_OPTIONS, MapSettings, read_options
from tidegate.store.rows import NewTask
from tidegate.task import TaskFunction
from tidegate.web.map_schemas import MapRequest
from tidegate.web.offload import Offload
from tidegate.web.problems import Problem, problem_of
from tidegate.web.protected_routes import OPERATORS
from tidegate.web.request_body import parse_task
from tidegate.web.request_schemas import SubmitRequest

_MOMENTS = ("run_at", "deadline_at")
"""The fields with ISO 8601 text."""

_MAX_CHECK_SECONDS = 0.05
"""How long a batch is checked without a break, before the bodies of other requests get their turn."""


class PreparedMap(NamedTuple):
    """A checked map that is not stored yet."""

    function: ConfiguredTaskFunction[Any, Any]
    items: list[PreparedTask]
    settings: MapSettings


class Submitter:
    """Turns submit requests into tasks. Accepts only declared functions, and checks their arguments.

    Args:
        core: The core of the application that declares the functions.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._functions: dict[str, TaskFunction[Any, Any, Any]] = {}

    def prepare(
        self,
        requested: SubmitRequest,
        principal: Principal,
        key: str | None = None,
        trace: Mapping[str, str] = MappingProxyType({}),
    ) -> NewTask:
        """Return the task that a request describes. The tenant of the task is always the principal's.

        Args:
            requested: The body of the request.
            principal: Who submits it.
            key: The idempotency key in the request's header.
            trace: The options of an enqueue that `trace_of_request` returned.

        Raises:
            Problem: The task cannot be submitted, or not by this principal.
        """
        try:
            function = self._function(requested.task)
            args, kwargs = function.signature.load(stored_payload(requested.args))
            options = self._options(requested, principal, key, trace)
            configured = ConfiguredTaskFunction[Any, Any](
                function.spec, function.signature, self._core, options
            )
            prepared = configured.prepare(*args, **kwargs)
        except TidegateError as error:
            raise problem_of(error) from error
        return prepared.new_task

    def prepare_map(
        self, requested: MapRequest, principal: Principal, key: str | None, trace: Mapping[str, str]
    ) -> PreparedMap:
        """Return the checked items of a map. The tenant of the task is always the principal's.

        Raises:
            Problem: The map cannot be enqueued, or not by this principal.
        """
        if requested.key is not None and key not in (None, requested.key):
            raise Problem("idempotency-key", "the header and the body give different keys")
        one = SubmitRequest(
            task=requested.task,
            labels=requested.labels,
            queue=requested.queue,
            priority=requested.priority,
            max_attempts=requested.max_attempts,
        )
        settings: MapSettings = {"max_failures": requested.max_failures, "key": requested.key or key}
        if requested.name:
            settings["name"] = requested.name
        try:
            function = self._function(requested.task)
            if requested.on_complete is not None:
                settings["on_complete"] = self._function(requested.on_complete)
            configured = ConfiguredTaskFunction[Any, Any](
                function.spec, function.signature, self._core, self._options(one, principal, None, trace)
            )
            items = [
                self._prepared_item(configured, function, at, raw) for at, raw in enumerate(requested.items)
            ]
        except TidegateError as error:
            raise problem_of(error) from error
        return PreparedMap(configured, items, settings)

    def _prepared_item(
        self,
        configured: ConfiguredTaskFunction[Any, Any],
        function: TaskFunction[Any, Any, Any],
        index: int,
        raw: msgspec.Raw,
    ) -> PreparedTask:
        try:
            args, kwargs = function.signature.load(b'{"a":[' + bytes(raw) + b"]}")
            return configured.prepare(*args, **kwargs)
        except TidegateError as error:
            problem = problem_of(error)
            at = f"items[{index}]"
            raise Problem(
                problem.slug,
                f"{at} is refused, and nothing was enqueued: {problem.detail}",
                errors=[{"at": at, "detail": problem.detail}],
                **problem.facts,
            ) from error

    async def prepare_many(
        self,
        requested: Sequence[msgspec.Raw],
        principal: Principal,
        offload: Offload,
        trace: Mapping[str, str],
    ) -> list[NewTask]:
        """Return the tasks of a batch. Each task is checked separately and every error is reported.

        Checking the largest batches takes seconds. The check runs in a thread, and the bodies of other
        requests get their turn in between.

        Raises:
            Problem: A task is refused. The problem has the type of the first error and lists up to 100
                errors.
        """
        checked: list[NewTask | Problem] = []
        size = sum(memoryview(raw).nbytes for raw in requested)
        while len(checked) < len(requested):
            checked += await offload.run(size, self._prepare_some, requested, len(checked), principal, trace)
        errors = [(index, task) for index, task in enumerate(checked) if isinstance(task, Problem)]
        if errors:
            first = errors[0][1]
            detail = f"{len(errors)} of {counted(len(requested), 'task')} are refused; nothing was enqueued"
            raise Problem(
                first.slug,
                detail,
                errors=[_batch_error(index, problem) for index, problem in errors[:100]],
                **first.facts,
            )
        return [task for task in checked if isinstance(task, NewTask)]

    def _prepare_some(
        self, requested: Sequence[msgspec.Raw], begin: int, principal: Principal, trace: Mapping[str, str]
    ) -> list[NewTask | Problem]:
        """Prepare tasks from index `begin` on: at least one, and as many as fit into one turn."""
        checked: list[NewTask | Problem] = []
        ends_at = time.monotonic() + _MAX_CHECK_SECONDS
        for raw in requested[begin:]:
            try:
                checked.append(self.prepare(parse_task(raw, SubmitRequest), principal, trace=trace))
            except Problem as problem:
                checked.append(problem)
            if time.monotonic() >= ends_at:
                break
        return checked

    def _function(self, name: str) -> TaskFunction[Any, Any, Any]:
        function = self._functions.get(name)
        if function is None:
            try:
                function = self._core.function(name)
            except UnknownFunctionError:
                fix = "GET /api/v1/functions lists the declared functions"
                raise UnknownFunctionError(
                    f"no task function is named {shown(name)}", fix=fix, function=name
                ) from None
            self._functions[name] = function
        return function

    def _options(
        self, requested: SubmitRequest, principal: Principal, key: str | None, trace: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return the checked options of a request. Errors name each option by its field in the request."""
        given: dict[str, Any] = {}
        names: dict[str, str] = {}
        forbidden: list[str] = []
        for name, option in ENQUEUE_OPTIONS.items():
            for field in option.http:
                value = getattr(requested, field)
                if value is None:
                    continue
                if option.for_operators and principal.role not in OPERATORS:
                    forbidden.append(field)
                if name in given:
                    raise OptionError(
                        f"both {names[name]} and {field} are given",
                        fix="give one of them",
                        option=names[name],
                        value=given[name],
                    )
                given[name] = self._value_of(field, value)
                names[name] = field
        if forbidden:
            raise Problem("forbidden", f"the role {principal.role} may not set {', '.join(forbidden)}")
        if key is not None:
            if requested.key not in (None, key):
                raise Problem("idempotency-key", "the header and the body give different keys")
            given["key"] = key
        given["tenant"] = principal.tenant
        return read_options({**given, **trace}, names=names)

    def _value_of(self, field: str, value: Any) -> Any:
        if field == "on_final":
            return self._function(value)
        return instant_from_text(field, value) if field in _MOMENTS else value


def _batch_error(index: int, problem: Problem) -> dict[str, str]:
    at = problem.errors[0]["at"] if problem.errors else ""
    return {"at": f"tasks[{index}].{at}".rstrip("."), "detail": problem.detail}


def stored_payload(args: msgspec.Raw) -> bytes:
    """Return the arguments in the form of a stored payload."""
    data = bytes(args).lstrip()
    if data.startswith(b"{"):
        return b'{"k":' + data + b"}"
    if data.startswith(b"["):
        return b'{"a":' + data + b"}"
    detail = "args must be an object (by name) or an array (by position)"
    raise Problem("json", detail, errors=[{"at": "args", "detail": detail}])
