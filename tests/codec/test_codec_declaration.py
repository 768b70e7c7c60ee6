"""What is read of a function when it is declared: annotations, context, and whether it can be a task."""

import functools
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Optional

import pytest

from tidegate.codec import Signature
from tidegate.errors import ArgumentsError, ConfigError

if TYPE_CHECKING:
    from nowhere import Thing


class Context:
    """Stands for the class that is injected."""


@dataclass
class Doc:
    tags: list[str]
    when: datetime | None = None


def _of(function) -> Signature:
    return Signature.of(function, injected=Context)


def plain(a, b=2): ...


def first(ctx: Context, doc: int, *rest: int):
    return ctx, doc, rest


async def last(doc: int, *, ctx: Optional[Context] = None):  # noqa: UP045
    return ctx, doc


def quoted(doc: "int", ctx: "Context | None" = None):
    return ctx, doc


def noted(doc: int, ctx: Annotated[Context, "injected"]):
    return ctx, doc


@pytest.mark.parametrize("function", [first, last, quoted, noted])
def test_the_context_is_invisible_to_callers(function):
    signature = _of(function)
    assert signature.context == "ctx"
    assert "ctx" not in signature.text
    assert signature.bind((1,), {}) == b'{"a":[],"k":{"doc":1}}'
    with pytest.raises(ArgumentsError, match="unexpected ctx"):
        signature.bind((1,), {"ctx": 2})
    with pytest.raises(ArgumentsError, match="unexpected ctx"):
        signature.load(b'{"k":{"doc":1,"ctx":2}}')


def test_the_context_is_put_where_the_function_takes_it():
    context = Context()
    for function, args in [(first, (1, 2, 3)), (first, (1,)), (quoted, (1,)), (noted, (1,))]:
        signature = _of(function)
        given, named = signature.with_context(*signature.load(signature.bind(args, {})), context)
        assert function(*given, **named)[:2] == (context, 1)
    assert _of(plain).with_context((1,), {"b": 2}, context) == ((1,), {"b": 2})


def test_the_context_is_not_taken_by_other_keyword_arguments():
    def greedy(ctx: Context, **others): ...

    with pytest.raises(ArgumentsError, match="unexpected ctx"):
        _of(greedy).bind((), {"ctx": 1})


def test_a_coroutine_function_is_recognised():
    assert _of(last).is_async
    assert not _of(first).is_async


def test_a_name_that_only_type_checkers_import_is_found_in_the_namespace_given():
    def work(doc): ...

    work.__annotations__ = {"doc": "Local", "return": "Local"}
    signature = Signature.of(work, namespace={"Local": Doc})
    assert signature.load(signature.bind((Doc(["a"]),), {})) == ((), {"doc": Doc(["a"])})


def test_the_context_needs_no_import_at_run_time():
    class Missing:
        pass

    def work(doc: int, ctx: "Missing"): ...

    assert Signature.of(work, injected=Missing).context == "ctx"


def _unresolved(doc: "Thing"): ...


def _unresolved_result() -> "list[Thing]": ...


def _not_code(doc): ...


_not_code.__annotations__ = {"doc": "int str"}


@dataclass
class Broken:
    thing: "Thing"


def _broken_inside(doc: Broken): ...


@pytest.mark.parametrize(
    ("function", "place"),
    [
        (_unresolved, "annotation of doc"),
        (_unresolved_result, "return annotation"),
        (_not_code, "annotation of doc"),
        (_broken_inside, "annotation of doc"),
    ],
)
def test_an_annotation_that_cannot_be_resolved_is_named_with_its_function(function, place):
    with pytest.raises(ConfigError) as refused:
        _of(function)
    assert f"the {place} of {__name__}:{function.__name__}" in refused.value.message
    assert refused.value.facts["function"] == f"{__name__}:{function.__name__}"


class Service:
    def method(self, doc): ...

    def __call__(self, doc): ...

    @classmethod
    def of_class(cls, doc): ...


def _generator(doc):
    yield doc


async def _async_generator(doc):
    yield doc


def _two_contexts(a: Context, b: Context): ...


def _context_without_a_name(a: Context, /): ...


def _contexts(*ctx: Context): ...


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(plain, 1),
        Service.method,
        Service().method,
        Service(),
        Service.of_class,
        Service.__dict__["of_class"],
        Service,
        print,
        dict.fromkeys,
        _generator,
        _async_generator,
        _two_contexts,
        _context_without_a_name,
        _contexts,
    ],
)
def test_a_callable_that_is_not_a_plain_function_is_refused_when_declared(function):
    with pytest.raises(ConfigError) as refused:
        _of(function)
    assert refused.value.fix


def test_a_wrapped_function_has_the_signature_of_what_it_wraps():
    @functools.wraps(first)
    def wrapper(*args, **kwargs):
        return first(*args, **kwargs)

    signature = _of(wrapper)
    assert signature.text == "(doc: int, *rest: int)"
    assert signature.context == "ctx"
