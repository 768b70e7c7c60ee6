"""Writes values as Python source, such as the arguments of a stored task for a test.

Secrets are replaced by stars, by the one redactor. A value that has no expression raises `UnwritableError`.
"""

from __future__ import annotations

import dataclasses
import keyword
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from tidegate.codec import models
from tidegate.codec.paths import locate
from tidegate.domain.redaction import redact_named

WIDTH = 100
"""Longer expressions are broken into one line for each part."""
_INDENT = 4


class UnwritableError(Exception):
    """A value has no Python expression that another module could evaluate."""


class SourceText(str):
    """Source that is written as it is."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Group:
    """A call or a display."""

    opening: str
    parts: tuple[tuple[str, _Expression], ...]
    """Each with the text before it: `name=` or `"key": `."""
    closing: str


_Expression = str | _Group


@dataclass(slots=True)
class SourceWriter:
    """Writes expressions, and collects the imports that they need and the secrets that they had."""

    imports: dict[str, set[str]] = field(default_factory=dict)
    """The names that the expressions use, by module."""
    masked: list[str] = field(default_factory=list)
    """Where secrets were replaced, as paths: `headers.authorization`."""

    def call(self, function: str, args: Iterable[Any], kwargs: Mapping[str, Any], *, column: int = 0) -> str:
        """Return the source of a call, broken into lines if it is long.

        Args:
            function: The source of the called function.
            args: Positional arguments.
            kwargs: Keyword arguments.
            column: The column at which the line begins.

        Raises:
            UnwritableError: An argument has no expression.
        """
        parts = [("", self._expression(arg, "", f"argument {at}")) for at, arg in enumerate(args, 1)]
        named = {name: value for name, value in kwargs.items() if _is_parameter(name)}
        parts += [(f"{name}=", self._expression(value, name, name)) for name, value in named.items()]
        if others := {name: value for name, value in kwargs.items() if name not in named}:
            parts.append(("**", self._dict(others, "arguments")))
        return _rendered(_Group(f"{function}(", tuple(parts), ")"), column)

    def expression(self, value: Any, name: str = "", *, column: int = 0) -> str:
        """Return the source of one value.

        Args:
            value: The value.
            name: The name of the value, by which the redactor decides.
            column: The column at which the line begins.

        Raises:
            UnwritableError: It has no expression.
        """
        return _rendered(self._expression(value, name, name), column)

    def use(self, module: str, name: str) -> str:
        """Import a name and return how to write it: dotted if the name of another module is in its way.

        Args:
            module: The module.
            name: A name at its top, or a dotted one inside a class.
        """
        if module == "builtins":
            return name
        top = name.partition(".")[0]
        if any(top in names for other, names in self.imports.items() if other != module):
            self.imports.setdefault(module, set()).add("")
            return f"{module}.{name}"
        self.imports.setdefault(module, set()).add(top)
        return name

    def import_lines(self) -> list[str]:
        """Return the import statements, sorted."""
        plain, named = [], []
        for module, names in sorted(self.imports.items()):
            if "" in names:
                plain.append(f"import {module}")
            if names - {""}:
                named.append(f"from {module} import {', '.join(sorted(names - {''}))}")
        return plain + named

    # --- one value -----------------------------------------------------------------------------------------

    def _expression(self, value: Any, name: str, path: str) -> _Expression:
        kind = type(value)
        if value is None or kind in (bool, int):
            return repr(value)
        if kind is SourceText:
            return str(value)
        if kind is str:
            return _quoted(self._masked(value, name, path))
        if kind is bytes:
            return self._bytes(value, name, path)
        if isinstance(value, Enum):
            return self._enum(value)
        if (write := _SCALARS.get(kind)) is not None:
            return write(self, value)
        if kind is dict:
            return self._dict(value, path)
        if kind in (list, tuple, set, frozenset):
            return self._collection(value, name, path)
        return self._instance(value, path)

    def _masked(self, text: str, name: str, path: str) -> str:
        shown = redact_named(text, name)
        if shown != text:
            self.masked.append(path)
        return shown

    def _bytes(self, value: bytes, name: str, path: str) -> str:
        try:
            return repr(self._masked(value.decode(), name, path).encode())
        except UnicodeDecodeError:  # no text, so no secret that a person could read
            return repr(value)

    def _dict(self, value: Mapping[Any, Any], path: str) -> _Group:
        parts = []
        for key, item in value.items():
            label = key if isinstance(key, str) else repr(key)
            before = _rendered(self._expression(key, "", path), 0)
            parts.append((f"{before}: ", self._expression(item, label, locate(path, [key]))))
        return _Group("{", tuple(parts), "}")

    def _collection(self, value: Iterable[Any], name: str, path: str) -> _Expression:
        parts = tuple(("", self._expression(item, name, f"{path}[{at}]")) for at, item in enumerate(value))
        if isinstance(value, list):
            return _Group("[", parts, "]")
        if isinstance(value, tuple):
            return _Group("(", parts, ",)" if len(parts) == 1 else ")")
        ordered = tuple(sorted(parts, key=lambda part: _rendered(part[1], 0)))
        if isinstance(value, frozenset):
            return _Group("frozenset({", ordered, "})") if ordered else "frozenset()"
        return _Group("{", ordered, "}") if ordered else "set()"

    def _enum(self, value: Enum) -> str:
        kind = self._class(type(value))
        name = value.name
        if name is not None and type(value).__members__.get(name) is value:
            return f"{kind}.{name}"
        return f"{kind}({value.value!r})"  # flags that have no name together

    def _instance(self, value: Any, path: str) -> _Group:
        kind = type(value)
        if models.is_model(kind):
            fields = self._dict(models.dump(value, exact=True), path)
            return _Group(f"{self._class(kind)}.model_validate(", (("", fields),), ")")
        names = _constructor_names(value)
        if names is None:
            raise UnwritableError(f"{path} is a {kind.__module__}.{kind.__qualname__}")
        parts = tuple(
            (f"{label}=", self._expression(getattr(value, attribute), label, f"{path}.{label}"))
            for label, attribute in names.items()
        )
        return _Group(f"{self._class(kind)}(", parts, ")")

    def _class(self, kind: type) -> str:
        found: Any = sys.modules.get(kind.__module__)
        for part in kind.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is not kind:
            raise UnwritableError(f"{kind.__module__}.{kind.__qualname__} cannot be imported by that name")
        return self.use(kind.__module__, kind.__qualname__)

    def zone(self, zone: tzinfo) -> str:
        """Return the source of a time zone.

        Raises:
            UnwritableError: The time zone has neither a name nor a fixed offset.
        """
        if zone is UTC:
            return self.use("datetime", "UTC")
        offset = zone.utcoffset(None) if isinstance(zone, timezone) else None
        if offset is not None:
            return f"{self.use('datetime', 'timezone')}({_timedelta(self, offset)})"
        if key := getattr(zone, "key", None):
            return f"{self.use('zoneinfo', 'ZoneInfo')}({_quoted(key)})"
        raise UnwritableError(f"the time zone {zone!r} has no name")


def _is_parameter(name: str) -> bool:
    """Return whether a keyword argument can be written as `name=`. A name of `**kwargs` may be any text."""
    return name.isidentifier() and not keyword.iskeyword(name)


def _constructor_names(value: Any) -> dict[str, str] | None:
    """Return the constructor's parameters of an instance with the attribute of each; None if unknown."""
    if isinstance(value, msgspec.Struct):
        return {name: name for name in type(value).__struct_fields__}
    if dataclasses.is_dataclass(value):
        return {found.name: found.name for found in dataclasses.fields(value) if found.init}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: name for name in value._fields}
    attributes = getattr(type(value), "__attrs_attrs__", None)
    if attributes is not None:
        return {found.alias: found.name for found in attributes if found.init}
    return None


