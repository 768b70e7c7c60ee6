"""A limit for which the workers have too few slots is found, with the number that is needed."""

from __future__ import annotations

import pytest

from tidegate.domain.spec import Window
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import Gate, GateRow, LearnedRate
from tidegate.policy.capacity import find_slot_shortages, slots_by_upstream

MINUTE = Window("requests_per_minute", 600, 60.0)
DAY = Window("requests_per_day", 86_400, 86_400.0, is_fixed=True)
COUNTED = LearnedRate(counted_at=1_800_000_000.0)


def row(
    *windows: Window,
    seconds: float = 3.0,
    max_in_flight: int | None = None,
    learned_rate: LearnedRate = COUNTED,
) -> GateRow:
    return GateRow(
        GateKind.UPSTREAM,
        "u",
        Limits(windows, max_in_flight),
        Gate(typical_seconds=seconds, learned_rate=learned_rate),
    )


def test_eight_slots_are_too_few_for_a_limit_that_needs_thirty():
    (short,) = find_slot_shortages([row(MINUTE)], {"u": 8})

    assert (short.needed, short.slots) == (30, 8)
    assert short.description == (
        "upstream u: 600 in 1 min need 30 tasks at once, because a run took 3 s recently; the live workers that"
        " serve it have 8 slots, so about 27% of the limit can be used"
    )
    assert short.fix == "raise concurrency, processes or workers to 30 slots in total"


@pytest.mark.parametrize(
    ("gate", "slots"),
    [
        (row(MINUTE), 30),
        (row(MINUTE), 27),
        (row(MINUTE, DAY), 8),
        (row(MINUTE, max_in_flight=8), 8),
        (row(MINUTE, seconds=0.5), 8),
        (row(), 1),
        (row(MINUTE, learned_rate=LearnedRate()), 8),
        (row(MINUTE), 0),
    ],
    ids=[
        "enough",
        "nearly",
        "slower limit",
        "in-flight limit",
        "quick",
        "no limit",
        "no run yet",
        "no worker",
    ],
)
def test_no_shortage_is_reported_if_slots_suffice_or_nothing_is_known(gate, slots):
    assert find_slot_shortages([gate], {"u": slots}) == []


def test_slots_are_those_of_the_workers_that_serve_the_queues_of_its_tasks():
    workers = [(("llm",), 8), (("other",), 100), (("*",), 2)]

    assert slots_by_upstream({"u": {"llm", "batch"}, "v": set()}, workers) == {"u": 10, "v": 2}
