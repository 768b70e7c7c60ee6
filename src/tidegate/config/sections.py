"""From tables of a configuration file to pools and timings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tidegate.config.table import Table, did_you_mean
from tidegate.domain.spec import Priority
from tidegate.errors import ConfigError, OptionError
from tidegate.options import name_option
from tidegate.policy.order import DEFAULT_SHARES
from tidegate.upstream.limits import make_limits
from tidegate.worker.settings import Pool, Timings

TIMING_NAMES = tuple(field.name for field in fields(Timings))
"""Keys of `[worker]`; in capitals after `TIDEGATE_`, also variables of the environment."""

_POOL_KEYS = tuple(field.name for field in fields(Pool) if field.name != "name")
_SHARING = (Priority.NORMAL, Priority.BULK)


def read_timings(table: Table) -> dict[str, Any]:
    """Return the settings of a `[worker]` table by name, durations in seconds.

    Raises:
        ConfigError: A key or a value is wrong.
    """
    table.require_known(TIMING_NAMES)
    return {name: read_timing(table, name) for name in table.values}


def read_timing(table: Table, name: str) -> float | int:
    """Return one setting of a `[worker]` table."""
    return table.whole(name) if name == "promote_batch" else table.seconds(name)


def make_timings(values: Mapping[str, Any], place: str) -> Timings:
    """Return the timings; where a lease is given and no beat, the beat is a third of the lease, 10 s at most.

    Args:
        values: Settings by name.
        place: Where they come from, for errors.

    Raises:
        ConfigError: They do not fit together.
    """
    given = dict(values)
    if "lease" in given and "beat" not in given:
        given["beat"] = min(Timings().beat, given["lease"] / 3)
    try:
        return Timings(**given)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.message}", fix=error.fix) from None


def read_retries(table: Table) -> dict[str, float]:
    """Return the retry budget of the whole system, as far as the table says something of it.

    Raises:
        ConfigError: A value cannot work.
    """
    readers = {"retries_per_minute": table.number, "retry_window": table.seconds}
    found = {key: read(key) for key, read in readers.items() if key in table}
    try:
        make_limits(
            retries_per_minute=found.get("retries_per_minute"), retry_window=found.get("retry_window", 60.0)
        )
    except OptionError as error:
        raise ConfigError(f"{table.place}: {error.message}", fix=error.fix) from None
    return found


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
        "concurrency": table.whole,
        "processes": table.whole,
        "poll_interval": table.seconds,
        "memory_limit": table.size,
        "memory_soft_limit": table.size,
        "gpus": table.devices,
        "vram_limit": table.size,
        "child_runs": table.whole,
        "fatal_errors": table.texts,
        "strict": table.flag,
    }
    values: dict[str, Any] = {key: read(key) for key, read in readers.items() if key in table}
    if "shares" in table:
        values["shares"] = _read_shares(table.table("shares"))
    try:
        return Pool(name_option("pool name", name), **values)
    except (ConfigError, OptionError) as error:
        raise ConfigError(f"{table.place}: {error.message}", fix=error.fix) from None


def _read_shares(table: Table) -> dict[Priority, float]:
    shares = dict(DEFAULT_SHARES)
    for word in table.values:
        priority = next((priority for priority in _SHARING if priority.word == word), None)
        if priority is None:
            known = [priority.word for priority in _SHARING]
            raise ConfigError(
                f"{table.place}: {word}: only the lower priorities have a share",
                fix=did_you_mean(word, known),
            )
        shares[priority] = table.number(word)
    return shares
