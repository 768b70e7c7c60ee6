"""Describes the parts of an application that `app.admin` uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tidegate.calls.upstream import Upstream
from tidegate.domain.links import LinkSettings
from tidegate.domain.retention import Retention
from tidegate.limits.settings import LimitDeclaration
from tidegate.store.protocol import Store
from tidegate.task import TaskFunction
from tidegate.worker.application import Runnable


class AdminSource(Protocol):
    """The parts of an application that `app.admin` uses."""

    @property
    def functions(self) -> Mapping[str, Runnable]:
        """The task functions that the application declares, by name."""
        ...

    def function(self, name: str) -> TaskFunction[Any, Any, Any]:
        """Return the task function of that name.

        Raises:
            UnknownFunctionError: The application declares no function of that name.
        """
        ...

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The upstreams that the application declares, by name."""
        ...

    @property
    def retention(self) -> Retention:
        """How long final tasks are kept, and where their rows are archived."""
        ...

    @property
    def links(self) -> LinkSettings | None:
        """Makes the links of approvals; None if links are not configured."""
        ...

    async def opened_store(self) -> Store:
        """Return the store, opened."""
        ...

    def declared(self) -> Sequence[LimitDeclaration]:
        """Return the limits that the application declares."""
        ...
