"""A decoded value equals the original, or the value is refused with its path."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from codec_support import DOC, Cat, Colour, Doc, Level, Odd, Pair, Partial, Point, Row, Tag, Word, again
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.codec import Shape, decode, encode
from tidegate.codec.compare import difference
from tidegate.errors import ArgumentsError

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


@pytest.mark.parametrize("value", SELF_DESCRIBING)
def test_a_value_without_annotation_comes_back_equal_and_of_the_same_type(value):
    for whole in (value, [value], {"inside": [value]}, (value,)):
        assert difference(whole, again(whole)) is None


@pytest.mark.parametrize("value", SELF_DESCRIBING)
def test_a_value_under_its_own_bare_type_comes_back_the_same(value):
    assert difference(value, again(value, type(value))) is None


def test_an_integer_of_4000_digits_comes_back_and_one_of_5001_is_refused():
    assert again(10**3999) == 10**3999
    for hint in (Any, int, list[int]):
        with pytest.raises(ArgumentsError, match="4,000 digits"):
            encode([10**5000] if hint == list[int] else 10**5000, path="n", hint=hint)


@pytest.mark.parametrize(("value", "hint"), ANNOTATED)
def test_an_annotation_restores_the_value(value, hint):
    assert difference(value, again(value, hint)) is None


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
    assert list(again({"b": 1, "a": 2})) == ["b", "a"]
    assert list(again({2: 1, 1: 2})) == [2, 1]
    assert list(again({2: 1, 1: 2}, dict[int, int])) == [2, 1]


def test_plain_values_are_stored_as_plain_json_under_their_annotation():
    assert encode(DOC, path="doc", hint=Doc) == (
        b'{"tags":[{"name":"a"},{"name":"b"}],"when":"2026-01-02T03:04:00Z","extra":null,"seen":[]}'
    )
    assert encode({1: (2, 3)}, path="doc", hint=dict[int, tuple[int, ...]]) == b'{"1":[2,3]}'


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
