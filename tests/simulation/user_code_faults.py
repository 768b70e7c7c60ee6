"""What other people's code does: options, rules, classifiers, codecs and store answers that raise at random.

They belong to one function, `sim:broken`, and to the worker's side of its runs. Every run must end even so.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulation.machine import current_machine
from tidegate.domain.spec import Fixed, Jitter, TaskSpec
from tidegate.task import TaskFunction

_SLOWEST = 0.2
"""Most seconds for which such code blocks the loop."""
_ERRORS = (TypeError, ValueError, KeyError, RuntimeError, ZeroDivisionError, RecursionError, AttributeError)
INJECTED_ERROR = "a broken"
"""The beginning of each error's text."""
CALLS = frozenset({"finish", "save_progress", "append_chunks", "claim", "list_cancel_requests"})
"""The methods of a worker's store that may answer with an error of no known kind."""


@dataclass(eq=False)
class UserCodeFaults:
    """Decides when user code raises or takes long."""

    rng: random.Random
    chance: float
    """The chance of an error in each call; the same chance that the call takes long."""
    hold: Callable[[float], None]
    """Lets time pass while nothing else can run."""
    injected: Counter[str]
    """Counts the injected faults."""

    def maybe_fail(self, what: str) -> None:
        """Raise or take long, at random.

        Raises:
            Exception: Any.
        """
        draw = self.rng.random() if self.chance else 1.0
        if draw < self.chance:
            self.injected[f"a {what} that raised"] += 1
            raise self.rng.choice(_ERRORS)(f"{INJECTED_ERROR} {what}")
        if draw < 2 * self.chance:
            self.injected[f"a {what} that took long"] += 1
            self.hold(_SLOWEST * self.rng.random())


class BrokenBackoff(Fixed):
    """A backoff that cannot always be read."""

    __slots__ = ()

    @property
    def seconds(self) -> float:
        """The same wait each time, if it can be read."""
        maybe_fail("backoff")
        return 1.0

    @property
    def jitter(self) -> Jitter:
        """As usual."""
        return Jitter.NARROW


class BrokenSignature:
    """A signature whose decoder sometimes fails; everything else is the real one."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def load(self, payload: bytes) -> Any:
        """Decode arguments, or fail at it."""
        maybe_fail("codec")
        return self._real.load(payload)


def break_function(function: TaskFunction[Any, Any, Any]) -> None:
    """Give a function settings that no check at declaration would let through."""
    spec: TaskSpec = function.spec
    object.__setattr__(spec, "backoff", object.__new__(BrokenBackoff))
    for rule in spec.rules:
        object.__setattr__(rule, "wait", object.__new__(BrokenBackoff))
    function.__dict__["signature"] = BrokenSignature(function.signature)


def broken_classifier(error: BaseException) -> Any:
    """Classify an exception: raise, return something that is not a failure, or pass it on."""
    maybe_fail("classifier")
    return "no failure" if isinstance(error, RuntimeError) else None


def maybe_fail(what: str) -> None:
    """Raise or take long at random, on a machine of a run where that may happen."""
    machine = current_machine()
    if machine is not None and machine.event_log.user_code_faults is not None:
        machine.event_log.user_code_faults.maybe_fail(what)
