"""What `import tidegate` gives, and what it must not cost."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidegate
from public_signatures import INTERNAL, MADE_BY_TIDEGATE, classes_in_public_signatures
from tidegate import errors, verdicts

HEAVY = [
    "asyncio",
    "apsw",
    "msgspec",
    "click",
    "tomllib",
    "starlette",
    "uvicorn",
    "httpx2",
    "rich",
    "sqlite3",
    "dataclasses",
    "inspect",
]


def test_every_public_name_exists_and_has_a_module() -> None:
    for name in tidegate.__all__:
        assert getattr(tidegate, name) is not None
    assert set(tidegate._HOMES) == set(tidegate.__all__) - {"__version__"}
    assert dir(tidegate) == sorted(tidegate.__all__)


def test_every_class_in_a_public_signature_is_exported() -> None:
    public = {getattr(tidegate, name) for name in tidegate.__all__ if name != "__version__"}
    named = classes_in_public_signatures(MADE_BY_TIDEGATE)
    hidden = {each.__name__: places for each, places in named.items() if each not in public}
    assert {name: places for name, places in hidden.items() if name not in INTERNAL} == {}
    assert set(INTERNAL) == set(hidden), "the list of internal classes names one that is not met any more"


def test_every_error_is_exported() -> None:
    raised = {
        name
        for module in (errors, verdicts)
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, BaseException)
        and value.__module__ == module.__name__
    }
    assert raised - set(tidegate.__all__) == set()


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Tidgate"):
        _ = tidegate.Tidgate  # type: ignore[attr-defined]


def test_an_application_shows_only_what_users_may_use() -> None:
    by_id = ["cancel", "history", "result", "status"]
    assert [name for name in dir(tidegate.Tidegate("sqlite:///never-opened.db")) if name[0] != "_"] == sorted(
        [
            *by_id,
            *(f"{name}_sync" for name in by_id),
            *(
                "aclose",
                "admin",
                "classifier",
                "close",
                "enqueue_many",
                "enqueue_many_sync",
                "function",
                "handle",
                "map_handle",
            ),
            "send_event",
            "send_event_sync",
            *(
                "on_child_start",
                "on_event",
                "on_load",
                "on_start",
                "on_stop",
                "schedule",
                "task",
                "upstream",
                "url",
                "worker",
            ),
        ]
    )


@pytest.mark.parametrize("module", HEAVY)
def test_importing_tidegate_does_not_load(module: str) -> None:
    code = f"import sys, tidegate; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-I", "-c", code], check=False).returncode == 0


def test_a_client_loads_no_driver_before_the_store_is_used() -> None:
    code = "import sys; from tidegate import Tidegate, Context, on; sys.exit('apsw' in sys.modules)"
    assert subprocess.run([sys.executable, "-I", "-c", code], check=False).returncode == 0
