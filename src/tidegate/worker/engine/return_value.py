"""Handles the return value of a task function: awaits it, refuses what is no result, encodes the result.

A plain function may return a coroutine, for example a sync wrapper around an `async def`. The work of that
coroutine has not been done yet; if the run counted as succeeded, the work would be silently lost.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator
from typing import Any

from tidegate.codec.result import unencodable
from tidegate.codec.signature import Signature
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.ids import TaskReference

log = logging.getLogger("tidegate.worker")

_MAX_AWAIT_DEPTH = 10
"""Coroutines that return coroutines are awaited to this depth. An awaitable may return itself for ever."""

_PENDING_TYPES = (Awaitable, AsyncIterator, Generator, concurrent.futures.Future, TaskReference)
"""Types that stand for a value that does not exist yet."""


_PLAIN_TYPES = frozenset({type(None), bool, int, float, str, bytes, list, dict, tuple})
"""The usual types of results, so that most results need no further check."""


class UnusableResult(Exception):  # noqa: N818 - a fact about the return value, turned into a failure at once
    """The function returned something that is no result and cannot be awaited: `what`, and the fix."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"returned {what}")
        self.what = what
        self.fix = fix

    def failure(self, function: str) -> Failure:
        """Return the failure of a run whose function returned this value."""
        return Failure(
            Verdict.PERMANENT,
            Reason.INVALID_REQUEST,
            message=f"{function} returned {self.what}, which is no result: {self.fix}",
            error_class="tidegate.errors.ArgumentsError",
            evidence="returned no value",
        )


def is_result(returned: object) -> bool:
    """Return whether this is a finished result, with nothing left to run."""
    return type(returned) in _PLAIN_TYPES or not isinstance(returned, _PENDING_TYPES)


async def await_value(returned: object) -> object:
    """Return a function's result; await its return value on this loop as long as it is awaitable.

    Raises:
        UnusableResult: The value cannot be a result: a generator, a future of another loop, a task handle.
        BaseException: What the awaited work raised.
    """
    for _ in range(_MAX_AWAIT_DEPTH):
        if is_result(returned):
            return returned
        returned = await _as_awaitable(returned)
    if is_result(returned):
        return returned
    close_unawaited(returned)
    raise UnusableResult(f"awaitables more than {_MAX_AWAIT_DEPTH} deep", "await them in the function")


def close_unawaited(returned: object) -> None:
    """Close a coroutine or generator that will not run, so that Python does not warn about it."""
    with contextlib.suppress(BaseException):  # closing a generator runs its code
        if inspect.iscoroutine(returned) or isinstance(returned, Generator):
            returned.close()


def encode_return_value(function: str, signature: Signature, value: object) -> bytes:
    """Return a result as bytes. Never raises: a result that cannot be encoded is replaced by a stand-in.

    A result whose type differs from the annotation is stored unchanged, and one warning is logged. Each
    stand-in is logged as a warning.
    """
    try:
        result = signature.encode_result(value)
        if result.other_type:
            _warn_once(function, signature.text.rpartition("->")[2].strip(), result.other_type)
    except BaseException as fault:  # annotations and their encoders are user code
        result = unencodable(value, fault)
    if not result.stored:
        log.warning("%s: %s", function, result.note)
    return result.data


@functools.lru_cache(maxsize=1_000)
def _warn_once(function: str, declared: str, returned: str) -> None:
    log.warning(
        "%s is declared to return %s but returned %s: the result is stored unchanged; correct the annotation"
        " or the function",
        function,
        declared,
        returned,
    )


def _as_awaitable(returned: object) -> Awaitable[Any]:
    """Return an awaitable for the running loop.

    Raises:
        UnusableResult: The value cannot be awaited here.
    """
    if isinstance(returned, TaskReference):
        raise UnusableResult(
            f"the handle of task {returned.id}", "return its id, or wait for its result and return that"
        )
    if isinstance(returned, concurrent.futures.Future):
        return asyncio.wrap_future(returned)
    if asyncio.isfuture(returned) and returned.get_loop() is not asyncio.get_running_loop():
        raise UnusableResult(
            f"a {type(returned).__name__} of another event loop", "await it where it was made"
        )
    if isinstance(returned, Awaitable):
        return returned
    kind = "an async generator" if isinstance(returned, AsyncGenerator) else f"a {type(returned).__name__}"
    close_unawaited(returned)
    raise UnusableResult(kind, "its code has not run: consume it in the function, and return a value")
