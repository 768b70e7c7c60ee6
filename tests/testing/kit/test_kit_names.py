"""What `tidegate.testing` exports, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidegate
from public_signatures import classes_in_public_signatures
from tidegate import testing

MADE_BY_TIDEGATE = frozenset({"Drained", "DrainedRun", "EnqueuedTask", "ScriptedRequest"})
"""Users get these and never construct them."""
INTERNAL = {"Step": "of ScriptedUpstream.take, for its transport"}
"""Classes that public signatures name and that users need not, with the reason."""


def test_every_public_name_exists() -> None:
    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name
    assert set(testing._HOMES) == set(testing.__all__)
    with pytest.raises(AttributeError, match="Kitt"):
        _ = testing.Kitt  # type: ignore[attr-defined]


def test_every_class_in_a_public_signature_is_exported() -> None:
    public = {
        getattr(package, name)
        for package in (tidegate, testing)
        for name in package.__all__
        if name != "__version__"
    }
    named = classes_in_public_signatures(MADE_BY_TIDEGATE, testing)
    hidden = {each.__name__: places for each, places in named.items() if each not in public}
    assert {name: places for name, places in hidden.items() if name not in INTERNAL} == {}
    assert set(INTERNAL) == set(hidden), "the list of internal classes names one that is not met any more"


@pytest.mark.parametrize("module", ["tidegate", "tidegate.app", "tidegate.testing.pytest_plugin"])
def test_importing_it_does_not_import_the_kit(module: str) -> None:
    code = f"import sys, {module}; print([name for name in sys.modules if name.startswith('tidegate.testing.kit')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
