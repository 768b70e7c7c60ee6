"""A call whose response is kept as a step of its task, so that a re-run gets it without making the call."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from tidegate.calls.gate_permit import is_interrupted
from tidegate.calls.requests import current_run
from tidegate.calls.settings import CallSettings, Recording
from tidegate.calls.transport.identity import CallIdentity, identify_call, release_number
from tidegate.calls.transport.kept_response import KEPT_CODEC, KeptResponse
from tidegate.context import Context, TaskStopped
from tidegate.context.run_control import StopReason
from tidegate.context.steps import recorded_steps, records_calls
from tidegate.domain.calls import CallResult
from tidegate.domain.step import KEY_LENGTH, StepState, step_digest, step_key
from tidegate.domain.text import redacted_text, storable
from tidegate.domain.usage import Usage, UsageTotals
from tidegate.steps import RunSteps, answered, refusal_of
from tidegate.steps.current import are_calls_recorded
from tidegate.steps.waits import GivenStream
from tidegate.store.step_rows import BeginStatus, EndStatus, StepBegin, StepEnd

_log = logging.getLogger("tidegate.calls")
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods whose answers are not kept: they ask for the state of something now, as a loop that polls does."""
_CAUSE_LENGTH = 500
_NOT_SENT = "it was not sent"

_warned: set[tuple[str, str]] = set()
"""The warnings that were logged, by function."""


def recorded_call(request: Any, settings: CallSettings) -> RecordedCall | None:
    """Return the call that the current run makes now, if it is to be recorded; otherwise None.

    Raises:
        TaskStopped: The run has ended.
    """
    recording = settings.recording
    if request.method in _READS or (recording.is_final and not recording.is_on) or not are_calls_recorded():
        return None
    run = current_run()
    if run is None or not (recording.is_on if recording.is_final else records_calls(run, recording.is_on)):
        return None
    steps = recorded_steps(run)
    if steps is None:
        return None
    identity = identify_call(request, steps)
    if identity is None:
        _warn_once(
            run.function, "a call is not recorded, because its body is an upload that can be read once"
        )
        return None
    return RecordedCall(run, steps, identity, recording, settings.upstream)


