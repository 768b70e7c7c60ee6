"""Turns a value into a tree that JSON can hold, or raises an error that names the place.

There are two forms: *plain*, as a person would write it (`"2026-01-02"` for a date), which needs the
annotation to read it back; and *exact*, with a tag on each value that JSON has no form for. `shape.py`
decides which one is stored.
"""

from __future__ import annotations

import dataclasses
import inspect
import io
import math
import os
import types
from collections.abc import Collection, Iterable
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec

from tidegate.codec import models
from tidegate.codec.paths import locate
from tidegate.codec.tags import TAG, TAGS, tagged
from tidegate.errors import ArgumentsError

MAX_DEPTH = 64
"""The most levels of nested containers."""
MAX_DIGITS = 4_000
"""The most digits of an integer. Python itself reads numbers of at most 4,300 digits by default."""

_INT_END = 10**MAX_DIGITS
_WITHOUT_NUMBERS = frozenset({str, bool, type(None)})
_STR_ONLY = frozenset({str})
_PLAIN_KEYS = frozenset({str, int, *TAGS}) - {bytes}

dumps = msgspec.json.Encoder().encode


def is_plain(value: Any, room: list[int], depth: int = MAX_DEPTH) -> bool:
    """Return whether JSON without annotation and tags gives the same value back.

    A fast check for usual arguments. False only means that the slow path must check.

    Args:
        value: Any value.
        room: A list of one number, which is reduced for each item. At 0 the check stops, so that it also ends
            for values that share parts many times.
        depth: The levels of containers that are still allowed.
    """
    kind = type(value)
    if kind in _WITHOUT_NUMBERS:
        return True
    if kind is int:
        return bool(-_INT_END < value < _INT_END)
    if kind is float:
        return math.isfinite(value)
    if kind is dict:
        if TAG in value or not _STR_ONLY.issuperset(map(type, value)):
            return False
        items: Iterable[Any] = value.values()
    elif kind is list:
        items = value
    else:
        return False
    room[0] -= len(value) + 1
    return depth > 0 and room[0] >= 0 and _are_plain(items, room, depth - 1)


def _are_plain(items: Iterable[Any], room: list[int], depth: int) -> bool:
    kinds = set(map(type, items))
    if kinds <= _WITHOUT_NUMBERS:
        return True
    if kinds == {float}:
        return all(map(math.isfinite, items))
    return all(is_plain(item, room, depth) for item in items)


