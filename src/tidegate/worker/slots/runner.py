"""Runs an attempt in a child slot and turns what the slot says into its outcome."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence

from tidegate.context import RetryRequest
from tidegate.domain.failure import Failure
from tidegate.domain.outcome import Outcome
from tidegate.worker import report
from tidegate.worker.attempt import Attempt
from tidegate.worker.judge import Judge
from tidegate.worker.lease import Lease
from tidegate.worker.pause import Pause
from tidegate.worker.slots.frames import Answer, AskedAgain, Failed, Returned, Run
from tidegate.worker.slots.pool import NoSlot, SlotDied, SlotPool
from tidegate.worker.slots.process import SlotProcess


class SlotRunner:
    """Runs attempts in slots.

    Args:
        slots: Where from.
        judge: Decides the outcomes.
        lease: While it does not hold, no body begins.
        fatal_errors: Words in an error's class or message after which its process is replaced.
    """

    def __init__(self, slots: SlotPool, judge: Judge, lease: Lease, fatal_errors: Sequence[str]) -> None:
        self._slots = slots
        self._judge = judge
        self._lease = lease
        self._fatal_errors = fatal_errors
        self._pause = Pause(random.Random(), first=1.0, cap=30.0)

    async def perform(self, attempt: Attempt, begin: Callable[[Attempt], None]) -> Outcome | None:
        """Run one attempt to its outcome.

        Args:
            attempt: What to run.
            begin: Called when a slot is there, from when on the time limits count.
        """
        spec = attempt.function.spec
        try:
            async with self._slots.lend(alone=attempt.is_suspect, memory_limit=spec.memory_limit) as slot:
                await self._lease.held()  # it may have run out while a slot was started
                if attempt.control.stop is not None:
                    return self._judge.stopped(attempt)
                begin(attempt)
                attempt.slot, attempt.has_begun = slot, True
                answer = await slot.run(_frame(attempt), attempt.control)
                self._condemn_after(slot, answer)
                self._pause.reset()
        except SlotDied as died:
            stopped = self._judge.stopped(attempt)
            if stopped is not None or died.began:
                return stopped or self._judge.crashed(attempt, died.how)
            return self._judge.released(attempt, f"its child process had died before it began: {died.how}")
        except NoSlot as error:
            pause = self._pause.next()
            report.trouble("starting a child process", error, pause)
            await asyncio.sleep(pause)
            return self._judge.stopped(attempt) or self._judge.released(attempt, str(error))
        finally:
            attempt.slot = None
            with contextlib.suppress(OSError):
                if attempt.control.scratch_path.exists():  # it may be large, and others need the loop
                    await asyncio.to_thread(attempt.control.remove_scratch)
        return self._outcome(attempt, answer)

    def _outcome(self, attempt: Attempt, answer: Answer) -> Outcome | None:
        if answer.calls is not None:
            attempt.heard_of_calls(answer.calls)
        if isinstance(answer, AskedAgain):
            attempt.control.retry = RetryRequest(answer.after_seconds, answer.reason, answer.charge)
            return self._judge.asked(attempt)
        stopped = self._judge.stopped(attempt)
        if stopped is not None:
            return stopped
        if isinstance(answer, Returned):
            return self._judge.succeeded(attempt, answer.data)
        if isinstance(answer, Failed):
            rule = None if answer.rule < 0 else attempt.function.spec.rules[answer.rule]
            return self._judge.understood(attempt, answer.failure, rule)
        return None  # halted because the lease is lost

    def _condemn_after(self, slot: SlotProcess, answer: Answer) -> None:
        """Have the slot replaced after an error that leaves a process unusable."""
        if isinstance(answer, Failed) and (word := self._fatal_word(answer.failure)):
            slot.condemned = f"fatal error: {word}"

    def _fatal_word(self, failure: Failure) -> str:
        told = f"{failure.error_class} {failure.message}"
        return next((word for word in self._fatal_errors if word in told), "")


def _frame(attempt: Attempt) -> Run:
    claimed = attempt.claimed
    context = attempt.context()
    ends_at = attempt.control.ends_at
    return Run(
        function=claimed.function,
        task_id=claimed.fence.task_id,
        run=claimed.fence.run,
        attempt=context.attempt,
        max_attempts=context.max_attempts,
        queue=claimed.queue,
        priority=claimed.priority,
        upstream=claimed.upstream,
        is_probe=claimed.is_probe,
        tenant=claimed.tenant,
        labels=dict(claimed.labels),
        last_failure=claimed.last_failure,
        args=claimed.args,
        scratch_root=str(attempt.control.scratch_root),
        ends_at=None if ends_at == float("inf") else ends_at,
    )
