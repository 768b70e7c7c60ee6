"""The part of Celery that a page shows."""

from collections.abc import Callable
from typing import Any

class Celery:
    def __init__(self, main: str, *, broker: str = ..., backend: str = ...) -> None: ...
    def task(self, **options: Any) -> Callable[[Callable[..., Any]], Any]: ...
