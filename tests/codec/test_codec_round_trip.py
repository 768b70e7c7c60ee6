"""C01, C04, C05, C06: a decoded value equals the original, or the value is refused with its path."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.codec import LIMIT_BYTES, Shape, decode, encode
from tidegate.codec.compare import difference
from tidegate.errors import ArgumentsError


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

SELF_DESCRIBING = [
    (1, 2),
    (),
    ((1, [2, (3,)]),),
    {1: "a"},
    {1: {2: (3,)}},
    {True: 1},
    {None: 1},
    {(1, 2): 3},
    {date(2026, 1, 2): 3},
    {1, 2},
    set(),
    frozenset({"a", "b"}),
    {(1, "a"), (2, "b")},
    datetime(2026, 1, 2, 3, 4),
    datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    datetime(2026, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime(1890, 1, 2, tzinfo=timezone(timedelta(minutes=9, seconds=21))),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris")),
    datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")),
    datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Paris")),
    date(2026, 1, 2),
    time(3, 4, 5, 6),
    time(3, 4, tzinfo=UTC),
    timedelta(days=-1, microseconds=3),
    Decimal("0.10"),
    Decimal("-1E+400"),
    UUID(int=1),
    b"\xff\x00",
    b"",
    2**53 + 1,
    2**63,
    2**64 + 1,
    2**70,
    -(2**63) - 1,
    -0.0,
    1e308,
    "a\x00b",
    "𝄞",
    {"k\x00": 1},
    ["\x00"],
    {"$tg": "tuple", "v": [1]},
    {"$tg": {"$tg": (1,)}},
    [{"$tg": 5}],
    "$tg",
    None,
    True,
    {"text": "plain", "n": [1, 2.5, None, {"deep": [True]}]},
]
"""Values that come back the same with no annotation to help."""

ANNOTATED = [
    (DOC, Doc),
    (Doc([], datetime(2026, 1, 2), extra={"when": (date(2026, 1, 2), {1: 2})}, seen={3, 1, 2}), Doc),
    ({Tag("a"), Tag("b")}, set[Tag]),
    ([DOC], list[Doc]),
    ({"a": DOC}, dict[str, Doc]),
    (None, Doc | None),
    (Cat("Tom", date(2026, 1, 2)), Cat),
    (Pair(1, 2), Pair),
    (Odd("x"), Odd),
    (Partial(1), Partial),
    (Point(1, 2), Point),
    (Colour.RED, Colour),
    (Level.LOW, Level),
    (Word.YES, Word),
    ({Colour.RED: datetime(2026, 1, 2)}, dict[Colour, datetime]),
    ({Word.YES: 1}, dict[Word, int]),
    ({"when": datetime(2026, 1, 2)}, Row),
    ({1: "a"}, dict[int, str]),
    ({date(2026, 1, 2): Decimal("1.50")}, dict[date, Decimal]),
    ([(1, "a")], list[tuple[int, str]]),
    ({"a": (1,)}, dict[str, Any]),
    ((1, 2), list | tuple),
    (datetime(2026, 1, 2), datetime | str),
    ("2026-01-02T00:00:00", datetime | str),
    ((1, 2), Iterable[int]),
    ([1, 2], Sequence[int]),
    ({"a": 1}, Mapping[str, int]),
    ("a", Literal["a", 1]),
    (1, float),
    ([1, 2.5], list[float]),
    (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")), datetime),
    (2**70, int),
    (b"\xff", bytes | None),
]


def _again(value: Any, hint: Any = Any) -> Any:
    return decode(encode(value, path="doc", hint=hint), path="doc", hint=hint)


@pytest.mark.parametrize("value", SELF_DESCRIBING)
def test_a_value_without_annotation_comes_back_equal_and_of_the_same_type(value):
    for whole in (value, [value], {"inside": [value]}, (value,)):
        assert difference(whole, _again(whole)) is None


@pytest.mark.parametrize("value", SELF_DESCRIBING)
def test_a_value_under_its_own_bare_type_comes_back_the_same(value):
    assert difference(value, _again(value, type(value))) is None


def test_an_integer_of_4000_digits_comes_back_and_one_of_5001_is_refused():
    assert _again(10**3999) == 10**3999
    for hint in (Any, int, list[int]):
        with pytest.raises(ArgumentsError, match="4,000 digits"):
            encode([10**5000] if hint == list[int] else 10**5000, path="n", hint=hint)


@pytest.mark.parametrize(("value", "hint"), ANNOTATED)
def test_an_annotation_restores_the_value(value, hint):
    assert difference(value, _again(value, hint)) is None


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
    assert _again(_deep(64)) == _deep(64)
    value: Any = 1
    for _ in range(64):
        value = (value,)
    assert _again(value) == value


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


def test_equal_sets_have_equal_bytes_in_every_process():
    program = (
        "from tidegate.codec import encode;"
        "print(encode({'a','b','c','d','e'}, path='x'), encode({'a','b','c','d'}, path='x', hint=set[str]))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
            timeout=30,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_the_order_of_keys_is_kept():
    assert list(_again({"b": 1, "a": 2})) == ["b", "a"]
    assert list(_again({2: 1, 1: 2})) == [2, 1]
    assert list(_again({2: 1, 1: 2}, dict[int, int])) == [2, 1]


def test_plain_values_are_stored_as_plain_json_under_their_annotation():
    assert encode(DOC, path="doc", hint=Doc) == (
        b'{"tags":[{"name":"a"},{"name":"b"}],"when":"2026-01-02T03:04:00Z","extra":null,"seen":[]}'
    )
    assert encode({1: (2, 3)}, path="doc", hint=dict[int, tuple[int, ...]]) == b'{"1":[2,3]}'


def test_a_value_with_an_attribute_outside_its_fields_is_refused():
    @dataclass
    class Counted:
        x: int
        total: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            self.total = self.x

    changed = Counted(1)
    changed.total = 7
    assert _again(Counted(1), Counted) == Counted(1)
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


def test_the_codec_loads_neither_pydantic_nor_a_zone_database():
    program = "import sys, tidegate.codec; print({'pydantic', 'zoneinfo', 'pickle'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert done.stdout == b"set()\n"


def _encoded(shape: Shape, value: Any) -> tuple[bytes, ArgumentsError | None]:
    try:
        return shape.encode(value, path="doc"), None
    except ArgumentsError as error:
        return b"", error


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**62, max_value=2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["$tg", "v", "tuple"])
    | st.binary()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False, allow_infinity=False)
)
_hashables = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
_anything = st.recursive(
    _hashables,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.just("$tg"), inner, max_size=4)
        | st.dictionaries(_hashables, inner, max_size=3)
        | st.sets(_hashables, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=15,
)


@given(_anything | st.floats() | st.lists(st.floats()))
@settings(max_examples=150, deadline=None)
def test_any_value_comes_back_the_same_or_is_refused(value):
    data, refused = _encoded(Shape(), value)
    if refused is None:
        assert difference(value, decode(data)) is None
    else:
        assert refused.facts["path"].startswith("doc")
        assert any(word in refused.message for word in ("NaN", "infinite", "merge", "surrogate"))


_HINTS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (datetime, st.datetimes(timezones=st.none() | st.timezones())),
    (dict[int, tuple[date, ...]], st.dictionaries(st.integers(), st.lists(st.dates()).map(tuple))),
    (set[Decimal], st.sets(st.decimals(allow_nan=False, allow_infinity=False))),
    (list[bytes | None], st.lists(st.binary() | st.none())),
    (dict[UUID, timedelta], st.dictionaries(st.uuids(), st.timedeltas())),
    (
        Doc,
        st.builds(
            Doc, st.lists(st.builds(Tag, st.text())), st.datetimes(), _anything, st.sets(st.integers())
        ),
    ),
    (Cat | None, st.none() | st.builds(Cat, st.text(), st.none() | st.dates())),
    (list[Colour], st.lists(st.sampled_from(Colour))),
]
_annotated = st.sampled_from(_HINTS).flatmap(lambda pair: st.tuples(st.just(pair[0]), pair[1]))


@given(_annotated)
@settings(max_examples=100, deadline=None)
def test_any_annotated_value_comes_back_the_same_or_is_refused(pair):
    hint, value = pair
    shape = Shape(hint)
    data, refused = _encoded(shape, value)
    if refused is None:
        assert difference(value, shape.decode(data, path="doc")) is None
    else:
        assert any(word in refused.message for word in ("merge", "surrogate"))
