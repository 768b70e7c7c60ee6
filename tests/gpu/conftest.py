"""The fixtures of the tests that need an NVIDIA GPU. Without one each is skipped with the reason."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cuda import missing_gpu
from support import load_app


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def gpu() -> None:
    """Skip the test if there is no GPU, or no library to read its memory."""
    if reason := missing_gpu():
        pytest.skip(reason)
    if find_spec("pynvml") is None:
        pytest.skip("nvidia-ml-py is not installed: pip install 'tidegate[gpu]'")


@pytest.fixture
def client(gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `apps/on_gpu.py`."""
    return load_app("on_gpu", tmp_path, monkeypatch)
