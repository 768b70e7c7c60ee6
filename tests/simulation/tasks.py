"""The tasks that clients enqueue: plain, delayed, under keys and unique names, with options of all kinds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from harness.record import ANY_END, ScriptedEnd
from harness.scripts import make_script, scripted_end
from simulation.functions import BROKEN_FUNCTION, task_functions
from tidegate.domain.failure import Reason
from tidegate.domain.ids import IdMaker
from tidegate.store.rows import NewTask

_FUNCTIONS = ("sim:steady", "sim:steady", "sim:once", "sim:ruled", "sim:urgent")
_KEYS = 4
"""So few that they are used again."""
_UNIQUE_NAMES = 3


@dataclass(eq=False, kw_only=True)
class TaskFactory:
    """Makes the tasks of a run; shared by its clients."""

    left: int
    """How many tasks to make."""
    lease: float
    """The lease in seconds; tasks last a part of it, or several of it."""
    rng: random.Random
    """Source of all random choices."""
    make_id: IdMaker
    has_broken_function: bool = False
    """Whether some tasks use the function whose settings fail."""
    scripted_ends: dict[str, ScriptedEnd] = field(default_factory=dict)
    """How each task may end."""

    def take(self, number: int) -> list[NewTask]:
        """Return up to this many tasks; fewer if fewer are left to make."""
        number = min(number, self.left)
        self.left -= number
        return [self._one(self.left + place) for place in range(number)]

    def take_items(self, number: int) -> list[NewTask]:
        """Return up to this many items of a map: tasks without options, of which some fail."""
        number = min(number, self.left)
        self.left -= number
        function = task_functions()["sim:steady"]
        lines = (["ok 0.5"], ["transient 0.1", "ok 0.5"], ["permanent 0.1"])
        return [
            replace(function.prepare(place, list(self.rng.choice(lines))).new_task, id=self.make_id())
            for place in range(number)
        ]

    def _one(self, number: int) -> NewTask:
        function, options = task_functions()[self.rng.choice(_FUNCTIONS)], self._options()
        script = make_script(self.rng, self.lease)
        draw = self.rng.random()
        if draw < 0.3:
            function = task_functions()["sim:steady"]
            number, script = (self._keyed if draw < 0.15 else self._unique)(options)
        elif self.has_broken_function and draw < 0.6:
            function = task_functions()[BROKEN_FUNCTION]
        task = replace(function.using(**options).prepare(number, script).new_task, id=self.make_id())
        self.scripted_ends[task.id] = _end_of(function.spec.name, script)
        return task

    def _keyed(self, options: dict[str, Any]) -> tuple[int, list[str]]:
        """Give the task a key and return its arguments, which sometimes differ from the key's first ones."""
        which = self.rng.randrange(_KEYS)
        options["key"] = f"key {which}"
        return which + (100 if self.rng.random() < 0.1 else 0), [f"ok {0.1 * self.lease:.2f}"]

    def _unique(self, options: dict[str, Any]) -> tuple[int, list[str]]:
        options["unique"] = "until_final"
        return self.rng.randrange(_UNIQUE_NAMES), [f"ok {0.5 * self.lease:.2f}"]

    def _options(self) -> dict[str, Any]:
        rng, lease = self.rng, self.lease
        options: dict[str, Any] = {"timeout": lease * rng.choice((1.5, 5.0))}
        if rng.random() < 0.3:
            options["delay"] = lease * 3 * rng.random()
        if rng.random() < 0.2:
            options["priority"] = rng.choice(("interactive", "normal", "bulk"))
        if rng.random() < 0.1:
            options["max_attempts"] = rng.randint(1, 4)
        if rng.random() < 0.1:
            options["deadline"] = options.get("delay", 0.0) + lease * rng.uniform(2, 10)
        return options


def _end_of(function: str, script: list[str]) -> ScriptedEnd:
    if function == BROKEN_FUNCTION:
        return ANY_END
    # Each task has limits for its time, and its machine may freeze: so any run may be charged, even of `ok`.
    end = scripted_end(script, max_attempts=1)
    return replace(end, dead_reasons=end.dead_reasons | {Reason.TIMEOUT, Reason.DEADLINE})
