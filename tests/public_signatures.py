"""Which of Tidegate's classes the public signatures name, found by their type hints."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any

import tidegate

MADE_BY_TIDEGATE = frozenset(
    {
        *(
            "Admin",
            "ApprovalAdmin",
            "DeadLetterAdmin",
            "DoubtAdmin",
            "FailureAdmin",
            "FunctionAdmin",
            "MapAdmin",
            "OperationAdmin",
            "QueueAdmin",
            "ScheduleAdmin",
            "TaskAdmin",
            "UpstreamAdmin",
            "WorkerAdmin",
        ),
        *("ConfiguredTaskFunction", "Context", "EmbeddedWorker", "Handle", "ManualCall"),
        *("MapHandle", "MapResult", "PreparedTask", "TaskFunction", "Upstream", "UpstreamTransport"),
    }
)
"""Users get these and never construct them; what their constructors take is internal."""
INTERNAL = {
    "CallLog": "of Context.calls, where the transports note their calls",
    "CallResult": "of ManualCall.end, by which the end of the block settles the call",
    "LimitDeclaration": "of Upstream.declared and with_keys, for the store",
    "NewTask": "of PreparedTask.new_task, the row that will be stored",
    "OtherTask": "of Context.gather, what it uses of a Handle",
    "PermitSource": "of Upstream.permits, for the transports",
    "TaskReference": "of EnqueueOptions.after, the base of the handles that it takes",
    "Signature": "of TaskFunction.signature, for workers and the HTTP API",
}
"""Classes that public signatures name and that users need not, with the reason."""


def classes_in_public_signatures(
    made_by_tidegate: frozenset[str], package: types.ModuleType = tidegate
) -> dict[type, list[str]]:
    """Return each class of Tidegate that a public signature of a package names, with the places that name it.

    Args:
        made_by_tidegate: Public classes that users get and never construct: their `__init__` is skipped.
        package: The package whose public names are read.
    """
    found: dict[type, list[str]] = {}
    for place, documented in _documented(made_by_tidegate, package):
        for name, hint in typing.get_type_hints(documented, localns=_names_for_checkers(documented)).items():
            if name.startswith("_"):
                continue
            for each in _classes_of(hint):
                if each.__module__.partition(".")[0] == "tidegate":
                    found.setdefault(each, []).append(f"{place}: {name}")
    return found


def _documented(made_by_tidegate: frozenset[str], package: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield what has type hints: public functions, classes (for their fields), methods and properties."""
    for name in package.__all__:
        public = getattr(package, name)
        if inspect.isfunction(public):
            yield name, public
        if not isinstance(public, type):
            continue
        yield name, public
        for member in dir(public):
            is_constructor = member == "__init__" and name not in made_by_tidegate
            if member.startswith("_") and not is_constructor and member not in ("__call__", "__aenter__"):
                continue
            function = _function_of(inspect.getattr_static(public, member))
            if function is not None and function.__module__.partition(".")[0] == "tidegate":
                yield f"{name}.{member}", function


def _function_of(member: Any) -> types.FunctionType | None:
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    elif isinstance(member, property):
        member = member.fget
    elif isinstance(member, functools.cached_property):
        member = member.func
    return member if inspect.isfunction(member) else None


@functools.cache
def _names_of_module(module: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for imported in (each for each in node.body if isinstance(each, ast.ImportFrom)):
                source = importlib.import_module(str(imported.module))
                names |= {each.asname or each.name: getattr(source, each.name) for each in imported.names}
            for whole in (each for each in node.body if isinstance(each, ast.Import)):
                names |= {
                    each.asname or each.name: importlib.import_module(each.name) for each in whole.names
                }
    return names


def _names_for_checkers(documented: Any) -> dict[str, Any]:
    """Return what the module imports under `if TYPE_CHECKING:`, which its hints may name."""
    return _names_of_module(documented.__module__)


def _classes_of(hint: Any) -> Iterator[type]:
    """Yield each class in a hint, those inside `list[…]`, `X | None` and `Callable[[…], …]` too."""
    origin = typing.get_origin(hint)
    if origin is None and isinstance(hint, type):
        yield hint
    elif isinstance(origin, type):
        yield origin
    for part in typing.get_args(hint):
        for each in part if isinstance(part, list) else [part]:
            yield from _classes_of(each)
