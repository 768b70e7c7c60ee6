"""The form of a pack: what one provider means where it differs from what is generally meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidegate.providers.evidence import Evidence
from tidegate.providers.meaning import Finding, Meaning

Judge = Callable[[Evidence], Finding | None]
"""Looks at one answer or exception before the tables do; None leaves it to them."""
ReadWait = Callable[[Evidence, float, float | None], float | None]
"""Corrects a wait: the evidence, the moment, and the wait as generally read, to the seconds to believe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """One provider's own meanings. What it does not name is read as for everyone."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other names under which it is declared as an upstream's provider."""
    hosts: tuple[str, ...] = ()
    """Its hosts; each also stands for the hosts below it."""
    modules: tuple[str, ...] = ()
    """Root modules of its SDKs' exceptions."""
    codes: Mapping[str, Meaning] = field(default_factory=dict)
    """By `code_key`. They say more than the status, and more than anybody else's codes."""
    statuses: Mapping[int, Meaning] = field(default_factory=dict)
    classes: Mapping[str, Meaning] = field(default_factory=dict)
    """Names of exception classes that are defined in its own modules."""
    judge: Judge | None = None
    """For what no table can say."""
    read_wait: ReadWait | None = None
    requests_window_seconds: float | None = None
    """Over which its limit on requests is counted, where its headers do not say."""
