"""A real store whose methods can be made to misbehave one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tidegate.store.connect import open_store

Around = Callable[..., Awaitable[Any]]


class OddStore:
    """A real store. `around[name]` is called instead of a method, with the real method and its arguments."""

    def __init__(self, path: Path) -> None:
        self.real = open_store(f"sqlite:///{path}")
        self.around: dict[str, Around] = {}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.real, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            around = self.around.get(name)
            return await (method(*args, **kwargs) if around is None else around(method, *args, **kwargs))

        return call

    def fail_once(self, name: str, error: BaseException) -> None:
        """Make the next call of a method raise without doing anything."""

        async def around(method: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
            del self.around[name]
            raise error

        self.around[name] = around
