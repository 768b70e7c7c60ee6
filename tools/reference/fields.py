"""The strings that stand below fields and assignments, as type checkers and editors read them."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Iterator


@functools.cache
def docstrings_of_module(module: str) -> dict[str, str]:
    """Return the strings that stand below the assignments of a module, by the name assigned."""
    source = inspect.getsource(__import__(module, fromlist=["_"]))
    return dict(strings_below(ast.parse(source).body))


@functools.cache
def docstrings_of_class(kind: type) -> dict[str, str]:
    """Return the strings that stand below the fields of a class, by the field's name."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return dict(strings_below(definition.body))


def strings_below(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield each name that a statement assigns and the string below it."""
    for statement, below in itertools.pairwise(body):
        if not (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)):
            continue
        if not isinstance(below.value.value, str):
            continue
        for name in assigned(statement):
            yield name, inspect.cleandoc(below.value.value)


def assigned(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement assigns: `name = …`, `name: int`, `self.name = …`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, ast.Attribute):
            yield target.attr
