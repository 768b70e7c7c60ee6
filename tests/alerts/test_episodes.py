"""Each episode has one alert and one end, for any values."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.alerts.episodes import Changes, apply_pass
from tidegate.alerts.rule_settings import RuleSettings
from tidegate.alerts.rules import Measurement
from tidegate.store.alert_rows import ANY, AlertMute, Episode, EpisodeState, Severity

STEP, GAP = 15.0, 60.0
RULE = RuleSettings(100.0, hold_seconds=60.0, clear_seconds=45.0)
MUTE = AlertMute("depth", ANY, None, 0.0, "ada", "")


class Passes:
    """Passes over one subject of one rule, with the state that the store would keep."""

    def __init__(self, rule: RuleSettings = RULE) -> None:
        self.rules = {"depth": rule}
        self.mutes: list[AlertMute] = []
        self.now = 1_000.0
        self.current: dict[str, Episode] = {}
        self.sent: list[tuple[float, str, Episode]] = []
        self._ids = (f"e{number}" for number in itertools.count(1))

    def step(self, value: float | None, *, after: float = STEP, runs: float = math.inf) -> Changes:
        """Make the next pass."""
        self.now += after
        found = {} if value is None else {("depth", "main"): Measurement("main", value, runs=runs)}
        changes = apply_pass(
            list(self.current.values()),
            found,
            rules=self.rules,
            mutes=self.mutes,
            now=self.now,
            longest_gap=GAP,
            make_id=lambda: next(self._ids),
        )
        for episode in changes.saved:
            self.current[episode.id] = episode
        for episode in (*changes.dropped, *(each for each in changes.saved if each.ended_at is not None)):
            self.current.pop(episode.id, None)
        self.sent += [(self.now, "opened", each) for each in changes.opened]
        self.sent += [(self.now, "ended", each) for each in changes.ended]
        return changes

    def steps(self, value: float | None, count: int) -> None:
        for _ in range(count):
            self.step(value)

    @property
    def words(self) -> list[str]:
        return [word for _, word, _ in self.sent]


def test_an_alert_opens_once_its_condition_has_held_for_long_enough() -> None:
    passes = Passes()
    passes.steps(101.0, 4)
    assert passes.words == []
    passes.step(150.0)
    ((at, word, episode),) = passes.sent
    assert (at, word) == (1_075.0, "opened")
    assert (episode.first_at, episode.opened_at, episode.value, episode.threshold) == (
        1_015.0,
        1_075.0,
        150.0,
        100.0,
    )
    passes.steps(500.0, 100)
    assert passes.words == ["opened"]


def test_a_condition_that_pauses_starts_again() -> None:
    passes = Passes()
    for _ in range(10):
        passes.steps(101.0, 4)
        passes.step(100.0)
    assert passes.words == []
    assert passes.current == {}


def test_a_value_that_moves_around_the_limit_opens_one_alert() -> None:
    passes = Passes()
    passes.steps(101.0, 5)
    for value in (99.0, 101.0, 81.0, 110.0, 80.0, 105.0) * 20:
        passes.step(value)
    assert passes.words == ["opened"]
    passes.steps(80.0, 4)
    assert passes.words == ["opened", "ended"]
    assert passes.current == {}


def test_a_subject_that_is_gone_counts_as_calm() -> None:
    passes = Passes()
    passes.steps(math.inf, 5)
    passes.steps(None, 4)
    assert passes.words == ["opened", "ended"]
    assert passes.sent[1][2].value == math.inf


def test_a_value_from_too_few_runs_opens_nothing() -> None:
    passes = Passes(replace(RULE, hold_seconds=0.0, minimum=20))
    passes.step(900.0, runs=19)
    assert passes.words == []
    passes.step(900.0, runs=20)
    assert passes.words == ["opened"]


def test_the_time_without_passes_proves_nothing() -> None:
    passes = Passes()
    passes.step(101.0)
    passes.step(101.0, after=3_600.0)
    assert passes.words == []
    passes.steps(101.0, 4)
    assert passes.words == ["opened"]
    passes.step(1.0)
    passes.step(1.0, after=3_600.0)
    assert passes.words == ["opened"]
    passes.steps(1.0, 3)
    assert passes.words == ["opened", "ended"]


def test_a_clock_that_is_set_back_starts_the_time_again() -> None:
    passes = Passes()
    passes.steps(101.0, 4)
    passes.step(101.0, after=-500.0)
    passes.steps(101.0, 3)
    assert passes.words == []
    passes.step(101.0)
    assert passes.words == ["opened"]


def test_a_muted_alert_is_sent_when_the_mute_ends_if_it_is_still_open() -> None:
    passes = Passes()
    passes.mutes = [MUTE]
    passes.steps(101.0, 10)
    assert passes.words == []
    passes.mutes = []
    passes.step(101.0)
    assert passes.words == ["opened"]


def test_the_end_of_an_alert_that_was_never_sent_is_not_sent() -> None:
    passes = Passes()
    passes.mutes = [MUTE]
    passes.steps(101.0, 10)
    passes.steps(1.0, 10)
    passes.mutes = []
    passes.steps(1.0, 2)
    assert passes.words == []


def test_the_end_of_an_alert_that_was_sent_is_sent_although_it_is_muted() -> None:
    passes = Passes()
    passes.steps(101.0, 5)
    passes.mutes = [MUTE]
    passes.steps(1.0, 5)
    assert passes.words == ["opened", "ended"]


def test_an_alert_of_a_rule_that_is_turned_off_or_unknown_ends() -> None:
    for rules in ({"depth": replace(RULE, is_enabled=False)}, {}):
        passes = Passes()
        passes.steps(101.0, 5)
        passes.rules = rules
        passes.step(101.0)
        assert passes.words == ["opened", "ended"]


def test_one_subject_can_have_settings_of_its_own() -> None:
    own = replace(RULE, limit=1_000.0, severity=Severity.CRITICAL)
    passes = Passes(replace(RULE, subjects={"main": own}))
    passes.steps(999.0, 10)
    assert passes.words == []
    passes.steps(1_001.0, 5)
    assert passes.sent[0][2].severity is Severity.CRITICAL


def test_what_is_usual_can_raise_the_limit() -> None:
    found = {("depth", "main"): Measurement("main", 150.0, least_limit=200.0)}
    changes = apply_pass(
        [], found, rules={"depth": RULE}, mutes=[], now=0.0, longest_gap=GAP, make_id=lambda: "e1"
    )
    assert changes.saved == []


VALUES = st.one_of(
    st.none(), st.sampled_from([0.0, 79.9, 80.0, 80.1, 100.0, 100.1, math.inf]), st.floats(0.0, 200.0)
)
GAPS = st.sampled_from([STEP, STEP, STEP, STEP, GAP, GAP + 1.0, 5_000.0, -100.0])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(VALUES, GAPS, st.booleans()), max_size=80),
    st.sampled_from([0.0, 30.0, 60.0]),
    st.sampled_from([0.0, 45.0]),
)
def test_openings_and_ends_alternate_and_never_come_early(
    steps: list[tuple[float | None, float, bool]], hold: float, clear: float
) -> None:
    passes = Passes(replace(RULE, hold_seconds=hold, clear_seconds=clear))
    held_since: float | None = None
    for value, gap, is_muted in steps:
        passes.mutes = [MUTE] if is_muted else []
        changes = passes.step(value, after=gap)
        holds = value is not None and value > 100.0
        continues = holds and held_since is not None and 0.0 <= gap <= GAP
        held_since = held_since if continues else (passes.now if holds else None)
        just_opened = [each for each in changes.saved if each.opened_at == passes.now]
        for episode in just_opened:
            assert held_since is not None
            assert passes.now - held_since >= hold
            assert episode.first_at == held_since
        assert len(passes.current) <= 1
        assert not (changes.opened and is_muted)
    words = passes.words
    assert words == ["opened", "ended"] * (len(words) // 2) + ["opened"] * (len(words) % 2)
    by_id = [episode.id for _, _, episode in passes.sent]
    assert all(by_id.count(each) <= 2 for each in by_id)


@pytest.mark.parametrize("state", [EpisodeState.PENDING, EpisodeState.OPEN])
def test_a_pass_that_is_made_again_changes_nothing_more(state: EpisodeState) -> None:
    passes = Passes()
    passes.steps(101.0, 3 if state is EpisodeState.PENDING else 6)
    before = dict(passes.current)
    passes.step(101.0, after=0.0)
    assert passes.current == before
