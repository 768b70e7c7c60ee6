import sys
import traceback
from threading import Lock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.domain.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT
from tidegate.domain.text import storable
from tidegate.policy.describe import class_name_of, message_of, traceback_of


def describe(exc):
    return class_name_of(exc), message_of(exc), traceback_of(exc)


def caught(exc):
    """Return the exception with the traceback of having been raised."""
    try:
        raise exc
    except BaseException as error:
        return error


class TwoArguments(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a}{b}")
        self.lock = Lock()
        self.function = lambda: None


class BrokenStr(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class EndsTheProcess(Exception):
    def __str__(self):
        sys.exit(3)


class NoText(Exception):
    def __str__(self):
        return 7


class OddText(str):
    def __getitem__(self, index):
        raise RuntimeError("not even a slice")

    def __len__(self):
        raise RuntimeError("not even a length")


class OddStr(Exception):
    def __str__(self):
        return OddText("boom")


def test_an_exception_is_described_by_class_message_and_traceback():
    name, message, text = describe(caught(TwoArguments(1, 2)))
    assert name == f"{__name__}.TwoArguments"
    assert message == "12"
    assert text.startswith("Traceback (most recent call last):")
    assert "in caught" in text
    assert text.rstrip().endswith(f"{__name__}.TwoArguments: 12")


def test_a_built_in_class_has_its_bare_name():
    assert describe(ValueError("x"))[0] == "ValueError"


def test_a_local_class_names_the_function_around_it():
    class Local(Exception):
        pass

    assert describe(Local())[0].endswith("test_a_local_class_names_the_function_around_it.<locals>.Local")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("boom\x00tail", r"boom\x00tail"),
        ("boom\ud800", r"boom\ud800"),
        ("\x1b[31mred\x7f\x85", r"\x1b[31mred\x7f\x85"),
        ("line\nnext\ttab 漢字 🌊", "line\nnext\ttab 漢字 🌊"),
    ],
)
def test_characters_that_cannot_be_stored_are_shown_escaped(raw, shown):
    name, message, text = describe(caught(ValueError(raw)))
    assert (name, message) == ("ValueError", shown)
    assert shown in text
    (message + text).encode("utf-8")


def test_an_enormous_message_is_cut_with_a_mark():
    _, message, text = describe(caught(ValueError("x" * 3_000_000)))
    assert len(message) == MESSAGE_LIMIT
    assert message.startswith("xxx")
    assert message.endswith("… (cut, 3000000 characters)")
    assert len(text) <= TRACEBACK_LIMIT
    assert "… (cut, " in text
    assert text.startswith("Traceback (most recent call last):")


def test_escapes_do_not_make_a_message_longer_than_the_limit():
    _, message, _ = describe(ValueError("\x00" * MESSAGE_LIMIT))
    assert len(message) == MESSAGE_LIMIT
    assert message.endswith(f"… (cut, {MESSAGE_LIMIT} characters)")


def test_a_message_of_exactly_the_limit_is_whole():
    assert describe(ValueError("y" * MESSAGE_LIMIT))[1] == "y" * MESSAGE_LIMIT


@pytest.mark.parametrize("kind", [BrokenStr, EndsTheProcess, NoText])
def test_a_broken_str_still_names_the_class(kind):
    name, message, text = describe(caught(kind()))
    assert name.endswith(kind.__name__)
    assert kind.__name__ in message
    assert kind.__name__ in text


def test_a_text_of_a_str_subclass_is_taken_as_plain_text():
    assert describe(caught(OddStr()))[1] == "boom"


def test_a_class_that_hides_its_module_is_still_named():
    odd = type("Odd", (Exception,), {"__module__": None, "__qualname__": "Odd\x00"})
    name, message, _ = describe(caught(odd("boom")))
    assert (name, message) == (r"None.Odd\x00", "boom")


def test_a_cycle_of_causes_ends():
    first, second = caught(ValueError("first")), caught(KeyError("second"))
    first.__cause__, second.__cause__ = second, first
    _, message, text = describe(first)
    assert message == "first"
    assert "second" in text


def test_a_cycle_of_contexts_ends():
    first, second = caught(ValueError("first")), caught(KeyError("second"))
    first.__context__, second.__context__ = second, first
    assert "first" in describe(first)[2]


def test_ten_thousand_causes_are_cut_to_size():
    exc = ValueError("innermost")
    for number in range(10_000):
        outer = RuntimeError(f"number {number}")
        outer.__cause__ = exc
        exc = outer
    name, message, text = describe(caught(exc))
    assert (name, message) == ("RuntimeError", "number 9999")
    assert 0 < len(text) <= TRACEBACK_LIMIT


def test_a_deep_recursion_is_described():
    def fall():
        return fall()

    try:
        fall()
    except RecursionError as exc:
        name, message, text = describe(exc)
    assert name == "RecursionError"
    assert "recursion" in message
    assert "in fall" in text
    assert len(text) <= TRACEBACK_LIMIT


def test_the_members_of_a_group_are_in_its_traceback():
    group = caught(ExceptionGroup("g", [TwoArguments(1, 2), ValueError(3)]))
    name, message, text = describe(group)
    assert name == "ExceptionGroup"
    assert message == "g (2 sub-exceptions)"
    assert "TwoArguments: 12" in text
    assert "ValueError: 3" in text


def test_local_variables_are_never_shown():
    def body():
        password = "correct horse"  # noqa: F841
        raise ValueError("no")

    try:
        body()
    except ValueError as exc:
        _, _, text = describe(exc)
    assert "in body" in text
    # The line of source that sets it is not the one that raised.
    assert "correct horse" not in text


@pytest.mark.parametrize(
    ("exc", "message"),
    [
        (SystemExit(), "exit code 0"),
        (SystemExit(3), "exit code 3"),
        (SystemExit("out of luck"), "exit code 1: out of luck"),
        (KeyboardInterrupt(), ""),
    ],
)
def test_an_exit_is_described_by_its_code(exc, message):
    assert describe(exc)[:2] == (type(exc).__name__, message)


def test_frames_are_still_shown_when_the_traceback_module_fails(monkeypatch):
    def fails(*_args, **_kwargs):
        raise MemoryError

    monkeypatch.setattr(traceback, "TracebackException", fails)
    text = describe(caught(ValueError("boom")))[2]
    assert "in caught" in text
    assert text.endswith("ValueError: boom\n")


def test_cut_text_states_its_original_length():
    assert storable("a" * 100, 100) == "a" * 100
    assert storable("a" * 101, 100) == "a" * 77 + "… (cut, 101 characters)"


@settings(max_examples=100, deadline=None, database=None)
@given(st.text(st.characters(codec=None, exclude_categories=[])), st.integers(0, 30))
def test_every_text_comes_out_storable(text, repeats):
    name, message, trace = describe(caught(ValueError(text * (1 + repeats * 100))))
    assert name == "ValueError"
    assert len(message) <= MESSAGE_LIMIT
    assert len(trace) <= TRACEBACK_LIMIT
    (message + trace).encode("utf-8")
    assert "\x00" not in message + trace
