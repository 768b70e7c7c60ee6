"""`read` and `write` make a store method of a function that takes a session."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from tidegate.store.common.session import Session
from tidegate.store.protocol import Store

P = ParamSpec("P")
S = TypeVar("S", bound=Session)
T = TypeVar("T")
Work = Callable[[Any], Coroutine[Any, Any, T]]
"""The work of one store call, given a session. A second try runs it from the start."""
Operation = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]
"""A function that does the work of a store method, given a session."""
Method = Callable[Concatenate["StoreMethods", P], Coroutine[Any, Any, T]]


def read(
    operation: Operation[S, P, T], *, snapshot: bool = False, generic_plan: bool = False
) -> Method[P, T]:
    """Return a store method that runs an operation which only reads. See `StoreMethods._read`."""

    @wraps(operation)
    async def method(self: StoreMethods, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def work(db: S) -> Coroutine[Any, Any, T]:
            return operation(db, *args, **kwargs)

        return await self._read(work, snapshot=snapshot, generic_plan=generic_plan)

    return method


def write(
    operation: Operation[S, P, T],
    *,
    alone: bool = False,
    generic_plan: bool = False,
    repeatable: bool = True,
    notify: bool = False,
) -> Method[P, T]:
    """Return a store method that runs an operation which writes. See `StoreMethods._write`."""

    @wraps(operation)
    async def method(self: StoreMethods, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def work(db: S) -> Coroutine[Any, Any, T]:
            return operation(db, *args, **kwargs)

        return await self._write(
            work, alone=alone, generic_plan=generic_plan, repeatable=repeatable, notify=notify
        )

    return method


class StoreMethods(Store):
    """A store whose methods run work in a session. A back end says how the work runs."""

    @abstractmethod
    async def _read(self, work: Work[T], *, snapshot: bool = False, generic_plan: bool = False) -> T:
        """Run work that only reads.

        Args:
            work: The work.
            snapshot: Whether the work has several statements that must read one snapshot.
            generic_plan: Whether one plan of its statement fits all values.
        """

    @abstractmethod
    async def _write(
        self,
        work: Work[T],
        *,
        alone: bool = False,
        generic_plan: bool = False,
        repeatable: bool = True,
        notify: bool = False,
    ) -> T:
        """Run work that writes, in one transaction.

        Args:
            work: The work.
            alone: Whether the work is a single statement, which needs no explicit transaction.
            generic_plan: Whether one plan of its statement fits all values.
            repeatable: Whether the work may be repeated after a lost connection.
            notify: Whether other processes may wait for the change. Waiting callers are not notified if the
                work returns 0.
        """
