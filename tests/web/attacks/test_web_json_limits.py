"""JSON is measured before it is parsed: its values, depth, items, and members that come twice."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tidegate.web.json_limits import CONTAINER_CHARS, has_more_items, is_deeper, repeated_member, structure_of


def counted(value: Any) -> int:
    """Return what a value's JSON counts for, from the value itself."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return CONTAINER_CHARS + max(len(value) - 1, 0) + sum(map(counted, inner))
    return 0


def depth_of(value: Any) -> int:
    if isinstance(value, dict | list):
        inner = list(value.values()) if isinstance(value, dict) else value
        return 1 + max(map(depth_of, inner), default=0)
    return 0


def some_value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(5 if depth else 3)
    if kind == 3:
        return [some_value(chance, depth - 1) for _ in range(chance.randrange(5))]
    if kind == 4:
        texts = ["a", "b\\", '"c"', "[d,{", 'é\\\\"]']
        return {chance.choice(texts): some_value(chance, depth - 1) for _ in range(chance.randrange(4))}
    return [chance.random(), '[",{\\', '\\\\\\"],'][kind]


def test_values_and_depth_match_the_parsed_value_for_any_strings() -> None:
    chance = random.Random(7)
    for _ in range(300):
        value = {"tasks": [some_value(chance, 5) for _ in range(chance.randrange(6))]}
        data = json.dumps(value).encode()
        count, depth = counted(value), depth_of(value)
        structure = structure_of(data, count)
        assert structure is not None
        assert structure_of(data, count - 1) is None
        assert is_deeper(structure, depth - 1)
        assert not is_deeper(structure, depth)
        items = len(value["tasks"])
        assert not has_more_items(structure, max(items, 1))
        assert items < 2 or has_more_items(structure, items - 1)


@pytest.mark.parametrize("data", [b'"' * 1_200_000, b'["",' * 300_000, b"[" + b"[]," * 400_000 + b"0]"])
def test_too_many_values_are_detected_without_counting_all(data: bytes) -> None:
    assert structure_of(data, 150_000) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"a":1,"b":2}', None),
        ('{"a":1,"a":1}', "a"),
        (r'{"a":1,"\u0061":2}', "a"),
        ('{"x":[{"deep":1,"other":{},"deep":2}]}', "deep"),
        ('[{"a":1},{"a":1}]', None),
        ('{"a":{"a":{"a":1}}}', None),
        ('{"a":1,"a"', None),
        ('{"n":' + "9" * 5_000 + ',"f":1.5,"x":NaN}', None),
    ],
)
def test_a_member_that_comes_twice_is_found_at_any_depth(text: str, name: str | None) -> None:
    assert repeated_member(text) == name