def type_name(value: object) -> str:
    """Return the name of the value's type, with its module unless that is `builtins`."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class Flattener:
    """Makes the JSON tree of one value. Use each instance once.

    Args:
        path: The value's name in errors: the parameter's name, or `result`.
        exact: Whether to tag values that JSON has no form for.
        limit: The most bytes of the encoded value. A value with too many items is refused early.
    """

    def __init__(self, path: str, *, exact: bool, limit: int) -> None:
        self._path = path
        self._exact = exact
        self._limit = limit
        self._room = limit // 2  # each item takes at least two bytes, including its comma
        self._keys: list[object] = []
        self._open: set[int] = set()

    def flatten(self, value: Any) -> Any:
        """Return the tree of `value`.

        Raises:
            ArgumentsError: The value, or a part of it, cannot be stored. `path` names the part.
        """
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is bool or value is None:
            return value
        if kind is int:
            return self._integer(value)
        if kind is float:
            return self._number(value, nan=math.isnan(value), finite=math.isfinite(value))
        if kind is Decimal:
            self._number(value, nan=value.is_nan(), finite=value.is_finite())
        if kind in TAGS:
            return TAGS[kind](value) if self._exact else value
        if kind in (list, tuple, set, frozenset, dict):
            return self._container(kind, value)
        return self._instance(kind, value)

    def _text(self, value: str) -> str:
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                text = "has a lone surrogate, which UTF-8 cannot hold"
                raise self._refusal(text, value, "clean the text first") from error
        return value

    def _integer(self, value: int) -> int:
        if not -_INT_END < value < _INT_END:
            text = f"has more than {MAX_DIGITS:,} digits"
            raise self._refusal(text, value, "pass it as bytes, or store a reference")
        return value

    def _number(self, value: float | Decimal, *, nan: bool, finite: bool) -> float | Decimal:
        if not finite:
            text = "NaN" if nan else "infinite"
            raise self._refusal(f"is {text}, which JSON cannot hold", value, "pass None or omit it")
        return value

    def _container(self, kind: type, value: Any) -> Any:
        if kind is dict:
            return self._mapping(value)
        items = self._parts(value, range(len(value)), value)
        if kind in (set, frozenset):
            items.sort(key=dumps)  # so that equal sets have equal bytes in every process
        return tagged(kind.__name__, items) if self._exact and kind is not list else items

    def _mapping(self, value: dict[Any, Any]) -> Any:
        items = self._parts(value, value, value.values())
        keys = [self._key(key) for key in value]
        if not _STR_ONLY.issuperset(map(type, value)):
            self._refuse_merging(value, keys)
        plain = _STR_ONLY if self._exact else _PLAIN_KEYS
        if TAG not in value and plain.issuperset(map(type, keys)):
            return dict(zip(keys, items, strict=True))
        return tagged("dict", [[key, item] for key, item in zip(keys, items, strict=True)])

    def _key(self, key: Any) -> Any:
        self._keys.append(key)
        flat = self.flatten(key)
        if type(flat) is dict and TAG not in flat:
            text = "cannot be a key, since JSON has no form for such keys"
            raise self._refusal(text, key, "use a key of plain values, or a list of pairs")
        self._keys.pop()
        return flat

    def _refuse_merging(self, value: dict[Any, Any], keys: list[Any]) -> None:
        seen: set[str] = set()
        for flat in keys:
            text = flat if type(flat) is str else dumps(flat).decode()
            if text in seen:
                shown = f"has two keys that JSON would merge, {text[:40]!r}"
                raise self._refusal(shown, value, "use keys of one type")
            seen.add(text)

    def _instance(self, kind: type, value: Any) -> Any:
        if isinstance(value, Enum):
            return self.flatten(value.value)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return self._parts(value, kind._fields, value)
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if models.is_model(kind):
            return self._model(value)
        if dataclasses.is_dataclass(kind):
            names = [field.name for field in dataclasses.fields(kind)]
            return self._object(names, self._attributes(value, names))
        raise self._refusal("cannot be stored", value, _advice(kind, value))

    def _struct(self, value: msgspec.Struct) -> Any:
        config = value.__struct_config__
        kept = [
            (stored, name)
            for stored, name in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            if getattr(value, name) is not msgspec.UNSET
        ]
        items = self._attributes(value, [name for _, name in kept])
        tag = [] if config.tag is None else [config.tag]
        if config.array_like:
            return [*tag, *items]
        names = [*([config.tag_field] if tag else []), *(stored for stored, _ in kept)]
        return self._object([str(name) for name in names], [*tag, *items])

    def _model(self, value: Any) -> Any:
        try:
            fields = models.dump(value, exact=self._exact)
        except Exception as error:  # serializers are user code
            text = f"could not be dumped by its own serializer ({type(error).__name__})"
            raise self._refusal(text, value, "see the cause") from error
        return self.flatten(fields)

    def _object(self, names: list[str], items: list[Any]) -> Any:
        fields = dict(zip(names, items, strict=True))
        return tagged("dict", [[name, item] for name, item in fields.items()]) if TAG in fields else fields

    def _attributes(self, owner: Any, names: list[str]) -> list[Any]:
        return self._parts(owner, names, [getattr(owner, name) for name in names])

    def _parts(self, owner: Any, keys: Iterable[object], items: Collection[Any]) -> list[Any]:
        if id(owner) in self._open:
            raise self._refusal("contains itself", owner, "pass ids instead of links")
        if len(self._open) >= MAX_DEPTH:
            text = f"is more than {MAX_DEPTH} levels deep"
            raise self._refusal(text, owner, "store it elsewhere and pass a reference")
        self._room -= len(items)
        if self._room < 0:
            text = f"has more parts than fit {self._limit:,} bytes"
            raise self._refusal(text, owner, TOO_LARGE_FIX, limit=self._limit)
        self._open.add(id(owner))
        flat = []
        for key, item in zip(keys, items, strict=True):
            self._keys.append(key)
            flat.append(self.flatten(item))
            self._keys.pop()
        self._open.discard(id(owner))
        return flat

    def _refusal(self, text: str, value: object, fix: str, **facts: int) -> ArgumentsError:
        path = locate(self._path, self._keys)
        message = f"{path} (type {type_name(value)}) {text}"
        return ArgumentsError(message, fix=fix, path=path, type=type_name(value), **facts)


TOO_LARGE_FIX = "store the large value elsewhere (a file, object storage) and pass a reference to it"

_ADVICE: tuple[tuple[tuple[type, ...], str], ...] = (
    ((os.PathLike,), "pass os.fspath(…)"),
    ((io.IOBase,), "pass the file's path and open it in the task"),
    ((bytearray, memoryview), "pass bytes(…)"),
    ((types.FunctionType, types.MethodType, types.BuiltinFunctionType, type), "pass its name"),
    ((types.GeneratorType, range), "pass list(…)"),
)


def _advice(kind: type, value: object) -> str:
    if inspect.isawaitable(value):
        return "await it first"
    for kinds, fix in _ADVICE:
        if isinstance(value, kinds):
            return fix
    for base in (str, int, float, dict, list, tuple, set, frozenset, bytes, datetime):
        if isinstance(value, base):
            return f"it would come back as a {base.__name__}: pass {base.__name__}(…)"
    if kind.__module__.partition(".")[0] in {"numpy", "torch", "pandas"}:
        return "pass .tolist(), or store it and pass a reference"
    return "pass plain values, a dataclass, a msgspec Struct or a pydantic model"
