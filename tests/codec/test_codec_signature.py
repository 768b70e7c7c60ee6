"""A call is checked against the signature, stored by name, and matched to the code that runs it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from tidegate.codec import LIMIT_BYTES, Signature
from tidegate.errors import ArgumentsError


class Context:
    """Stands for the class that is injected."""


@dataclass
class Doc:
    tags: list[str]
    when: datetime | None = None


def _of(function) -> Signature:
    return Signature.of(function, injected=Context)


def _called(function, *args, **kwargs) -> Any:
    """Call `function` as a worker would: through its payload."""
    signature = _of(function)
    given, named = signature.load(signature.bind(args, kwargs))
    return function(*given, **named)


def everything(a, /, b, c=3, *rest, d, e=5, **others):
    return a, b, c, rest, d, e, others


def positional_and_others(a, /, **others):
    return a, others


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, 2), {"d": 4}),
        ((1,), {"b": 2, "d": 4}),
        ((1, 2, 30), {"d": 4, "e": 50}),
        ((1, 2, 30, 31, 32), {"d": 4, "x": (1,), "a": {2}}),
        ((1,), {"b": 2, "c": 3, "d": 4, "rest": 9}),
    ],
)
def test_a_call_through_the_payload_is_the_plain_call(args, kwargs):
    assert _called(everything, *args, **kwargs) == everything(*args, **kwargs)


def test_a_name_among_the_others_may_equal_a_positional_only_parameter():
    assert _called(positional_and_others, 1, a=2) == (1, {"a": 2})


@pytest.mark.parametrize(
    ("args", "kwargs", "fault"),
    [
        ((), {"d": 1}, "missing a, missing b"),
        ((1,), {"d": 1}, "missing b"),
        ((1, 2), {}, "missing d"),
        ((1, 2), {"d": 4, "b": 3}, "b given twice"),
        ((1, 2, 3, 4), {"d": 4, "c": 3}, "c given twice"),
    ],
)
def test_a_wrong_call_names_what_is_missing_or_given_twice(args, kwargs, fault):
    with pytest.raises(TypeError):
        everything(*args, **kwargs)
    with pytest.raises(ArgumentsError, match=fault):
        _of(everything).bind(args, kwargs)


def t(a, b=2, *, c: int = 3):
    return a, b, c


@pytest.mark.parametrize(
    ("args", "kwargs", "fault"),
    [
        ((), {}, "missing a"),
        ((1,), {"x": 2}, "unexpected x"),
        ((1, 2, 3), {}, "3 positional arguments, but it takes 2"),
        ((1, 2), {"b": 2}, "b given twice"),
    ],
)
def test_wrong_arguments_are_refused_at_enqueue_with_function_arguments_and_signature(args, kwargs, fault):
    with pytest.raises(ArgumentsError) as refused:
        _of(t).bind(args, kwargs)
    message = refused.value.message
    assert fault in message
    assert f"{__name__}:t(a, b=2, *, c: int = 3)" in message
    assert f"given ({', '.join(['int'] * len(args) + [f'{name}: int' for name in kwargs])})" in message
    assert refused.value.facts["signature"] == "(a, b=2, *, c: int = 3)"


def test_a_positional_only_parameter_given_by_name_is_refused():
    for function in (lambda a, /: a, positional_and_others):
        with pytest.raises(ArgumentsError, match=": a given by name; given"):
            _of(function).bind((), {"a": 1})


def test_a_message_about_wrong_arguments_holds_no_values():
    with pytest.raises(ArgumentsError) as refused:
        _of(t).bind(("sk-secret",), {"x": "sk-secret", "c": "sk-secret"})
    with pytest.raises(ArgumentsError) as misfit:
        _of(t).bind((1,), {"c": "sk-secret"})
    assert "secret" not in str(refused.value) + str(misfit.value)


def test_defaults_are_not_stored():
    assert _of(t).bind((1,), {}) == b'{"a":[],"k":{"a":1}}'


def test_an_argument_that_does_not_fit_its_annotation_is_refused_at_enqueue():
    def annotated(doc: Doc, n: int = None, *more: int, **flags: bool): ...  # noqa: RUF013

    signature = _of(annotated)
    signature.bind((Doc(["a"]), None, 2), {"x": True})
    for args, kwargs, path in [
        ((Doc(["a", 3]),), {}, "doc.tags[1]"),
        (({"tags": []},), {}, "doc"),
        ((Doc([]), "x"), {}, "n"),
        ((Doc([]), 1, 2, "x"), {}, "more[1]"),
        ((Doc([]),), {"yes": 1}, "yes"),
        ((Doc([]), 1, 2, float("nan")), {}, "more[1]"),
    ]:
        with pytest.raises(ArgumentsError) as refused:
            signature.bind(args, kwargs)
        assert refused.value.facts["path"] == path
        assert refused.value.facts["function"] == signature.name


def test_the_type_of_an_unannotated_argument_decides_how_it_is_stored():
    arguments = {1: (2, {3}), "4": datetime(2026, 1, 2)}
    assert _called(lambda value: value, arguments) == arguments


def test_text_that_is_not_utf_8_is_refused_with_its_place_also_in_names():
    for args, kwargs, place in [(("\ud800",), {}, "a"), ((1,), {"b": ["\ud800"]}, r"b\[0\]")]:
        with pytest.raises(ArgumentsError, match=f": {place} .type str. has a lone surrogate"):
            _of(t).bind(args, kwargs)
    with pytest.raises(ArgumentsError, match="a name has a lone surrogate"):
        _of(positional_and_others).bind((1,), {"\ud800": 1})


def test_a_huge_integer_is_refused_also_where_integers_are_quick():
    with pytest.raises(ArgumentsError, match=r"c .type int. has more than 4,000 digits"):
        _of(t).bind((1,), {"c": 10**5000})
    assert _called(t, 2**70, c=-(2**63) - 1) == (2**70, 2, -(2**63) - 1)


def test_arguments_over_the_limit_together_are_refused_with_both_sizes():
    half = "x" * (LIMIT_BYTES // 2)
    with pytest.raises(ArgumentsError) as refused:
        _of(t).bind((half,), {"b": half + "y"})
    assert f"{LIMIT_BYTES + 29:,} bytes" in refused.value.message
    assert f"{LIMIT_BYTES:,} bytes" in refused.value.message
    assert refused.value.facts["path"] == "b"
    assert "reference" in refused.value.fix
    assert _of(t).bind(("x" * 100,), {}, limit=121)
    with pytest.raises(ArgumentsError, match="the limit is 120 bytes"):
        _of(t).bind(("x" * 100,), {}, limit=120)


def test_arguments_of_an_older_release_that_still_fit_are_taken_by_name():
    def old(a, b): ...

    def reordered(b, a, c=9):
        return a, b, c

    args, kwargs = _of(reordered).load(_of(old).bind((1, 2), {}))
    assert reordered(*args, **kwargs) == (1, 2, 9)


def _renamed(first, b): ...


def _keyword_only(a, *, c): ...


def _fewer(a): ...


def _retyped(a: Doc, b=0): ...


@pytest.mark.parametrize(
    ("new", "fault"),
    [
        (_renamed, "missing first, unexpected a"),
        (_keyword_only, "missing c, unexpected b"),
        (_fewer, "unexpected b"),
        (_retyped, "a: Expected `object`, got `int`"),
    ],
)
def test_arguments_of_an_older_release_that_do_not_fit_are_named_with_the_new_signature(new, fault):
    def old(a, b): ...

    signature = _of(new)
    with pytest.raises(ArgumentsError) as refused:
        signature.load(_of(old).bind((1, 2), {}))
    assert f"arguments do not fit {__name__}:{new.__name__}{signature.text}: {fault}" in refused.value.message


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"args":[]}', b'{"a":{}}', b"\xff", b'{"k":{"a":1e999}}'])
def test_a_payload_that_cannot_be_read_is_an_arguments_error(payload):
    with pytest.raises(ArgumentsError, match="arguments do not fit"):
        _of(t).load(payload)


def test_arguments_written_by_hand_are_checked_and_stored_as_a_call_would_be():
    def annotated(doc: Doc, n: int = 0): ...

    signature = _of(annotated)
    written = b'{"a": [{"when": "2026-01-02T00:00:00", "tags": ["x"]}], "k": {"n": 1}}'
    called = signature.bind((Doc(["x"], datetime(2026, 1, 2)), 1), {})
    assert signature.accept(written) == called
    with pytest.raises(ArgumentsError) as refused:
        signature.accept(b'{"k": {"doc": {"tags": [1]}}}')
    assert refused.value.facts["path"] == "doc.tags[0]"


def test_equal_calls_have_equal_fingerprints_and_others_do_not():
    signature = _of(everything)

    def fingerprint(*args, **kwargs) -> bytes:
        found = signature.fingerprint(signature.bind(args, kwargs))
        assert len(found) == 32
        return found

    same = fingerprint(1, 2, d={"x": 1, "y": 2}, e={1: {"p": 1, "q": 2}, 2: {"b", "c", "a"}})
    assert fingerprint(1, e={2: {"a", "c", "b"}, 1: {"q": 2, "p": 1}}, d={"y": 2, "x": 1}, b=2) == same
    others = [
        fingerprint(1, 2, d={"x": 1, "y": 3}, e={1: {"p": 1, "q": 2}, 2: {"b", "c", "a"}}),
        fingerprint(1, 2, d=[1, 2]),
        fingerprint(1, 2, d=[2, 1]),
        fingerprint(1, 2, d=(1, 2)),
        fingerprint(1, 2, d={1: 2}),
        fingerprint(1, 2, d={"1": 2}),
        fingerprint(1, 2, 3, 4, d=1),
        fingerprint(1, 2, 4, 3, d=1),
        fingerprint(1, 2, d=1, **{"$tg": "dict"}),
    ]
    assert len({same, *others}) == len(others) + 1


def test_the_example_in_the_docstring_is_true():
    def summarize(text: str, *, words: int = 100) -> str: ...

    signature = Signature.of(summarize)
    assert signature.text == "(text: str, *, words: int = 100) -> str"
    payload = signature.bind(("It was a dark night.",), {"words": 5})
    assert payload == b'{"a":[],"k":{"text":"It was a dark night.","words":5}}'
