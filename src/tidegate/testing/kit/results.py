"""What a drain reports, and the errors with which the kit fails a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.domain.failure import Reason
from tidegate.domain.outcome import Cancelled, Dead, Outcome, Released, Retrying, Succeeded, Suspended
from tidegate.store.rows import ClaimedTask

SHOWN_LINES = 10
"""Most lines of a list in a message."""


class KitError(AssertionError):
    """Fails a test. Says what was expected, what was found, and what to do.

    Args:
        message: What is wrong.
        found: What was found instead, one line each.
        fix: What to do about the failure.
    """

    def __init__(self, message: str, found: Sequence[str] = (), fix: str = "") -> None:
        self.message = message
        self.fix = fix
        lines = [message, *(f"  {line}" for line in found[:SHOWN_LINES])]
        if len(found) > SHOWN_LINES:
            lines.append(f"  … and {len(found) - SHOWN_LINES} more")
        if fix:
            lines.append(f"→ {fix}")
        super().__init__("\n".join(lines))


class RunFailedError(KitError):
    """A run failed, and the test asked for an error then.

    The `__cause__` of the error is the exception that the function raised.
    """


class NeverEndedError(KitError):
    """A drain took too long: a task never ends, or keeps making new work."""


@dataclass(frozen=True, slots=True)
class DrainedRun:
    """One run of one task in a drain."""

    task_id: str
    function: str
    run: int
    """Number of this claim of the task, from 1."""
    outcome: str
    """`succeeded`, `retrying`, `dead`, `cancelled`, `released` or `suspended`."""
    reason: Reason | None = None
    """Why the run failed; None if it did not fail."""
    message: str = ""
    """The error's text, as it is stored."""
    error: BaseException | None = None
    """What the function raised; None if it raised nothing."""
    retry_in: float | None = None
    """Seconds until the next run; None if there is none."""

    def __str__(self) -> str:
        text = f"{self.function} {self.task_id} run {self.run}: {self.outcome}"
        if self.reason is not None:
            text += f" ({self.reason}: {self.message})" if self.message else f" ({self.reason})"
        return text


@dataclass(frozen=True, slots=True, repr=False)
class Drained:
    """What a drain did: its runs in the order of their ends, and how many ended how."""

    runs: tuple[DrainedRun, ...] = ()

    def __repr__(self) -> str:
        counted = {name: self._count(name) for name in _NAMES.values()}
        counts = ", ".join(f"{count} {name}" for name, count in counted.items() if count) or "nothing ran"
        return "".join((f"<Drained: {counts}", *(f"; {run}" for run in self.failures[:SHOWN_LINES]), ">"))

    @property
    def succeeded(self) -> int:
        """Runs whose function returned."""
        return self._count("succeeded")

    @property
    def retrying(self) -> int:
        """Runs that failed and whose task runs again later."""
        return self._count("retrying")

    @property
    def dead(self) -> int:
        """Runs that failed for good: their tasks are dead letters."""
        return self._count("dead")

    @property
    def cancelled(self) -> int:
        """Runs that were cancelled."""
        return self._count("cancelled")

    @property
    def suspended(self) -> int:
        """Runs whose task suspended itself, for example by `ctx.sleep`."""
        return self._count("suspended")

    @property
    def failed(self) -> int:
        """Runs that failed, for now or for good."""
        return self.retrying + self.dead

    @property
    def failures(self) -> tuple[DrainedRun, ...]:
        """The runs that failed."""
        return tuple(run for run in self.runs if run.outcome in ("retrying", "dead"))

    def __add__(self, other: Drained) -> Drained:
        return Drained(self.runs + other.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __bool__(self) -> bool:
        return bool(self.runs)

    def raise_if_failed(self) -> None:
        """Raise if any run failed.

        Raises:
            RunFailedError: The first failed run; what its function raised is the cause.
        """
        for run in self.failures:
            raise RunFailedError(
                f"expected every run to succeed, and {self.failed} of {len(self.runs)} failed:",
                [str(failed) for failed in self.failures],
                "mend the task, or expect the failure: drain without raise_on_failure",
            ) from run.error

    def _count(self, outcome: str) -> int:
        return sum(run.outcome == outcome for run in self.runs)


def drained_run(claimed: ClaimedTask, outcome: Outcome, error: BaseException | None) -> DrainedRun:
    """Return what a drain reports of one run."""
    failure = outcome.failure if isinstance(outcome, Retrying | Dead) else None
    return DrainedRun(
        task_id=claimed.fence.task_id,
        function=claimed.function,
        run=claimed.fence.run,
        outcome=_NAMES[type(outcome)],
        reason=None if failure is None else failure.reason,
        message="" if failure is None else failure.message,
        error=None if failure is None else error,
        retry_in=outcome.delay_seconds if isinstance(outcome, Retrying) else None,
    )


_NAMES = {
    Succeeded: "succeeded",
    Retrying: "retrying",
    Dead: "dead",
    Cancelled: "cancelled",
    Released: "released",
    Suspended: "suspended",
}
