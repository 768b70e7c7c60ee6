"""The identity of work whose results tasks share, and the options of a cache."""

from __future__ import annotations

import asyncio
import functools
from datetime import timedelta
from typing import Any

import pytest

from step_support import RecordingPort, context_with
from tidegate import ArgumentsError, Context, OptionError
from tidegate.domain.step import CACHED_BYTES
from tidegate.steps.cache import cache_options, cache_terms
from tidegate.store.step_rows import BeginStatus, BegunStep, CacheTerms

pytestmark = pytest.mark.anyio


def embed(model: str, text: str) -> str:
    return f"{model} {text}"


def draw(model: str, text: str) -> str:
    return f"{model} {text}"


def decorated() -> Any:
    @functools.wraps(draw)
    def wrapper(model: str, text: str) -> str:
        return draw(model, text)

    return wrapper


class Client:
    def embed(self, model: str, text: str) -> str:
        return f"{model} {text}"

    def __call__(self, model: str, text: str) -> str:
        return f"{model} {text}"


def terms(function: Any, *args: Any, tenant: str = "", name: str = "embed", **options: Any) -> CacheTerms:
    given: dict[str, Any] = {"key": None, "version": None, "scope": None} | options
    shared = cache_options(given.pop("cache", True), **given)
    assert shared is not None
    return cache_terms(name, function, args, shared, tenant)


def digest(function: Any, *args: Any, **options: Any) -> str:
    return terms(function, *args, **options).digest


BASE = digest(embed, "small", "hello")


def test_work_is_equal_if_its_function_and_arguments_are() -> None:
    assert digest(embed, "small", "hello") == BASE
    assert digest(embed, "small", "hello", name="another step") == BASE
    assert digest(functools.partial(embed, "small"), "hello") == BASE
    assert digest(embed, "small", "hello", cache="7d") == BASE


@pytest.mark.parametrize(
    "other",
    [
        digest(draw, "small", "hello"),
        digest(embed, "large", "hello"),
        digest(embed, "small", "bye"),
        digest(embed, "smallh", "ello"),
        digest(embed, "small", "hello", version="2"),
        digest(embed, "small", "hello", key="hello"),
        digest(embed, "small", "hello", scope="all"),
        digest(embed, "small", "hello", tenant="a"),
        digest(functools.partial(embed, text="hello"), "small"),
    ],
)
def test_other_functions_arguments_versions_scopes_and_tenants_are_other_work(other: str) -> None:
    assert other != BASE


def test_a_key_names_the_content_in_place_of_the_arguments() -> None:
    assert digest(embed, object(), "hello", key="k") == digest(embed, "small", "bye", key="k")
    assert digest(embed, key="k") != digest(draw, key="k")
    assert digest(embed, key="k", tenant="a") != digest(embed, key="k", tenant="b")
    assert digest(embed, key="k", tenant="a", scope="all") == digest(embed, key="k", tenant="b", scope="all")


def captured(text: str) -> Any:
    def inner() -> str:
        return text

    return inner


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda: "a", "a lambda"),
        (captured("a"), "variables of another function"),
        (Client().embed, "a method of an object"),
        (Client(), "an object"),
    ],
)
def test_a_function_whose_content_is_not_in_its_arguments_needs_a_key(function: Any, what: str) -> None:
    with pytest.raises(OptionError, match=what) as error:
        digest(function)
    assert "cache_key=" in error.value.fix
    assert digest(function, key="k")


def test_lambdas_of_two_steps_are_other_work_even_with_the_same_key() -> None:
    first, second = (digest(lambda: 1, key="k", name=name) for name in ("a", "b"))
    assert first != second


@pytest.mark.parametrize("function", [len, decorated(), dict.fromkeys])
def test_builtin_decorated_and_class_functions_have_names_of_their_own(function: Any) -> None:
    assert digest(function, "a", "b") == digest(function, "a", "b")


def test_arguments_that_cannot_be_encoded_need_a_key() -> None:
    with pytest.raises(ArgumentsError) as error:
        digest(embed, object(), "hello")
    assert "cache_key=" in error.value.fix


@pytest.mark.parametrize(
    ("cache", "seconds"), [(True, 86_400.0), ("1h", 3_600.0), (90, 90.0), (timedelta(days=2), 172_800.0)]
)
def test_a_cache_lasts_24_hours_or_as_long_as_it_says(cache: Any, seconds: float) -> None:
    assert terms(embed, cache=cache).seconds == seconds


@pytest.mark.parametrize(
    "options",
    [
        {"cache": 0},
        {"cache": "-1h"},
        {"cache": "soon"},
        {"cache": "400d"},
        {"cache_key": "k"},
        {"cache": False, "cache_version": "2"},
        {"cache_scope": "all"},
        {"cache": True, "cache_scope": "everybody"},
        {"cache": True, "cache_key": ""},
        {"cache": True, "cache_version": 2},
        {"cache": True, "cache_key": "k" * 100_001},
    ],
)
async def test_invalid_options_are_refused_before_anything_is_recorded(options: dict[str, Any]) -> None:
    port = RecordingPort()
    ctx = context_with(port)
    with pytest.raises(OptionError, match="cache"):
        await ctx.step("embed", embed, "small", "hello", **options)
    with pytest.raises(OptionError, match="cache"):
        await asyncio.to_thread(ctx.step_sync, "embed", embed, "small", "hello", **options)
    assert port.begins == []


@pytest.mark.parametrize("cache", [None, False])
async def test_a_step_without_a_cache_asks_for_none(cache: bool | None) -> None:
    port = RecordingPort()
    await context_with(port).step("embed", embed, "small", "hello", cache=cache)
    assert [request.cache for request in (*port.begins, *port.ends)] == [None, None]


async def test_a_plain_call_does_the_work_each_time() -> None:
    ctx, made = Context.detached(), []

    async def work() -> int:
        made.append(1)
        return len(made)

    assert [await ctx.step("work", work, cache=True, cache_key="k") for _ in range(2)] == [1, 2]


async def test_a_result_from_the_cache_is_decoded_by_the_function(caplog: pytest.LogCaptureFixture) -> None:
    port = RecordingPort()
    port.answers["embed"] = BegunStep(BeginStatus.DONE, b'"cached"', "json")
    assert await context_with(port).step("embed", embed, "small", "hello", cache=True) == "cached"
    assert port.ends == []


async def test_a_result_that_is_too_large_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    ctx = context_with(RecordingPort())
    for number in range(2):
        await ctx.step("long", embed, "m" * CACHED_BYTES, str(number), cache=True)
    [record] = [record for record in caplog.records if "not cached" in record.message]
    assert str(CACHED_BYTES) in record.message
