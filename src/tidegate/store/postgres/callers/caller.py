"""The interface to a caller's connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tidegate.errors import OptionError


class Caller(ABC):
    """A connection of the caller, through its library.

    Args:
        conn: The connection or session.
    """

    style: ClassVar[str]
    """How statements name their parameters: `numbered`, `format` or `named`."""
    blocks: ClassVar[bool]
    """Whether the connection blocks. In that case `fetch` and `run` never suspend."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    @abstractmethod
    def require_transaction(self) -> None:
        """Raise `OptionError` unless an enqueue becomes part of a transaction that the caller ends.

        Raises:
            OptionError: The connection is closed, or would commit the enqueue at once.
        """

    @abstractmethod
    async def fetch(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement in the open transaction; return its rows."""

    @abstractmethod
    async def run(self, statement: str) -> None:
        """Run a statement that has neither parameters nor rows in the open transaction."""

    def on_commit(self, notify: Callable[[], None]) -> None:  # noqa: B027 - most libraries have no hook
        """Call `notify` after the commit, if the library supports it. Otherwise other processes poll."""


def closed() -> OptionError:
    """Return the error for a connection that is closed."""
    return OptionError(
        "conn= is closed", fix="pass the connection while its transaction is open", option="conn"
    )


def no_transaction(how: str) -> OptionError:
    """Return the error for a connection on which the enqueue would be committed at once.

    Args:
        how: How to begin a transaction with this library.
    """
    return OptionError(
        "conn= has no transaction open: the task would be stored even if your writes are rolled back",
        fix=f"begin one: {how}; or enqueue without conn=",
        option="conn",
    )
