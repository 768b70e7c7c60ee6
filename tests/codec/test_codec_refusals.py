"""A value that cannot be stored, or would come back as another one, is refused with its path."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from codec_support import DOC, Cat, Colour, Doc, Point, Tag, Word, again

from tidegate.codec import LIMIT_BYTES, decode, encode
from tidegate.errors import ArgumentsError


@pytest.mark.parametrize(
    ("value", "hint", "path"),
    [
        (DOC, Any, "doc"),
        ({Tag("a"): 1}, dict[Tag, int], "doc[Tag(name='a')]"),
        ({"a": [Tag("x")]}, dict[str, Any], "doc.a[0]"),
        (Doc([], datetime(2026, 1, 2), extra=[Tag("x")]), Doc, "doc.extra[0]"),
        (Colour.RED, Any, "doc"),
        (Word.YES, Any, "doc"),
        ([Word.YES], list[str], "doc[0]"),
        (Point(1, 2), tuple, "doc"),
        (Cat("Tom"), object, "doc"),
        (DOC, Doc | Tag, "doc"),
        ("2026-01-02", date, "doc"),
        ([[1, 2]], list[tuple[int, int]], "doc[0]"),
        ((1, 2), list[int], "doc"),
        ({"tags": [], "when": "2026-01-02T00:00:00"}, Doc, "doc"),
        ({"a": {1: 2}}, dict[str, dict[str, int]], "a key of doc[...]"),
        (datetime(2026, 1, 2), date, "doc"),
        ("x", int, "doc"),
        (True, int, "doc"),
        (2**53 + 1, float, "doc"),
        (1.5, int, "doc"),
        (Doc([Tag("a"), Tag(3)], datetime(2026, 1, 2)), Doc, "doc.tags[1].name"),
    ],
)
def test_a_value_that_would_come_back_as_another_one_is_refused_with_its_path(value, hint, path):
    with pytest.raises(ArgumentsError) as refused:
        encode(value, path="doc", hint=hint)
    assert refused.value.facts["path"] == path
    assert refused.value.fix


def _self_containing() -> list:
    inner: dict = {}
    inner["me"] = [inner]
    return [inner]


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Mine:
    pass


class TextOfMine(str):
    pass


@pytest.mark.parametrize(
    ("value", "path", "kind", "says"),
    [
        (float("nan"), "doc", "float", "NaN"),
        ({"a": [1.5, float("nan")]}, "doc.a[1]", "float", "NaN"),
        ([float("inf"), float("-inf")], "doc[0]", "float", "infinite"),
        ((1, {"k": float("inf")}), "doc[1].k", "float", "infinite"),
        ({"a key": {3: float("nan")}}, "doc['a key'][3]", "float", "NaN"),
        (Decimal("NaN"), "doc", "decimal.Decimal", "NaN"),
        (Decimal("sNaN"), "doc", "decimal.Decimal", "NaN"),
        (Decimal("-Infinity"), "doc", "decimal.Decimal", "infinite"),
        (_self_containing(), "doc[0].me[0]", "dict", "contains itself"),
        ("\ud800", "doc", "str", "surrogate"),
        ({"\ud800": 1}, "doc['\\ud800']", "str", "surrogate"),
        ({1: "a", "1": "b"}, "doc", "dict", "merge"),
        ({None: "a", "null": "b"}, "doc", "dict", "merge"),
        (_deep(65), "doc" + "[0]" * 64, "list", "64 levels"),
        ([lambda: 1], "doc[0]", "function", "cannot be stored"),
        (Mine(), "doc", f"{__name__}.Mine", "cannot be stored"),
        (TextOfMine("x"), "doc", f"{__name__}.TextOfMine", "cannot be stored"),
        ({"n": 10**5000}, "doc.n", "int", "digits"),
        (bytearray(b"x"), "doc", "bytearray", "cannot be stored"),
        (range(3), "doc", "range", "cannot be stored"),
        (1j, "doc", "complex", "cannot be stored"),
        (int, "doc", "type", "cannot be stored"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_with_path_type_and_fix(value, path, kind, says):
    for hint in (Any, list, dict, float):
        with pytest.raises(ArgumentsError) as refused:
            encode(value, path="doc", hint=hint)
        assert refused.value.facts["path"] == path
        assert refused.value.facts["type"] == kind
        assert kind in refused.value.message
        assert says in refused.value.message
        assert refused.value.fix


def test_an_open_file_and_a_coroutine_are_refused_with_what_to_pass_instead(tmp_path):
    async def work(): ...

    coroutine = work()
    with (tmp_path / "file").open("w") as file, pytest.raises(ArgumentsError, match="pass the file's path"):
        encode({"file": file}, path="doc")
    with pytest.raises(ArgumentsError, match="await it first"):
        encode(coroutine, path="doc")
    coroutine.close()


def test_64_levels_are_accepted_also_with_tags():
    assert again(_deep(64)) == _deep(64)
    value: Any = 1
    for _ in range(64):
        value = (value,)
    assert again(value) == value


def test_a_small_value_that_shares_its_parts_many_times_is_refused_quickly():
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(ArgumentsError, match="more parts than fit 100,000 bytes"):
        encode(value, path="doc", hint=list, limit=100_000)


def test_a_value_over_the_limit_is_refused_with_both_sizes_and_a_hint():
    assert len(encode("x" * (LIMIT_BYTES - 2), path="doc")) == LIMIT_BYTES
    with pytest.raises(ArgumentsError) as refused:
        encode("x" * (LIMIT_BYTES - 1), path="doc")
    assert "1,048,577 bytes" in refused.value.message
    assert "1,048,576 bytes" in refused.value.message
    assert "reference" in refused.value.fix


def test_a_value_with_an_attribute_outside_its_fields_is_refused():
    @dataclass
    class Counted:
        x: int
        total: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            self.total = self.x

    changed = Counted(1)
    changed.total = 7
    assert again(Counted(1), Counted) == Counted(1)
    with pytest.raises(ArgumentsError) as refused:
        encode(changed, path="doc", hint=Counted)
    assert refused.value.facts["path"] == "doc.total"


def test_a_value_whose_code_raises_while_it_is_checked_is_refused():
    @dataclass
    class Fussy:
        x: int

        def __post_init__(self) -> None:
            if self.x > 1:
                raise RuntimeError("too much")

    value = Fussy(1)
    value.x = 2
    with pytest.raises(ArgumentsError, match="RuntimeError: too much"):
        encode(value, path="doc", hint=Fussy)


class Odder(Enum):
    PAIR = (1, 2)


@pytest.mark.parametrize("hint", [Any, dict, dict[Odder, int]])
def test_a_member_of_an_enum_without_text_or_number_is_refused_also_as_a_key(hint):
    for value in ({Odder.PAIR: 1}, {"a": Odder.PAIR}):
        with pytest.raises(ArgumentsError) as refused:
            encode(value, path="doc", hint=hint)
        assert refused.value.facts["path"].startswith("doc")


def test_a_dataclass_without_one_of_its_attributes_is_refused():
    value = Doc([], datetime(2026, 1, 2))
    del value.tags
    with pytest.raises(ArgumentsError, match="AttributeError"):
        encode(value, path="doc", hint=Doc)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"NaN",
        b'{"$tg":"pickle","v":""}',
        b'{"$tg":"tuple"}',
        b'{"$tg":"tuple","v":1}',
        b'{"$tg":"zoned","v":["2026-01-01","../../etc/passwd",0]}',
        b'{"$tg":"zoned","v":["2026-01-01","Nowhere/City",0]}',
        b'{"$tg":"timedelta","v":[999999999999,0,0]}',
        b'{"$tg":"bytes","v":"%"}',
        b'{"$tg":["tuple"],"v":1}',
        b'{"$tg":"dict","v":[[[1],2]]}',
        b"[" * 200_000 + b"]" * 200_000,
    ],
)
def test_bytes_that_encode_did_not_write_are_an_arguments_error(data):
    with pytest.raises(ArgumentsError):
        decode(data)
