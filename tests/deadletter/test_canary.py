"""Which letters of a redrive go first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.deadletter.policy.canary import canary_size, pick_canary
from tidegate.store.operation_rows import Stratum

strata = st.lists(
    st.builds(
        Stratum,
        st.sampled_from("fgh"),
        st.integers(0, 30).map(str),
        st.integers(1, 5_000),
    ),
    max_size=40,
    unique_by=lambda each: (each.function, each.tenant),
)


@given(strata)
def test_a_canary_has_its_size_and_no_stratum_gives_more_than_it_has(given_strata):
    picked = pick_canary(given_strata)

    letters = {(each.function, each.tenant): each.letters for each in given_strata}
    assert sum(each.letters for each in picked) == canary_size(sum(letters.values()))
    assert all(0 < each.letters <= letters[each.function, each.tenant] for each in picked)


@given(strata)
def test_every_stratum_is_in_the_canary_if_there_is_room(given_strata):
    picked = pick_canary(given_strata)

    size = canary_size(sum(each.letters for each in given_strata))
    assert len(picked) == min(len(given_strata), size)


def test_a_canary_is_one_percent_and_at_least_five():
    assert [canary_size(letters) for letters in (0, 3, 5, 400, 501, 20_000)] == [0, 3, 5, 5, 6, 200]


def test_a_large_stratum_gets_more_of_the_canary():
    picked = pick_canary([Stratum("f", "small", 100), Stratum("f", "large", 900)])

    assert {each.tenant: each.letters for each in picked} == {"large": 8, "small": 2}
