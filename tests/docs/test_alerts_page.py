"""The page about alerts has every rule, with its settings and a section on what to do."""

from __future__ import annotations

import re
import shlex

import pytest
from known_commands import require_known
from pages import ROOT, table_rows

from tidegate.alerts.rule_settings import RULE_KEYS
from tidegate.alerts.rules import RULES, Rule

PAGE = ROOT / "docs" / "how-to" / "alerts.md"


def test_the_table_has_every_rule_with_its_times_and_severity() -> None:
    rows = {row[0]: row for row in table_rows(PAGE, under="## Rules")[1:] if "](#" in row[0]}

    assert list(rows) == [f"[`{name}`](#{name})" for name in RULES]
    for name, rule in RULES.items():
        _, about, _, hold, clear, severity = rows[f"[`{name}`](#{name})"]
        assert severity == rule.defaults.severity
        assert _seconds(hold) == rule.defaults.hold_seconds
        assert _seconds(clear) == rule.defaults.clear_seconds
        assert str(rule.about) in (about, *about.split(" or ")) or name in (
            "retry_budget",
            "connections",
            "unserved",
        )


def test_every_setting_of_a_rule_is_on_the_page() -> None:
    keys = [row[0].strip("`") for row in table_rows(PAGE, under="## Rules")[1:] if len(row) == 2]

    assert sorted(keys) == sorted(("key", *RULE_KEYS))


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_each_rule_has_a_section_that_says_what_it_means_and_what_to_do(rule: Rule) -> None:
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {rule.name}\n")[2].partition("\n## ")[0]

    for word in ("**Means:**", "**Look at**", "**Do:**"):
        assert word in section
    for line in re.findall(r"`(tidegate [^`]+)`", section):
        require_known(shlex.split(line)[1:], line)


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_the_command_of_an_alert_exists(rule: Rule) -> None:
    line = rule.show_command("a queue; rm -rf $HOME")
    words = shlex.split(line)

    require_known(words[1:], line)
    assert "{subject}" not in rule.command or "a queue; rm -rf $HOME" in words


def _seconds(text: str) -> float:
    return 60.0 * float(text.removesuffix(" min")) if text else 0.0
