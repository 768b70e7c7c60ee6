"""Find the example that the demo runs, and make its jobs: which texts to summarise, and for whom."""

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
"""The module name of the example, here and in the worker. The task functions of the module are named after
it."""

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
    """One text to summarise. No two jobs send the provider the same request."""

    path: str
    audience: str
    parts: int
    refused: bool
    """Whether the provider's content policy forbids the text."""


def example_directory() -> Path:
    """Return the directory of the example: its copy in an installed package, else the one in the checkout.

    Raises:
        ConfigError: Neither exists.
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
    """Import a new instance of the example's application, without opening its store."""
    path = example_directory() / "app.py"
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def make_jobs(count: int) -> list[SummaryJob]:
    """Return `count` different jobs over all texts, in the same shuffled order every time."""
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
