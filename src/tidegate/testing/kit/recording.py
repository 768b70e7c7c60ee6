"""Records what plain calls of task functions report: their progress and their chunks."""

from __future__ import annotations

from typing import Any

from tidegate.codec import decode
from tidegate.context import Progress, RunControl


class PlainCalls:
    """What plain calls reported, in order."""

    def __init__(self) -> None:
        self.progress: list[Progress] = []
        self.emitted: list[Any] = []

    def observe(self, control: RunControl) -> None:
        """Record what one plain call reports. Chunks pass through the codec, as a task's chunks do."""
        control.on_progress = self.progress.append
        control.on_emit = self._emit

    def _emit(self, data: bytes) -> bool:
        if data:
            self.emitted.append(decode(data, path="chunk"))
        return True
