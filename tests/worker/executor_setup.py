"""An executor without a worker around it, which records the outcomes of its runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from support import until
from tidegate import Priority, Tidegate
from tidegate.domain.outcome import Counters, Fence, Outcome
from tidegate.store.rows import ClaimedTask
from tidegate.worker.children.pool import ChildPool
from tidegate.worker.engine.executor import Executor
from tidegate.worker.engine.lease import Lease
from tidegate.worker.engine.task_run import TaskRun


@dataclass
class Scene:
    """An executor whose lease the test sets, with the outcomes of its runs."""

    app: Tidegate
    lease: Lease
    executor: Executor
    children: ChildPool
    outcomes: list[Outcome | None] = field(default_factory=list)

    def start(self, name: str, *args: Any, **columns: Any) -> TaskRun:
        """Start a task that is claimed at moment 0; `columns` are other values of `ClaimedTask`."""
        function = self.app.function(name)
        task = function.prepare(*args).new_task
        return self.executor.start(
            ClaimedTask(
                Fence(task.id, 1), function.spec.name, "default", Priority.NORMAL, "", "", task.args, task.codec_tag,
                Counters(), 0.0, 0.0, 0.0, 0.0,
            )._replace(**columns)
        )  # fmt: skip

    async def ended(self) -> Outcome | None:
        async def one() -> bool:
            return bool(self.outcomes)

        await until(one, what="the run has an outcome")
        return self.outcomes[0]
