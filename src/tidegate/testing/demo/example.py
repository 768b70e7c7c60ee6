"""Finds the example that the demo runs, and makes its work: which texts are summarised, and for whom."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tidegate.errors import ConfigError
from tidegate.testing.provider.settings import POLICY_MARKER

MODULE = "summarise_example"
"""The name under which the example is imported here and in the worker: its tasks are named by it."""

LEDGER_VARIABLE = "TIDEGATE_DEMO_LEDGER"
"""Tells the demo's worker the file for the notes of its bodies."""

_AUDIENCES = (
    "a busy reader",
    "a child of ten",
    "a newspaper's front page",
    "somebody who knows the subject",
    "a museum label",
    "a reader who has just learned English",
)
_FEWEST_WORDS, _MORE_WORDS = 30, 10


@dataclass(frozen=True, slots=True)
class SummaryJob:
    """One text to summarise; no two jobs ask the provider for the same thing."""

    path: str
    audience: str
    parts: int
    refused: bool
    """Whether the provider's content policy forbids the text."""


def example_directory() -> Path:
    """Return the directory of the example: in an installed package its copy, else that of the checkout.

    Raises:
        ConfigError: Neither is there.
    """
    inside = Path(__file__).parent / "summarise"
    checkout = Path(__file__).parents[4] / "examples" / "summarise"
    for directory in (inside, checkout):
        if (directory / "app.py").is_file():
            return directory
    raise ConfigError(
        f"the example that the demo runs is missing: neither {inside} nor {checkout} is there",
        fix="install tidegate again, or run the demo from a whole checkout",
    )


def load_example() -> ModuleType:
    """Import the example's application afresh. Its store is not opened by this."""
    path = example_directory() / "app.py"
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def make_jobs(count: int) -> list[SummaryJob]:
    """Return that many different jobs over all texts, in an order that mixes them, the same every time."""
    jobs = [job for job, _ in zip(_all_jobs(), range(count), strict=False)]
    random.Random(count).shuffle(jobs)
    return jobs


def _all_jobs() -> Iterator[SummaryJob]:
    paths = sorted((example_directory() / "texts").glob("*.txt"))
    refused = {path: POLICY_MARKER in path.read_text("utf-8") for path in paths}
    parts = _FEWEST_WORDS
    while True:
        for audience in _AUDIENCES:
            for path in paths:
                yield SummaryJob(str(path), audience, parts, refused[path])
        parts += _MORE_WORDS
