"""Record the starts and ends of task functions in a file of JSON lines.

Each line is on disk before the function goes on.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from checker.observations import FunctionNote
from tidegate.context import Context
from tidegate.errors import OptionError
from tidegate.task import TaskFunction


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


class FunctionRecorder:
    """Records when task functions start and end. Several processes may write to one file.

    Each line is one appending write followed by fsync, so a killed process leaves only whole lines.

    Args:
        path: The file; created if missing, else appended to.
        clock: Returns seconds since the epoch.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._clock = clock

    def record_start(self, task_id: str, run: int) -> None:
        """Record that a function starts."""
        self._write(FunctionNote("start", task_id, run, os.getpid(), self._clock()))

    def record_end(self, task_id: str, run: int, *, digest: str = "", error: str = "") -> None:
        """Record that a function returned a result with this digest, or raised an error of this class."""
        self._write(FunctionNote("end", task_id, run, os.getpid(), self._clock(), digest, error))

    def record_runs(self, function: TaskFunction[Any, Any, Any]) -> None:
        """Record all later runs of a task function.

        Raises:
            OptionError: The function takes no `Context`, so its run is not known.
        """
        if function.signature.context is None:
            raise OptionError(
                f"{function.spec.name} cannot be recorded", fix="give it a parameter annotated with Context"
            )
        body = function.function
        wrap = self._wrap_async if inspect.iscoroutinefunction(body) else self._wrap
        function.function = functools.wraps(body)(wrap(function, body))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _wrap_async(
        self, function: TaskFunction[Any, Any, Any], body: Callable[..., Any]
    ) -> Callable[..., Any]:
        async def recorded(*args: Any, **kwargs: Any) -> Any:
            context = _context(args, kwargs)
            self.record_start(context.task_id, context.run)
            try:
                value = await body(*args, **kwargs)
            except BaseException as error:
                self.record_end(context.task_id, context.run, error=type(error).__name__)
                raise
            self._record_result(function, context, value)
            return value

        return recorded

    def _wrap(self, function: TaskFunction[Any, Any, Any], body: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            context = _context(args, kwargs)
            self.record_start(context.task_id, context.run)
            try:
                value = body(*args, **kwargs)
            except BaseException as error:
                self.record_end(context.task_id, context.run, error=type(error).__name__)
                raise
            self._record_result(function, context, value)
            return value

        return recorded

    def _record_result(self, function: TaskFunction[Any, Any, Any], context: Context, value: Any) -> None:
        data = function.signature.encode_result(value).data
        self.record_end(context.task_id, context.run, digest=digest_of(data))

    def _write(self, note: FunctionNote) -> None:
        os.write(self._file, msgspec.json.encode(note) + b"\n")
        os.fsync(self._file)


def read_notes(path: str | os.PathLike[str]) -> list[FunctionNote]:
    """Return the recorded notes in the order written; an empty list if the file does not exist.

    An incomplete last line is left out: its process was killed while it wrote.
    """
    try:
        text = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    whole, _, _ = text.rpartition(b"\n")
    return [msgspec.json.decode(line, type=FunctionNote) for line in whole.splitlines()]


def _context(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Context:
    return next(value for value in (*args, *kwargs.values()) if isinstance(value, Context))
