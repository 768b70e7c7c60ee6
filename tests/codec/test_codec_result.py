"""A result comes back equal, or a stand-in gives the reason; nothing is raised."""

import os
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from tidegate.codec import LIMIT_BYTES, Shape, Signature, Unstorable, load_result
from tidegate.errors import ArgumentsError


@dataclass
class Summary:
    text: str
    at: datetime


def unannotated(): ...


def summarize() -> Summary: ...


def title() -> str: ...


def when() -> datetime: ...


def nothing() -> None: ...


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (unannotated, "POZ\x00"),
        (unannotated, {1, 2}),
        (unannotated, (1, {2: b"\xff"})),
        (unannotated, None),
        (unannotated, {"$tg": "unstorable", "v": ["int", "joke"]}),
        (unannotated, {"$tg": "as-is", "v": 1}),
        (summarize, Summary("x", datetime(2026, 1, 2))),
        (title, "x"),
        (nothing, None),
        (title, {1, 2}),
        (title, ["x", 1]),
        (when, "2026-01-02T00:00:00"),
        (when, datetime(2026, 1, 2)),
        (nothing, (1,)),
        (summarize, None),
        (summarize, {"text": "x", "at": "2026-01-02T00:00:00"}),
    ],
)
def test_a_result_comes_back_as_the_function_returned_it_with_any_annotation(function, value):
    signature = Signature.of(function)
    encoded = signature.encode_result(value)
    assert encoded.stored
    assert encoded.note == ""
    back = signature.load_result(encoded.data)
    assert back == value
    assert type(back) is type(value)


class Evil:
    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            raise RuntimeError("no class")
        return object.__getattribute__(self, name)


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        (float("nan"), "float", "result (type float) is NaN"),
        ({"a": [1.5, float("nan")]}, "dict", "result.a[1] (type float) is NaN"),
        ([float("inf"), float("-inf")], "list", "result[0] (type float) is infinite"),
        ("\ud800", "str", "surrogate"),
        (Summary("x", datetime(2026, 1, 2)), f"{__name__}.Summary", "annotate the return type"),
        pytest.param(10**5000, "int", "4,000 digits", id="digits"),
        pytest.param(Evil(), f"{__name__}.Evil", "(RuntimeError)", id="evil"),
        ([[]] * (LIMIT_BYTES + 1), "list", "1,048,576 bytes"),
    ],
)
def test_a_result_that_cannot_be_stored_is_replaced_by_its_type_and_the_reason(value, kind, says):
    signature = Signature.of(unannotated)
    encoded = signature.encode_result(value)
    assert not encoded.stored
    stand_in = signature.load_result(encoded.data)
    assert isinstance(stand_in, Unstorable)
    assert stand_in.type_name == kind
    assert says in stand_in.reason
    assert stand_in.reason in encoded.note
    assert len(encoded.data) < 2_000


def test_an_open_file_and_an_unawaited_coroutine_are_replaced_without_a_warning():
    async def work(): ...

    signature = Signature.of(unannotated)
    with open(os.devnull) as file:
        for value, kind in ((file, "_io.TextIOWrapper"), (work(), "coroutine")):
            stand_in = signature.load_result(signature.encode_result(value).data)
            assert stand_in.type_name == kind
            assert "cannot be stored" in stand_in.reason


@pytest.mark.parametrize("function", [unannotated, title])
@pytest.mark.parametrize("over", [-1, 0, 1, 4 * LIMIT_BYTES])
def test_a_result_up_to_the_limit_is_stored_and_above_it_both_sizes_are_named(function, over):
    signature = Signature.of(function)
    text = "x" * (LIMIT_BYTES + over - 2)  # two quotes
    encoded = signature.encode_result(text)
    assert encoded.stored is (over <= 0)
    back = signature.load_result(encoded.data)
    if over <= 0:
        assert back == text
    else:
        assert f"{LIMIT_BYTES + over:,} bytes" in back.reason
        assert f"{LIMIT_BYTES:,} bytes" in back.reason
        assert "reference" in back.reason


def test_the_limit_can_be_set_and_applies_to_results_that_do_not_fit_the_annotation():
    signature = Signature.of(title)
    assert signature.encode_result([1, 2], limit=25).stored
    assert not signature.encode_result([1, 2], limit=24).stored
    assert not signature.encode_result("x" * 50, limit=24).stored


def test_a_result_can_be_read_without_its_function():
    data = Signature.of(summarize).encode_result(Summary("x", datetime(2026, 1, 2))).data
    assert load_result(Shape(), data) == {"text": "x", "at": "2026-01-02T00:00:00"}
    assert isinstance(load_result(Shape(), Signature.of(title).encode_result(object()).data), Unstorable)


def test_a_result_that_no_longer_fits_the_annotation_is_an_arguments_error():
    data = Signature.of(title).encode_result("x").data
    with pytest.raises(ArgumentsError, match="result: Expected `object`, got `str`"):
        Signature.of(summarize).load_result(data)