def _quoted(text: str) -> str:
    """Return the literal of a text, in double quotes where that needs no more escapes."""
    literal = repr(text)
    if literal.startswith("'") and '"' not in literal:
        return '"' + literal[1:-1].replace("\\'", "'") + '"'
    return literal


def _float(_: SourceWriter, value: float) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value!r}")'


def _datetime(writer: SourceWriter, value: datetime) -> str:
    numbers = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
    while len(numbers) > 3 and numbers[-1] == 0:
        numbers.pop()
    zone = "" if value.tzinfo is None else f", tzinfo={writer.zone(value.tzinfo)}"
    fold = ", fold=1" if value.fold else ""
    return f"{writer.use('datetime', 'datetime')}({', '.join(map(str, numbers))}{zone}{fold})"


def _time(writer: SourceWriter, value: time) -> str:
    zone = "" if value.tzinfo is None else f", tzinfo={writer.zone(value.tzinfo)}"
    numbers = f"{value.hour}, {value.minute}, {value.second}, {value.microsecond}"
    return f"{writer.use('datetime', 'time')}({numbers}{zone})"


def _timedelta(writer: SourceWriter, value: timedelta) -> str:
    parts = {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
    given = ", ".join(f"{name}={number}" for name, number in parts.items() if number)
    return f"{writer.use('datetime', 'timedelta')}({given})"


_SCALARS: dict[type, Callable[[SourceWriter, Any], str]] = {
    float: _float,
    datetime: _datetime,
    date: lambda writer, value: f"{writer.use('datetime', 'date')}({value.year}, {value.month}, {value.day})",
    time: _time,
    timedelta: _timedelta,
    Decimal: lambda writer, value: f"{writer.use('decimal', 'Decimal')}({_quoted(str(value))})",
    UUID: lambda writer, value: f"{writer.use('uuid', 'UUID')}({_quoted(str(value))})",
}


def _rendered(expression: _Expression, column: int, others: int = 0) -> str:
    """Return the source of an expression; only its further lines are indented.

    Args:
        expression: The expression.
        column: The column at which the line of the value begins.
        others: How many other characters are in the line of the value.
    """
    flat = _flat(expression)
    if isinstance(expression, str) or not expression.parts or column + others + len(flat) <= WIDTH:
        return flat
    inner = column + _INDENT
    lines = [
        f"{' ' * inner}{label}{_rendered(part, inner, len(label) + 1)},\n" for label, part in expression.parts
    ]
    return f"{expression.opening}\n{''.join(lines)}{' ' * column}{expression.closing.lstrip(',')}"


def _flat(expression: _Expression) -> str:
    if isinstance(expression, str):
        return expression
    inside = ", ".join(f"{label}{_flat(part)}" for label, part in expression.parts)
    return f"{expression.opening}{inside}{expression.closing}"
