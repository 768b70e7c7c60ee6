"""Finds the result of a call that raised, and settles its permit even while the caller is cancelled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

from tidegate.calls.settings import CallSettings
from tidegate.domain.calls import CallResult
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.errors import StoreError
from tidegate.providers.understand import understand

_log = logging.getLogger("tidegate.calls")
_POOL_TIMEOUT = "PoolTimeout"
"""The class name of the error for a full connection pool of the client, which is not the upstream's fault."""
_GATEWAY_GAVE_UP = frozenset({408, 504, 522, 524})
"""The statuses of a gateway that stopped waiting. The model may still have done the work."""


def result_of_error(error: BaseException, settings: CallSettings, *, seconds: float) -> CallResult:
    """Return the result of a call that raised when or after it was sent."""
    failure = _understood(error, settings)
    return CallResult(
        failure=failure,
        status=failure.status,
        seconds=seconds,
        is_in_doubt=failure.status is None and not failure.is_unsent,
    )


def is_pool_timeout(error: BaseException) -> bool:
    """Return whether the request was not sent because the client's connections were all in use."""
    return any(kind.__name__ == _POOL_TIMEOUT for kind in type(error).__mro__)


def _understood(error: BaseException, settings: CallSettings) -> Failure:
    """Return the failure that an error means. Never raises."""
    try:
        return understand(error, now=time.time(), provider=settings.provider_name)
    except Exception:
        # The permit must be settled even if reading a foreign exception raises.
        return Failure(Verdict.UNKNOWN, Reason.UNKNOWN, evidence="could not be understood")


def is_in_doubt(status: int) -> bool:
    """Return whether a failed response leaves it unknown if the work was done."""
    return status in _GATEWAY_GAVE_UP


_settling: set[asyncio.Future[None]] = set()
"""The tasks of cancelled callers, kept so that they are not garbage-collected."""


async def run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Await the end of a permit, even while the caller is being cancelled.

    If the store cannot be reached, only log it: the response must not be lost, and the permit's lease expires
    by itself.
    """
    await asyncio.shield(run_in_background(work))


def run_in_background(work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
    """Start this work of a permit in the background. If the store cannot be reached, only log it."""
    settling = asyncio.ensure_future(_tolerant(work))
    _settling.add(settling)
    settling.add_done_callback(_settling.discard)
    return settling


async def _tolerant(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except StoreError as error:
        _log.warning("a permit could not be settled: %s", error)
