"""Reads pools, timings and the retry budget from the tables of a configuration file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any

from tidegate.config.table import Table, did_you_mean
from tidegate.domain.readers import choice_option
from tidegate.domain.retention import RULES, ArchiveFormat, QueueRetention, Retention
from tidegate.errors import ConfigError, OptionError
from tidegate.limits.options import make_limits
from tidegate.monitor.otel.settings import RunSpans, TelemetryMode, TelemetrySettings
from tidegate.worker.settings import SHARING, Pool, Timings

TIMING_NAMES = tuple(field.name for field in fields(Timings))
"""The keys of `[worker]`. In capitals after `TIDEGATE_` they are environment variables too."""

TELEMETRY_NAMES = tuple(field.name for field in fields(TelemetrySettings))
"""The keys of `[telemetry]`. In capitals after `TIDEGATE_` they are environment variables too."""

_POOL_KEYS = tuple(field.name for field in fields(Pool) if field.name != "name")


def read_timings(table: Table) -> dict[str, Any]:
    """Return the settings of a `[worker]` table by name, durations in seconds.

    Raises:
        ConfigError: A key or a value is wrong.
    """
    table.require_known(TIMING_NAMES)
    return {name: read_timing(table, name) for name in table.values}


def read_timing(table: Table, name: str) -> float | int:
    """Return one setting of a `[worker]` table."""
    if name == "promote_batch":
        return table.whole(name)
    return table.seconds(name)


def make_timings(values: Mapping[str, Any], place: str) -> Timings:
    """Return the timings.

    Args:
        values: The settings by name.
        place: Where the settings come from, for errors.

    Raises:
        ConfigError: They contradict each other.
    """
    try:
        return Timings(**values)
    except OptionError as error:
        raise ConfigError(
            f"{place}: {error.message}", fix=error.fix, place=place, option=error.option
        ) from None


RETENTION_NAMES = (*RULES, "archive", "archive_format")
"""The keys of `[retention]`. In capitals after `TIDEGATE_RETENTION_` they are environment variables too."""


def read_retention(table: Table) -> dict[str, Any]:
    """Return the settings of a `[retention]` table by name, and the tables of queues under `queues`.

    Raises:
        ConfigError: A key or a value is wrong.
    """
    table.require_known((*RETENTION_NAMES, "queues"))
    found = {name: read_retention_setting(table, name) for name in table.values if name != "queues"}
    queues = {name: _read_queue_retention(each) for name, each in table.table("queues").tables().items()}
    return found | ({"queues": queues} if queues else {})


def read_retention_setting(table: Table, name: str) -> float | str:
    """Return one setting of a `[retention]` table."""
    if name == "archive":
        return table.text(name)
    return table.choice(name, ArchiveFormat) if name == "archive_format" else table.kept(name)


def make_retention(values: Mapping[str, Any], place: str) -> Retention:
    """Return the retention.

    Args:
        values: The settings by name.
        place: Where the settings come from, for errors.

    Raises:
        ConfigError: The name of a queue is not allowed.
    """
    try:
        return Retention(**values)
    except OptionError as error:
        raise ConfigError(
            f"{place}: {error.message}", fix=error.fix, place=place, option=error.option
        ) from None


def _read_queue_retention(table: Table) -> QueueRetention:
    table.require_known(RULES)
    return QueueRetention(**{name: table.kept(name) for name in table.values})


def read_retries(table: Table) -> dict[str, float]:
    """Return the settings of the system's retry budget that the table contains.

    Raises:
        ConfigError: A value is invalid.
    """
    readers = {"retries_per_minute": table.number, "retry_window": table.seconds}
    found = {key: read(key) for key, read in readers.items() if key in table}
    try:
        make_limits(
            retries_per_minute=found.get("retries_per_minute"), retry_window=found.get("retry_window", 60.0)
        )
    except OptionError as error:
        raise ConfigError(
            f"{table.place}: {error.message}", fix=error.fix, place=table.place, option=error.option
        ) from None
    return found


def read_telemetry(table: Table) -> dict[str, Any]:
    """Return the settings of a `[telemetry]` table that it contains.

    Raises:
        ConfigError: A key or a value is wrong.
    """
    table.require_known(TELEMETRY_NAMES)
    readers: dict[str, Callable[[str], Any]] = {
        "opentelemetry": lambda key: _word(table, key, TelemetryMode),
        "run_spans": lambda key: _word(table, key, RunSpans),
        "call_spans": table.flag,
    }
    return {key: readers[key](key) for key in table.values}


def _word(table: Table, key: str, words: type[StrEnum]) -> StrEnum:
    """Return one of a few words."""
    try:
        return words(choice_option(key, table.values[key], words))
    except OptionError as error:
        raise table.wrong(key, error.fix) from None


def read_pools(table: Table) -> tuple[Pool, ...]:
    """Return the pools of a `[pools]` table in the order written.

    Raises:
        ConfigError: A key or a value is wrong.
    """
    return tuple(_read_pool(name, settings) for name, settings in table.tables().items())


def _read_pool(name: str, table: Table) -> Pool:
    table.require_known(_POOL_KEYS)
    readers = {
        "queues": table.names,
        "concurrency": table.concurrency,
        "processes": table.whole,
        "poll_interval": table.seconds,
        "memory_limit": table.size,
        "memory_soft_limit": table.size,
        "gpus": table.devices,
        "vram_limit": table.size,
        "child_runs": table.whole,
        "fatal_errors": table.texts,
        "overlap": table.flag,
        "event_loop": table.text,
        "strict": table.flag,
    }
    values: dict[str, Any] = {key: read(key) for key, read in readers.items() if key in table}
    if "shares" in table:
        values["shares"] = _read_shares(table.table("shares"))
    try:
        return Pool(name, **values)
    except OptionError as error:
        raise ConfigError(
            f"{table.place}: {error.message}", fix=error.fix, place=table.place, option=error.option
        ) from None


def _read_shares(table: Table) -> dict[str, float]:
    known = [priority.word for priority in SHARING]
    for word in table.values:
        if word not in known:
            raise ConfigError(
                f"{table.place}: {word}: only the lower priorities have a share",
                fix=did_you_mean(word, known),
                place=table.place,
                option=word,
            )
    return {word: table.number(word) for word in table.values}
