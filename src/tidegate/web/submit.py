"""From what a request asks for to tasks that are fit to be stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from tidegate.app import Tidegate
from tidegate.domain.access import Principal
from tidegate.errors import TidegateError, UnknownFunctionError
from tidegate.readers import instant_from_text, seconds_option, shown
from tidegate.store.rows import NewTask
from tidegate.task import TaskFunction
from tidegate.web.bodies import parse
from tidegate.web.guard import OPERATORS
from tidegate.web.problems import Problem, of_error
from tidegate.web.settings import WebSettings
from tidegate.web.wire import Submit

_OPERATORS_OPTIONS = ("queue", "priority", "timeout_seconds", "max_attempts")
_RENAMED = {"delay_seconds": "delay", "deadline_seconds": "deadline", "timeout_seconds": "timeout"}
_OPTIONS = ("key", "unique", "labels", "delay_seconds", "deadline_seconds", *_OPERATORS_OPTIONS)

_TURN_SECONDS = 0.01
"""Of the event loop, which a batch takes at once."""


class Submitter:
    """Makes tasks of what requests ask for: of declared functions only, their arguments checked.

    Args:
        app: Whose functions.
    """

    def __init__(self, app: Tidegate) -> None:
        self._app = app
        self._functions: dict[str, TaskFunction[Any, Any, Any]] = {}

    def prepare(self, asked: Submit, principal: Principal, key: str | None = None) -> NewTask:
        """Return the task a request asks for; its tenant is that of the principal, whatever is asked.

        Raises:
            Problem: It cannot be submitted, or not by this principal.
        """
        try:
            function = self._function(asked.task)
            args, kwargs = function.signature.load(_payload(asked.args))
            options = self._options(asked, principal, key)
            return (function.using(**options) if options else function).prepare(*args, **kwargs)
        except TidegateError as error:
            raise of_error(error) from error

    async def prepare_many(
        self, asked: Sequence[msgspec.Raw], principal: Principal, settings: WebSettings
    ) -> list[NewTask]:
        """Return the tasks of a batch; each is checked by itself, and every fault is told.

        Checking takes seconds for the largest batches: in between, others' requests have their turn.

        Raises:
            Problem: The first one's kind, with the place of each fault.
        """
        tasks: list[NewTask] = []
        first: Problem | None = None
        faults: list[dict[str, str]] = []
        turn_ends_at = time.monotonic() + _TURN_SECONDS
        for place, raw in enumerate(asked):
            if time.monotonic() >= turn_ends_at:
                await asyncio.sleep(0)
                turn_ends_at = time.monotonic() + _TURN_SECONDS
            try:
                tasks.append(self.prepare(parse(raw, Submit, settings), principal))
            except Problem as problem:
                first = first or problem
                at = problem.errors[0]["at"] if problem.errors else ""
                faults.append({"at": f"tasks[{place}].{at}".rstrip("."), "detail": problem.detail})
        if first is not None:
            detail = f"{len(faults)} of {len(asked)} tasks cannot be submitted; nothing was stored"
            raise Problem(first.slug, detail, errors=faults[:100], **first.facts)
        return tasks

    def _function(self, name: str) -> TaskFunction[Any, Any, Any]:
        function = self._functions.get(name)
        if function is None:
            try:
                function = self._app.function(name)
            except UnknownFunctionError:
                fix = "GET /api/v1/functions lists what is declared"
                raise UnknownFunctionError(f"no task function is named {shown(name)}", fix=fix) from None
            self._functions[name] = function
        return function

    def _options(self, asked: Submit, principal: Principal, key: str | None) -> dict[str, Any]:
        given = {name: value for name in _OPTIONS if (value := getattr(asked, name)) is not None}
        kept = [name for name in _OPERATORS_OPTIONS if name in given]
        if kept and principal.role not in OPERATORS:
            raise Problem("forbidden", f"a {principal.role} may not choose {', '.join(kept)}")
        for name in _RENAMED.keys() & given.keys():
            given[name] = seconds_option(name, given[name])  # so that an error names the field of the body
        options = {_RENAMED.get(name, name): value for name, value in given.items()}
        if asked.run_at is not None:
            options["run_at"] = instant_from_text("run_at", asked.run_at)
        if key is not None:
            if asked.key not in (None, key):
                raise Problem("idempotency-key", "the header and the body name different keys")
            options["key"] = key
        if principal.tenant is not None:
            options["tenant"] = principal.tenant
        return options


def _payload(args: msgspec.Raw) -> bytes:
    """Return arguments in the form in which payloads are stored."""
    data = bytes(args).lstrip()
    if data.startswith(b"{"):
        return b'{"k":' + data + b"}"
    if data.startswith(b"["):
        return b'{"a":' + data + b"}"
    detail = "args must be an object (by name) or an array (by position)"
    raise Problem("json", detail, errors=[{"at": "args", "detail": detail}])
