"""A call to a provider, before and after: what it asks a permit for, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.domain.failure import Failure
from tidegate.domain.outcome import Fence
from tidegate.domain.spec import Priority
from tidegate.domain.usage import Usage

LONGEST_HOLD_SECONDS = 3600.0
"""A call without a time limit is counted as in flight for so long."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One call about to be made, as far as it is known beforehand."""

    model: str = ""
    input_tokens: int = 0
    """An estimate from the prompt; 0 where there is none."""
    output_tokens: int = 0
    """The most it may write (`max_tokens`); 0 where it names no limit."""
    patience_seconds: float = float("inf")
    """How long it may wait for its permit."""
    fence: Fence | None = None
    """The run it belongs to; None outside a task."""
    priority: Priority = Priority.NORMAL
    tenant: str = ""
    function: str = ""
    """The task function it is made for; empty outside a task."""
    is_charged: bool = False
    """The limits were charged for it when its task was claimed: the first call of each run."""
    is_of_run: bool = False
    """It is a call of its run's own upstream: of those the claim counted one at a time as in flight."""
    is_probe: bool = False
    """Its run was sent to try whether its held upstream works again."""
    on_last_attempt: bool = False
    """Its task has one attempt left, which a failed call costs and a refused one does not."""
    seconds: float = LONGEST_HOLD_SECONDS
    """The longest it may last once it has its slot; of a stream, until it begins."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A permit to be in flight, as the store keeps it for a call that no run stands for."""

    permit_id: str
    """Made by the caller, so that one whose answer was lost can be given back."""
    seconds: float
    """From when the call may start until the store forgets it, should nobody give it back."""


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How one call ended."""

    failure: Failure | None = None
    """None: it succeeded."""
    status: int | None = None
    """The HTTP status; None where no answer came."""
    usage: Usage | None = None
    """None: the answer does not say, or never came whole."""
    seconds: float = 0.0
    """From sending the request to the first byte of the answer, or to its failure."""
    in_doubt: bool = False
    """The request was sent and has no definite answer: it may have been done, and billed."""
