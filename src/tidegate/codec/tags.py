"""Tags: mark the type of a value whose plain JSON form would come back as another value.

A tagged value is an object with the key `$tg`, such as `{"$tg": "tuple", "v": [1, 2]}`. A tag is used only if
the annotation does not restore the value, so most stored JSON has none. `TAGS` writes the scalars, and
`untag` reads all tags.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

CODEC = "json/1"
"""The name of the format, stored with every payload and result. A new format gets a new name."""

TAG = "$tg"
TAG_MARK = b'"$tg"'
"""Bytes without this contain no tag. (Inside a JSON string the quotes would be escaped.)"""


def tagged(name: str, value: Any) -> dict[str, Any]:
    """Return the tagged form of `value`, which JSON must be able to hold."""
    return {TAG: name, "v": value}


def zone_name(zone: tzinfo | None) -> str:
    """Return the name of a `zoneinfo` zone, such as `Europe/Paris`; empty for any other kind of zone."""
    named = type(zone).__module__ == "zoneinfo"  # not imported here; a caller with such a zone has loaded it
    return getattr(zone, "key", None) or "" if named else ""


def _tag_datetime(value: datetime) -> dict[str, Any]:
    zone = zone_name(value.tzinfo)
    if zone:
        return tagged("zoned", [value.replace(tzinfo=None).isoformat(), zone, value.fold])
    return tagged("datetime", value.isoformat())


TAGS: dict[type, Callable[[Any], Any]] = {
    datetime: _tag_datetime,
    date: lambda value: tagged("date", value.isoformat()),
    time: lambda value: tagged("time", value.isoformat()),
    timedelta: lambda value: tagged("timedelta", [value.days, value.seconds, value.microseconds]),
    Decimal: lambda value: tagged("decimal", str(value)),
    UUID: lambda value: tagged("uuid", str(value)),
    bytes: lambda value: tagged("bytes", base64.b64encode(value).decode()),
}
"""The scalar types that JSON has no form for, each with the function that tags it."""


def untag(tree: Any) -> Any:
    """Return decoded JSON with every tagged value restored.

    Raises:
        ValueError: A tag is unknown (written by a newer release?) or its value is malformed.
    """
    if type(tree) is list:
        return [untag(item) for item in tree]
    if type(tree) is not dict:
        return tree
    if TAG not in tree:
        return {key: untag(item) for key, item in tree.items()}
    read = _READERS.get(tree[TAG]) if isinstance(tree[TAG], str) else None
    if read is None or tree.keys() != {TAG, "v"}:
        raise ValueError(f"unknown tag {tree[TAG]!r}")
    try:
        return read(tree["v"])
    except (TypeError, ValueError, ArithmeticError, KeyError, OSError) as error:
        raise ValueError(f"malformed {tree[TAG]}") from error


def sorted_pairs(tree: Any) -> Any:
    """Return decoded JSON with the pairs of tagged dicts sorted, so that equal dicts are equal trees."""
    if type(tree) is list:
        return [sorted_pairs(item) for item in tree]
    if type(tree) is not dict:
        return tree
    flat = {key: sorted_pairs(item) for key, item in tree.items()}
    if flat.get(TAG) == "dict":
        flat["v"] = sorted(flat["v"], key=lambda pair: msgspec.json.encode(pair, order="sorted"))
    return flat


def _read_zoned(parts: list[Any]) -> datetime:
    from zoneinfo import ZoneInfo

    naive, zone, fold = parts
    return datetime.fromisoformat(naive).replace(tzinfo=ZoneInfo(zone), fold=fold)


def _read_set(make: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def read(items: list[Any]) -> Any:
        values = untag(items)
        try:
            return make(values)
        except TypeError:  # instances of a class are still dicts here; the annotation makes the set later
            return values

    return read


_READERS: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "zoned": _read_zoned,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "tuple": lambda items: tuple(untag(items)),
    "set": _read_set(set),
    "frozenset": _read_set(frozenset),
    "dict": lambda pairs: {untag(key): untag(item) for key, item in pairs},
}