class RecordedCall:
    """One call, from before its permit to the end of its response.

    It is a step of its task. It begins just before the request leaves, and ends before the client has the
    whole response.

    Args:
        run: The run that makes it.
        steps: The steps of that run.
        identity: Identifies it in each run of its task.
        recording: How its upstream records calls.
        upstream: The name of the upstream.
    """

    def __init__(
        self, run: Context, steps: RunSteps, identity: CallIdentity, recording: Recording, upstream: str
    ) -> None:
        self._run = run
        self._steps = steps
        self.identity = identity
        self._recording = recording
        self._upstream = upstream
        self._name = f"call {upstream}"[:KEY_LENGTH]
        digest = step_digest(self._name, f"{identity.work} {identity.content}".encode())
        self._key = step_key(digest, identity.number)
        self._attempt = 0
        self._is_begun = False
        self._has_ended = False
        self._stream: GivenStream | None = None
        """The response, once the client reads it as a stream."""
        self._in_flight = ExitStack()
        self._in_flight.enter_context(steps.waits.doing_step())

    @property
    def max_bytes(self) -> int:
        """The most bytes of a response that is kept."""
        return self._recording.max_bytes

    async def find(self) -> KeptResponse | None:
        """Return the response that an earlier run recorded; None if there is none."""
        loading = self._steps.load()
        if loading is not None:
            self._steps.take(await answered(loading))
        row = self._steps.recorded(self._key, self._name)
        if row is None or row.state is not StepState.DONE:
            return None
        if row.data is None:  # it was too large to be read with the others
            return await self.begin()
        return self._replayed(row.data, row.codec)

    async def begin(self) -> KeptResponse | None:
        """Record that the call is about to be sent. Return its response if it is known already.

        Raises:
            StepInDoubtError: An earlier call may have been processed, and a person must decide.
            StepRejectedError: A person decided that it must not be repeated.
            TaskStopped: The run is no longer the task's current one.
        """
        if self._is_begun:
            return None
        self._attempt = self._steps.next_attempt(self._key)
        self._is_begun = True
        beginning = self._steps.port.begin(
            StepBegin(
                self._steps.fence,
                self._key,
                self._attempt,
                self._name,
                self._recording.on_doubt,
                upstream=self._upstream,
            )
        )
        begun = await answered(beginning)
        if begun.status is BeginStatus.BEGUN:
            return None
        self._is_begun = False
        if begun.status is BeginStatus.DONE:
            return self._replayed(begun.data, begun.codec)
        if begun.status is BeginStatus.FENCED:
            raise TaskStopped(StopReason.LOST.value)
        raise refusal_of(begun.status, self._name, self._steps.fence.task_id)

    def give_stream(self) -> None:
        """Note that from now on the client reads the response. It may leave it without closing it."""
        clock = self._run._control.clock  # noqa: SLF001 - not for task functions
        self._stream = self._in_flight.enter_context(self._steps.waits.giving_stream(clock))

    def reading(self) -> AbstractContextManager[None]:
        """Note that the client waits for the next piece of its stream inside the block."""
        return nullcontext() if self._stream is None else self._stream.reading()

    async def keep(
        self, response: Any, body: bytes | None, usage: Usage | None = None
    ) -> KeptResponse | None:
        """Record the response of a call that succeeded.

        Args:
            response: The response.
            body: Its bytes as they were received; None if they are more than the recording allows.
            usage: What the call consumed; None if the response does not say it.

        Returns:
            The response that counts, if another run has recorded one first; otherwise None.
        """
        if body is None or len(body) > self._recording.max_bytes:
            size = f"is larger than record_max_bytes ({self._recording.max_bytes})"
            _warn_once(self._run.function, f"a response of {self._upstream} {size}, and is not recorded")
            await self._end(EndStatus.FAILED, cause=f"its response {size}")
            return None
        data = KeptResponse.of(response, body).dump()
        return await self._end(EndStatus.DONE, data=data, codec=KEPT_CODEC, usage=usage)

    async def fail(self, end: CallResult, usage: Usage | None = None) -> None:
        """Record that the call failed. The next equal call of the run repeats it.

        Args:
            end: How it ended.
            usage: What a stream has said about its use before it broke off.
        """
        failure = end.failure
        is_in_doubt = end.is_in_doubt or is_interrupted(end)
        cause = "" if failure is None else f"{failure.reason}: {failure.message or failure.evidence}"
        await self._end(
            EndStatus.IN_DOUBT if is_in_doubt else EndStatus.FAILED,
            cause=storable(redacted_text(cause, _CAUSE_LENGTH), _CAUSE_LENGTH),
            request_id="" if failure is None else failure.request_id,
            usage=end.usage or usage,
        )
        self._release()

    async def cut_off(self, cause: str, usage: Usage | None) -> None:
        """Record that the client did not read the whole response, and what it has said about its use."""
        await self._end(EndStatus.IN_DOUBT, cause=cause, usage=usage)
        self._release()

    async def abandon(self) -> None:
        """Record that the call was not made, unless it has ended. Its number is free again."""
        if self._has_ended:
            return
        if self._is_begun:
            await self._end(EndStatus.FAILED, cause=_NOT_SENT)
        self._release()

    def _release(self) -> None:
        self._has_ended = True
        self._in_flight.close()
        release_number(self.identity, self._steps)

    async def _end(
        self,
        status: EndStatus,
        *,
        data: bytes = b"",
        codec: str = "",
        cause: str = "",
        request_id: str = "",
        usage: Usage | None = None,
    ) -> KeptResponse | None:
        """Record the end. It is written even if this is cancelled."""
        self._has_ended = True
        used = None if usage is None else UsageTotals().with_call(usage)
        ending = self._steps.port.end(
            StepEnd(
                self._steps.fence,
                self._key,
                self._attempt,
                status,
                data,
                codec,
                cause,
                self._upstream,
                request_id,
                None if used is None else used.input_tokens,
                None if used is None else used.output_tokens,
            )
        )
        try:
            ended = await answered(ending)
        except Exception as error:  # the response was paid for, and must not be lost
            _log.warning("a call of %s could not be recorded: %s", self._upstream, error)
            return None
        finally:
            self._in_flight.close()
        if status is EndStatus.DONE and ended.status is EndStatus.ALREADY:
            return KeptResponse.load(ended.data, ended.codec)
        return None

    def _replayed(self, data: bytes, codec: str) -> KeptResponse:
        self._has_ended = True
        self._in_flight.close()
        self._run.calls.record_replayed()
        return KeptResponse.load(data, codec)


def _warn_once(function: str, message: str) -> None:
    if (function, message) not in _warned:
        _warned.add((function, message))
        _log.warning("%s: %s", function, message)
