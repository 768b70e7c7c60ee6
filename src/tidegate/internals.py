"""The one way from an application to what its own rooms use of it."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

C_co = TypeVar("C_co", covariant=True)


class HasCore(Protocol[C_co]):
    """An application, by shape: the rooms below it cannot import it."""

    @property
    def _core(self) -> C_co: ...


def core_of(app: HasCore[C_co]) -> C_co:
    """Return the internals of an application. For Tidegate's own rooms; they change without notice."""
    return app._core  # noqa: SLF001 - the one place that reads it


def is_application(value: Any) -> bool:
    """Return whether a value is a `Tidegate` application."""
    return hasattr(value, "_core")
