"""Values as Python source: an equal value when it is evaluated, and no secret in it."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from tidegate.codec.source import WIDTH, SourceWriter, UnwritableError


class Colour(enum.Enum):
    RED = "red"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: float


@dataclass
class Document:
    title: str
    tags: list[str]
    words: int = field(init=False, default=0)


class Outer:
    class Inner(msgspec.Struct):
        colour: Colour
        at: datetime


class Account(pydantic.BaseModel):
    user_name: str = pydantic.Field(alias="userName")
    opened_on: date
    api_key: str = ""


VALUES: list[Any] = [
    None, True, 7, -1.5, math.inf, "it's", 'a "quoted" word', "line\nend\x00\ud800 é", b"\x00\xff", b"text",
    [], (), (1,), (1, 2), {}, {"a": [1, {"b": None}]}, {1: "x", (2, 3): "y"}, set(), {3, 1}, frozenset({"a"}), frozenset(),
    date(2026, 3, 4), datetime(2026, 3, 4), datetime(2026, 3, 4, 5, 6, 7, 8, tzinfo=UTC),
    datetime(2026, 3, 4, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1),
    time(1, 2, 3, 4), timedelta(days=-1, seconds=5, microseconds=6), timedelta(),
    Decimal("1.20"), UUID(int=7), Colour.RED, Rights.READ, Rights.READ | Rights.WRITE,
    Point(1, 2.5), Document("T", ["a"]), Outer.Inner(Colour.RED, datetime(2026, 1, 1, tzinfo=UTC)),
    Account(userName="ann", opened_on=date(2026, 1, 2)),
    {"deep": [Document("x" * 60, ["y" * 80, "z" * 80]), {"k" * 30: (Point(1, 2),)}]},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_the_source_of_a_value_evaluates_to_an_equal_value_of_the_same_type(value: Any) -> None:
    writer = SourceWriter()
    text = writer.expression(value)
    names: dict[str, Any] = {}
    exec("\n".join(writer.import_lines()), names)
    back = eval(text, names)
    assert back == value
    assert type(back) is type(value)
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert not writer.masked


def test_not_a_number_is_written_as_such() -> None:
    assert math.isnan(eval(SourceWriter().expression(math.nan)))


def test_a_long_call_is_broken_into_one_line_for_each_argument() -> None:
    text = SourceWriter().call("summarize", [1], {"text": "x" * 60, "titles": ["y" * 40]}, column=4)
    assert text == (
        f'summarize(\n        1,\n        text="{"x" * 60}",\n        titles=["{"y" * 40}"],\n    )'
    )


def test_secrets_are_replaced_and_their_places_are_listed() -> None:
    writer = SourceWriter()
    account = Account(userName="ann", opened_on=date(2026, 1, 2), api_key="it's a 'secret' one")
    text = writer.call(
        "f",
        [],
        {
            "headers": {"Authorization": "Bearer abcdef0123456789"},
            "accounts": [account],
            "note": "use sk-proj-abcdefghijklmnopqrstuvwx1234 for it",
            "raw": b"password='hunter2'",
        },
    )
    assert writer.masked == ["headers.Authorization", "accounts[0].api_key", "note", "raw"]
    for secret in ("abcdef0123456789", "secret", "abcdefghijkl", "hunter2"):
        assert secret not in text
    assert "ann" in text


def test_keyword_arguments_of_any_text_are_passed_and_not_evaluated() -> None:
    given = {"text": 1, "class": 2, "two words": 3, 'x=exit(), y"""': "z" * 80, "": 4}
    writer = SourceWriter()
    call = writer.call("dict", [], given)
    assert eval(call, {"exit": pytest.fail}) == given
    assert not writer.masked


def test_the_place_of_a_secret_has_no_quotes_or_line_ends_of_its_own() -> None:
    writer = SourceWriter()
    writer.expression({"a\n b": "sk-proj-abcdefghijklmnopqrstuvwx1234"}, "doc")
    assert writer.masked == [r"doc['a\n b']"]


def test_two_classes_of_one_name_do_not_shadow_each_other() -> None:
    writer = SourceWriter()
    assert writer.use("a", "Doc") == "Doc"
    assert writer.use("b", "Doc.Part") == "b.Doc.Part"
    assert writer.use("b", "other") == "other"
    assert writer.import_lines() == ["import b", "from a import Doc", "from b import other"]


def test_a_value_without_an_expression_is_refused_with_its_place() -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(UnwritableError, match="Local"):
        SourceWriter().expression(Local(1), "doc")
    with pytest.raises(UnwritableError, match=r"doc\.part is a builtins\.object"):
        SourceWriter().call("f", [], {"doc": {"part": object()}})
