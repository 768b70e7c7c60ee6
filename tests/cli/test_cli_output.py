"""Words and JSON: strict, exact, safe to print."""

from __future__ import annotations

import json
import sys
from enum import Enum

import pytest

from tidegate.cli import formatting, output, table
from tidegate.domain.spec import Priority
from tidegate.domain.states import State


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "-"),
        (0, "0 s"),
        (0.04, "40 ms"),
        (12.4, "12 s"),
        (90, "2 min"),
        (9_000, "2.5 h"),
        (86_400, "24 h"),
        (777_600, "9 d"),
    ],
)
def test_durations_are_one_rounded_unit(seconds, words):
    assert formatting.format_duration(seconds) == words


def test_moments_are_printed_relative_to_now_and_in_utc():
    assert formatting.format_ago(940.0, now=1000.0) == "1 min ago"
    assert formatting.format_ago(1012.0, now=1000.0) == "in 12 s"
    assert formatting.format_ago(None, now=1000.0) == "-"
    assert formatting.format_since(940.0, now=1000.0) == "1 min ago"
    assert formatting.format_since(4600.0, now=1000.0) == "0 s ago", "the clock was set back since"
    assert formatting.moment(1_780_315_200.25) == "2026-06-01 12:00:00.250Z"
    assert formatting.moment(None) == "-"


def test_control_characters_are_escaped():
    assert formatting.printable("a\x1b[31mred\x00\u202eb\nc") == r"a\x1b[31mred\x00\u202eb c"
    assert formatting.printable("grüße 你好") == "grüße 你好"


def test_integers_that_a_double_would_round_travel_as_text():
    values = {"id": 2**53 + 1, "big": 2**70, "neg": -(2**63) - 1, "small": 2**53 - 1, "yes": True}

    assert output.jsonable(values) == {
        "id": "9007199254740993",
        "big": "1180591620717411303424",
        "neg": "-9223372036854775809",
        "small": 9007199254740991,
        "yes": True,
    }


def test_numbers_that_json_has_no_form_for_become_text(capsys):
    output.print_json({"x": float("inf"), "y": [float("nan")]})

    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"x": "inf", "y": ["nan"]}


def test_priorities_and_states_are_printed_by_name():
    class Other(Enum):
        A = 1

    assert output.jsonable([Priority.BULK, State.DEAD, Other.A]) == ["bulk", "dead", 1]


def test_stored_json_keeps_every_digit_and_names_what_it_cannot_read():
    assert output.stored_json(b'{"k":{"n":1180591620717411303424}}', "json/1") == {"k": {"n": 2**70}}
    assert output.stored_json(b"\x00\x01", "zstd/1") == "(2 bytes of zstd/1)"


def test_a_lone_surrogate_is_still_valid_json(capsys):
    output.print_json("\udcff")

    assert capsys.readouterr().out == '"\\udcff"\n'


def test_a_table_in_a_pipe_is_never_cut(capsys):
    table.print_table(["NAME", "N", "NOTE"], [["a", 1, "x" * 300], ["longer", 12, "y"]], numbers=["N"])

    head, first, second = capsys.readouterr().out.splitlines()
    assert head == "NAME     N  NOTE"
    assert first == f"a        1  {'x' * 300}"
    assert second == "longer  12  y"


def test_a_table_on_a_terminal_is_cut_to_its_width(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")

    table.print_table(["NAME", "NOTE"], [["a", "x" * 300]])

    assert capsys.readouterr().out.splitlines()[1] == f"a     {'x' * 33}…"


COUNTS = ["NAME", "READY", "DEAD", "LAST"]


def shown(capsys, monkeypatch, columns, rows):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    table.print_table(COUNTS, rows, numbers=COUNTS[1:], optional=["READY", "DEAD"], shorten=["NAME"])
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("columns", "heads"),
    [(42, COUNTS), (41, ["NAME", "READY", "LAST"]), (25, ["NAME", "READY", "LAST"]), (24, ["NAME", "LAST"])],
)
def test_a_narrow_terminal_loses_columns_that_show_nothing_then_the_ends_of_names_then_columns(
    capsys, monkeypatch, columns, heads
):
    lines = shown(capsys, monkeypatch, columns, [["n" * 23, 1, 0, 7], ["b", 2, 0, 8]])

    assert lines[0].split() == heads
    assert max(map(len, lines)) <= columns
    assert lines[2].split()[0] == "b"


def test_characters_that_take_two_cells_of_a_terminal_are_counted_so(capsys, monkeypatch):
    lines = shown(capsys, monkeypatch, 80, [["排队", 1, 2, 3], ["abcd", 1, 2, 3]])

    assert [line.index("1") for line in lines[1:]] == [10 - 2, 10]


def test_json_shows_characters_that_could_steer_a_terminal_escaped(capsys):
    output.print_json({"text": "a\x9b31m\u202eb\u2028 你好 \U000e0001"})

    shown = capsys.readouterr().out
    assert shown.rstrip("\n").isprintable()
    assert "你好" in shown
    assert json.loads(shown) == {"text": "a\x9b31m\u202eb\u2028 你好 \U000e0001"}


@pytest.mark.parametrize(
    ("env", "tty", "wanted"),
    [({}, True, True), ({}, False, False), ({"NO_COLOR": "1"}, True, False), ({"NO_COLOR": ""}, True, True),
     ({"FORCE_COLOR": "1"}, False, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False)],
)  # fmt: skip
def test_colours_follow_no_color_and_force_color(monkeypatch, env, tty, wanted):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty, raising=False)

    assert output.wants_color(sys.stdout) is wanted
