"""A call that the application makes with any client.

Such a call gets a permit, which is settled, and a time limit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tidegate.calls.limit_reports import limits_of
from tidegate.calls.permits import Permit, PermitSource
from tidegate.calls.requests import current_run, permit_request_for, remaining_times
from tidegate.calls.results import result_of_error, run_to_end
from tidegate.calls.settings import CallSettings
from tidegate.domain.calls import CallResult
from tidegate.domain.failure import Failure
from tidegate.domain.usage import Usage
from tidegate.providers.requests import Sizes
from tidegate.providers.usage import usage_of
from tidegate.providers.waits import Headers


class ManualCall:
    """One call in progress. Its methods report what the response contained; each is optional."""

    def __init__(self, permit: Permit, settings: CallSettings) -> None:
        self._permit = permit
        self._settings = settings
        self._usage: Usage | None = None
        self._failure: Failure | None = None

    @property
    def api_key(self) -> str | None:
        """The API key for this call; None to use your own key."""
        return self._permit.api_key

    def headers(self, headers: Headers, status: int | None = None) -> None:
        """Pass the response's headers, so that limits are learned. Returns at once, from any thread.

        Args:
            headers: A mapping or pairs.
            status: The HTTP status. The resets in a 429 are ignored. None counts as a success.
        """
        provider = self._settings.provider_name
        self._permit.observe_limits(limits_of(headers, status=status, host="", provider=provider))

    def used(self, usage: Usage | Mapping[str, Any]) -> None:
        """Report what the call used: a `Usage`, or the response's JSON object with its usage fields."""
        self._usage = usage if isinstance(usage, Usage) else usage_of(dict(usage))

    def failed(self, failure: Failure) -> None:
        """Report that the response was a failure, if no exception is raised."""
        self._failure = failure

    def end(self, seconds: float) -> CallResult:
        """Return how the call ended, as reported."""
        status = None if self._failure is None else self._failure.status
        return CallResult(self._failure, status, self._usage, seconds)


@asynccontextmanager
async def manual_call(
    permits: PermitSource, settings: CallSettings, sizes: Sizes
) -> AsyncIterator[ManualCall]:
    """Make one call in a `with` block: wait for a permit, limit the time, settle the permit at the end.

    Raises:
        UpstreamParkedError: The gate is closed. The block did not run.
        CallTooLargeError: The call exceeds a limit and can never be admitted. The block did not run.
        TimeoutError: The block took longer than the call's time limit.
    """
    permit = await permits.acquire(permit_request_for(sizes, settings))
    call = ManualCall(permit, settings)
    started_at = time.monotonic()
    try:
        current_run()  # this raises if the run ended while the call waited for its permit
        seconds = remaining_times(settings.times).seconds
        await permit.mark_sending()
        async with asyncio.timeout(None if seconds == float("inf") else seconds):
            yield call
    except BaseException as error:
        end = result_of_error(error, settings, seconds=time.monotonic() - started_at)
        await run_to_end(permit.settle(end))
        raise
    await run_to_end(permit.settle(call.end(time.monotonic() - started_at)))
