"""What a task function returned: awaited where it is still to run, refused where it is no value, encoded.

A plain function that hands back a coroutine has done nothing yet: a sync wrapper around an `async def`, say.
Taking that for success would lose the work in silence.
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
"""Coroutines that return coroutines are awaited so deep; an awaitable that returns itself has no end."""

_PENDING_TYPES = (Awaitable, AsyncIterator, Generator, concurrent.futures.Future, TaskReference)
"""What stands for a value that is still to come."""


_PLAIN_TYPES = frozenset({type(None), bool, int, float, str, bytes, list, dict, tuple})
"""The usual results, recognised at once."""


class UnusableResult(Exception):  # noqa: N818 - a fact about what was returned, turned into a failure at once
    """The function returned something that cannot be awaited here and is no result: `what`, and the fix."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"returned {what}")
        self.what = what
        self.fix = fix

    def failure(self, function: str) -> Failure:
        """Return the failure of a run whose function returned this."""
        return Failure(
            Verdict.PERMANENT,
            Reason.INVALID_REQUEST,
            message=f"{function} returned {self.what}, which is no result: {self.fix}",
            error_class="tidegate.errors.ArgumentsError",
            evidence="returned no value",
        )


def is_result(returned: object) -> bool:
    """Return whether this is a result as it is, with nothing left to run."""
    return type(returned) in _PLAIN_TYPES or not isinstance(returned, _PENDING_TYPES)


async def await_value(returned: object) -> object:
    """Return what a function's return value comes to, awaited on this loop while it is awaitable.

    Raises:
        UnusableResult: It can be no result: a generator, a future of another loop, a handle of another task.
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
    """Close work that will not be run, so that Python does not warn that nobody awaited it."""
    with contextlib.suppress(BaseException):  # closing a generator runs its code
        if inspect.iscoroutine(returned) or isinstance(returned, Generator):
            returned.close()


def encode_return_value(function: str, signature: Signature, value: object) -> bytes:
    """Return the bytes for a result. Never raises: what cannot be kept gets a stand-in.

    A result that is not what the annotation says is kept as it is, and one warning is logged.
    """
    try:
        result = signature.encode_result(value)
        if result.other_type:
            _warn_once(function, signature.text.rpartition("->")[2].strip(), result.other_type)
        return result.data
    except BaseException as fault:  # annotations and their encoders are other people's code
        return unencodable(value, fault).data


@functools.lru_cache(maxsize=1_000)
def _warn_once(function: str, declared: str, returned: str) -> None:
    log.warning(
        "%s is declared to return %s and returned %s: the result is kept as it is; correct the annotation or"
        " the function",
        function,
        declared,
        returned,
    )


def _as_awaitable(returned: object) -> Awaitable[Any]:
    """Return what to await for it on the running loop.

    Raises:
        UnusableResult: Nothing.
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
