"""How a task ended, for a task that waits for it."""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class FinalResult(NamedTuple, Generic[T_co]):
    """How a task ended: with a value, or with an error."""

    value: T_co | None
    error: Exception | None


class OtherTask(Protocol[T_co]):
    """A task that another one waits for: a `Handle`."""

    id: str

    async def _ended(self) -> FinalResult[T_co] | None:
        """Return how the task ended; None if it can still run."""
