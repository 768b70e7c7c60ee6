"""Types of values that users store, and a round trip through the codec."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple, TypedDict

import msgspec

from tidegate.codec import decode, encode


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


class Point(NamedTuple):
    x: int
    y: int


class Row(TypedDict):
    when: datetime


class Cat(msgspec.Struct, tag=True, rename="camel"):
    full_name: str
    born_on: date | None = None


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: int


class Odd(msgspec.Struct, rename={"name": "$tg"}):
    name: str


class Partial(msgspec.Struct):
    given: int
    left_out: int | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True)
class Tag:
    name: str


@dataclass
class Doc:
    tags: list[Tag]
    when: datetime
    extra: Any = None
    seen: set[int] = field(default_factory=set)


DOC = Doc([Tag("a"), Tag("b")], datetime(2026, 1, 2, 3, 4, tzinfo=UTC))


def again(value: Any, hint: Any = Any) -> Any:
    return decode(encode(value, path="doc", hint=hint), path="doc", hint=hint)
