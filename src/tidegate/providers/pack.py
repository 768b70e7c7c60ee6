"""The class of a pack: what one provider's errors mean where they differ from the general meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidegate.providers.counting import ACTUAL, Counting
from tidegate.providers.evidence import Evidence
from tidegate.providers.meaning import Finding, Meaning

Judge = Callable[[Evidence], Finding | None]
"""Reads one response or exception before the tables. None leaves the decision to the tables."""
ReadWait = Callable[[Evidence, float, float | None], float | None]
"""Corrects a wait. Takes the evidence, the current time and the wait as generally read; returns seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """One provider's own meanings. Everything else has its general meaning."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other names for it in an upstream's `provider=`."""
    hosts: tuple[str, ...] = ()
    """Its hosts. Each includes the hosts below it."""
    modules: tuple[str, ...] = ()
    """The root modules of its SDKs' exceptions."""
    codes: Mapping[str, Meaning] = field(default_factory=dict)
    """Meanings by `code_key`. These codes take precedence over the status and the general codes."""
    statuses: Mapping[int, Meaning] = field(default_factory=dict)
    classes: Mapping[str, Meaning] = field(default_factory=dict)
    """Meanings of the exception classes that its own modules define, by name."""
    judge: Judge | None = None
    """Reads evidence that tables cannot describe."""
    read_wait: ReadWait | None = None
    requests_window_seconds: float | None = None
    """The window of the provider's limit on requests, if its headers do not name one."""
    counting: Counting = ACTUAL
    """How it counts tokens."""
