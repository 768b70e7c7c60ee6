"""Compares a value with its decoded copy. Stricter than `==`: types must be equal too, at every level."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import msgspec

from tidegate.codec import models
from tidegate.codec.tags import zone_name


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two values differ."""

    keys: tuple[object, ...]
    """The keys that lead to the value, outermost first."""
    before: Any
    after: Any


_MISSING: Any = object()


def difference(before: Any, after: Any) -> Difference | None:
    """Return the first place where `after` differs from `before`; None if they are the same.

    An `int` that comes back as the equal `float` counts as the same, as it does for type checkers.
    """
    kind = type(before)
    if kind is not type(after):
        widened = kind is int and type(after) is float and before == after
        return None if widened else Difference((), before, after)
    if kind in (list, tuple):
        return _by_position(before, after)
    if kind is dict:
        return _by_key(before, after)
    if kind in (set, frozenset):
        return _by_key({item: item for item in before}, {item: item for item in after})
    names = _field_names(kind, before)
    if names is not None:
        return _by_attribute(before, after, names)
    return None if _same_scalar(before, after) else Difference((), before, after)


def _field_names(kind: type, value: Any) -> Iterable[str] | None:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if models.is_model(kind):
        return list(vars(value))
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return kind._fields if isinstance(value, tuple) and hasattr(kind, "_fields") else None


def _first(pairs: Iterable[tuple[object, Any, Any]]) -> Difference | None:
    for key, before, after in pairs:
        found = difference(before, after)
        if found is not None:
            return Difference((key, *found.keys), found.before, found.after)
    return None


def _by_position(before: Any, after: Any) -> Difference | None:
    if len(before) != len(after):
        return Difference((), before, after)
    return _first((index, *pair) for index, pair in enumerate(zip(before, after, strict=True)))


def _by_key(before: dict[Any, Any], after: dict[Any, Any]) -> Difference | None:
    if len(before) != len(after):
        return Difference((), before, after)
    keys = {key: key for key in after}  # an equal key may have another type
    return _first((key, key, keys.get(key, _MISSING)) for key in before) or _first(
        (key, item, after[key]) for key, item in before.items()
    )


def _by_attribute(before: Any, after: Any, names: Iterable[str]) -> Difference | None:
    found = _first((name, getattr(before, name), getattr(after, name, _MISSING)) for name in names)
    if found is None and models.is_model(type(before)) and before != after:  # private or extra attributes
        return Difference((), before, after)
    return found


def _same_scalar(before: Any, after: Any) -> bool:
    if isinstance(before, Decimal):
        return bool(before.as_tuple() == after.as_tuple())  # 0.10 == 0.1, but not the same price
    if isinstance(before, datetime | time):
        return _clock_parts(before) == _clock_parts(after)
    return bool(before == after)


def _clock_parts(value: datetime | time) -> tuple[object, ...]:
    # A named zone decides what "a day later" means. For other zones only the offset must be equal.
    zone = zone_name(value.tzinfo) or value.tzinfo is None
    return value.replace(tzinfo=None), value.utcoffset(), zone
