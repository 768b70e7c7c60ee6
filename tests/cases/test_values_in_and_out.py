"""A function receives the arguments as the caller passed them, and the caller gets the result as it was returned."""

from __future__ import annotations

import enum
import os
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest

from support import all_final
from tidegate import ArgumentsError, Context, Fixed, State, Tidegate
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio
QUICK = Fixed(0.01)


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    y: float


class Size(msgspec.Struct, frozen=True):
    width: int


class Model(pydantic.BaseModel):
    name: str
    at: datetime


VALUES: list[Any] = [
    (1, 2),
    {1: "a"},
    datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    date(2026, 1, 2),
    timedelta(seconds=1.5),
    Decimal("0.10"),
    uuid.UUID(int=1),
    b"\xff\x00",
    {1, 2},
    "a\x00b",
    {"k\x00": 1},
    ["\x00"],
    9_007_199_254_740_993,
    1_180_591_620_717_411_303_424,
    -9_223_372_036_854_775_809,
    None,
    True,
    1.5,
]
TYPED: list[tuple[Any, Any]] = [
    (Point(1, 2.5), Point),
    (Size(3), Size),
    (Colour.RED, Colour),
    (Model(name="n", at=datetime(2026, 1, 2, tzinfo=UTC)), Model),
    ((1, "a"), tuple[int, str]),
    ({1: Point(1, 1.0)}, dict[int, Point]),
    (frozenset({b"x"}), frozenset[bytes]),
]


async def round_trip(app: Tidegate, hint: Any, value: Any) -> tuple[Any, Any]:
    seen: list[Any] = []

    async def function(ctx: Context, value: Any) -> Any:
        seen.append(value)
        return value

    if hint is not None:
        function.__annotations__ = {"ctx": Context, "value": hint, "return": hint}
    function = app.task(name="t")(function)
    async with app.worker():
        result = await (await function.enqueue(value)).result(10)
    return seen[0], result


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_a_value_without_an_annotation_comes_back_as_itself(app: Tidegate, value: Any) -> None:
    seen, result = await round_trip(app, None, value)
    assert (seen, type(seen)) == (value, type(value))
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(("value", "hint"), TYPED, ids=repr)
async def test_a_value_with_an_annotation_comes_back_as_itself(app: Tidegate, value: Any, hint: Any) -> None:
    seen, result = await round_trip(app, hint, value)
    assert (seen, type(seen)) == (value, type(value))
    assert (result, type(result)) == (value, type(value))


def itself() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({1: "a", "1": "b"}, "value"),
        ({"a": [1.5, float("nan")]}, "value.a[1]"),
        (float("inf"), "value"),
        (itself(), "value"),
        (10**5000, "value"),
        (lambda: None, "value"),
        ({"deep": {"er": object()}}, "value.deep.er"),
        (["ok", "\ud800"], "value[1]"),
    ],
    ids=["keys that merge", "nan", "inf", "itself", "huge int", "lambda", "object", "surrogate"],
)
async def test_a_value_that_would_come_back_changed_is_refused_with_its_place(
    app: Tidegate, value: Any, place: str
) -> None:
    @app.task(name="t")
    async def function(value: Any) -> None: ...

    with pytest.raises(ArgumentsError) as caught:
        await function.enqueue(value)
    assert str(caught.value.facts["path"]).startswith(place.partition("[")[0].partition(".")[0])
    assert await core_of(app).store.get_queue_stats() == [] if await core_of(app).opened_store() else True


async def test_wrong_arguments_are_refused_in_the_calling_process(app: Tidegate) -> None:
    @app.task(name="t")
    async def function(a: int, b: int = 1, **more: int) -> None: ...

    for args, kwargs in [((), {}), ((1, 2, 3), {}), (("one",), {}), ((1,), {"x": "not an int"})]:
        with pytest.raises(ArgumentsError, match="do not fit"):
            await function.enqueue(*args, **kwargs)


async def test_arguments_of_an_older_release_are_dead_at_once_and_the_function_is_not_called(
    app: Tidegate,
) -> None:
    entered = []

    async def old(a: int, b: int) -> None:
        entered.append("old")

    async def new(a: int, *, c: int) -> None:
        entered.append("new")

    handle = await app.task(name="t")(old).enqueue(1, b=2)
    core_of(app).functions.clear()
    app.task(name="t")(new)
    async with app.worker():
        rows = await all_final(app, [handle.id])
    runs = [entry for entry in await handle.history() if entry.kind == "run"]
    assert (rows[handle.id].state, rows[handle.id].reason) == (State.DEAD, "invalid_request")
    assert len(runs) == 1
    assert "do not fit" in runs[0].message
    assert entered == []


async def test_a_result_that_cannot_be_stored_does_not_repeat_the_work(app: Tidegate) -> None:
    calls: list[str] = []
    open_file = open(os.devnull)  # noqa: SIM115 - closed below, after the tasks returned it

    def returns(kind: str) -> Any:
        calls.append(kind)
        return {
            "file": lambda: open_file,
            "set": lambda: {1, 2},
            "nul": lambda: "POZ\x00",
            "big": lambda: "x" * 5_000_000,
            "nan": lambda: [1.5, float("nan")],
        }[kind]()

    function = app.task(name="t")(returns)
    kinds = ["file", "set", "nul", "big", "nan"]
    async with app.worker():
        handles = {kind: await function.enqueue(kind) for kind in kinds}
        results = {kind: await handle.result(10) for kind, handle in handles.items()}
    open_file.close()
    assert sorted(calls) == sorted(kinds)
    assert results["nul"] == "POZ\x00"
    assert results["set"] == {1, 2}
    for kind, type_name in [("file", "TextIOWrapper"), ("big", "str")]:
        assert type_name in results[kind].type_name, kind
    for handle in handles.values():
        assert (await handle.status()).state is State.SUCCEEDED
