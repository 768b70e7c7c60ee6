"""What `app.admin` needs of an application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidegate.limits.settings import LimitDeclaration
from tidegate.store.protocol import Store


class AdminSource(Protocol):
    """An application, as far as its administration needs it."""

    @property
    def functions(self) -> Mapping[str, object]:
        """The task functions that it declares, by name."""
        ...

    async def opened_store(self) -> Store:
        """Return the store, opened."""
        ...

    def declared(self) -> Sequence[LimitDeclaration]:
        """Return the limits that it declares."""
        ...
