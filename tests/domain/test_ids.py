"""UUIDv7: ids increase even if the clock goes back."""

from __future__ import annotations

import random
import uuid

from tidegate.domain.ids import IdMaker, id_or_none


def maker(moments: list[int]) -> IdMaker:
    return IdMaker(lambda: moments.pop(0) if len(moments) > 1 else moments[0], random.Random(1).getrandbits)


def test_an_id_is_a_version_7_uuid_of_its_time() -> None:
    made = uuid.UUID(maker([1_800_000_000_123])())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == 1_800_000_000_123


def test_ids_increase_while_the_clock_stands_still_or_goes_back() -> None:
    make = maker([1_000, 1_000, 999, 1_001, 500])
    ids = [make() for _ in range(10_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_an_id_is_recognised_in_every_usual_form() -> None:
    text = maker([1_800_000_000_123])()
    assert id_or_none(text.upper()) == text
    assert id_or_none(f" {text.replace('-', '')} ") == text
    assert id_or_none("not an id") is None
    assert id_or_none("g" * 32) is None
