"""Reads a task function's parameters and annotations, and refuses functions that cannot be tasks."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.codec.encode import type_name
from tidegate.codec.shape import Shape
from tidegate.domain.text import counted, redacted_text
from tidegate.errors import ConfigError

KEYWORD_ONLY_AT = 1_000_000
"""The position of keyword-only parameters, which no positional argument reaches."""

_LONGEST_LIST = 400
"""A list of arguments in an error is cut to this many characters."""

_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that callers see."""

    name: str
    shape: Shape
    """The annotation of the parameter; for `*args` and `**kwargs` the annotation of one item."""
    at: int
    """The index among the positional parameters, or `KEYWORD_ONLY_AT`."""
    nameable: bool
    """Whether the parameter can be passed by name."""
    required: bool


@dataclass(frozen=True, slots=True)
class Declaration:
    """A task function's parameters and return annotation, without the context parameter."""

    name: str
    """`module:qualname`."""
    text: str
    """The signature as callers see it: `(doc: Doc, *, name: str = 'x') -> Summary`."""
    positional: tuple[Parameter, ...]
    by_name: Mapping[str, Parameter]
    rest: Parameter | None
    """`*args`."""
    others: Parameter | None
    """`**kwargs`."""
    returns: Shape
    context: str | None
    """The name of the parameter that takes the context; None if there is none."""
    context_at: int
    """How many positional parameters come before the context."""


def read_declaration(
    function: Callable[..., Any], *, injected: type | None, namespace: Mapping[str, Any]
) -> Declaration:
    """Return the declaration of `function`.

    Raises:
        ConfigError: The value is not a plain function, or an annotation cannot be resolved.
    """
    require_plain_function(function)
    hints = _Hints(function, injected, namespace)
    listed = list(inspect.signature(function).parameters.values())
    takers = [item for item in listed if injected is not None and _is_injected(hints.of(item.name), injected)]
    context = takers[0] if takers else None
    if len(takers) > 1 or (context and context.kind not in _NAMED_KINDS):
        raise ConfigError(
            f"{hints.function_name} takes its context in a way that is not supported",
            function=hints.function_name,
            fix=f"use one parameter for it, as in `ctx: {injected.__name__ if injected else ''}`",
        )
    visible = [item for item in listed if item is not context]
    made = [(item, _parameter(item, at, hints)) for at, item in enumerate(visible)]
    return Declaration(
        name=hints.function_name,
        text=_text(visible, hints),
        positional=tuple(parameter for item, parameter in made if item.kind in _POSITIONAL_KINDS),
        by_name={item.name: parameter for item, parameter in made if item.kind in _NAMED_KINDS},
        rest=next((parameter for item, parameter in made if item.kind is item.VAR_POSITIONAL), None),
        others=next((parameter for item, parameter in made if item.kind is item.VAR_KEYWORD), None),
        returns=hints.shape("return", hints.of("return")),
        context=context.name if context else None,
        context_at=listed.index(context)
        if context and context.kind in _POSITIONAL_KINDS
        else KEYWORD_ONLY_AT,
    )


def faults_of_call(declaration: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why these arguments do not match the parameters. The text has names and types, never values."""
    given, count = len(args), len(declaration.positional)
    takers = {p.name: p for p in declaration.positional} | dict(declaration.by_name)
    faults = [f"missing {n}" for n, p in takers.items() if p.required and p.at >= given and n not in kwargs]
    faults += [f"unexpected {n}" for n in kwargs if n not in takers and not _takes_other(declaration, n)]
    faults += [f"{n} given twice" for n, p in declaration.by_name.items() if n in kwargs and p.at < given]
    faults += [
        f"{p.name} given by name" for p in declaration.positional if not p.nameable and p.name in kwargs
    ]
    if given > count and declaration.rest is None:
        faults.append(f"{counted(given, 'positional argument')}, but it takes {count or 'none'}")
    shown = [_type_shown(value) for value in args]
    shown += [f"{name}: {_type_shown(value)}" for name, value in kwargs.items()]
    return f"{_cut(', '.join(faults))}; given ({_cut(', '.join(shown))})"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LIST else f"{text[: _LONGEST_LIST - 1]}…"


def _takes_other(declaration: Declaration, name: str) -> bool:
    return declaration.others is not None and name != declaration.context


def _type_shown(value: Any) -> str:
    return "…" if isinstance(value, msgspec.Raw) else type_name(value)  # stored bytes are not decoded yet


def require_plain_function(function: Callable[..., Any]) -> None:
    """Refuse a callable that a worker cannot find by name and call.

    Raises:
        ConfigError: The value is not a plain `def` or `async def`.
    """
    fault = _fault(function)
    if fault:
        shown = getattr(function, "__qualname__", None) or repr(type(function))
        raise ConfigError(
            f"{shown} cannot be a task function: {fault}",
            fix="declare a plain `def` or `async def`",
            function=shown,
        )


def _fault(function: Any) -> str:
    if isinstance(function, functools.partial):
        return "it is a functools.partial, which another process cannot find by name"
    if inspect.ismethod(function) or isinstance(function, classmethod | staticmethod):
        return "it is a method"
    if inspect.isclass(function):
        return "it is a class"
    if not inspect.isfunction(function):
        return f"it is not a Python function but a {type(function).__name__}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "it is a generator, which returns no value"
    first = next(iter(inspect.signature(function).parameters), "")
    owner = function.__qualname__.rpartition(".")[0]
    if owner and not owner.endswith("<locals>") and first in ("self", "cls"):
        return "it is a method, and there is no instance to call it on"
    return ""


class _Hints:
    """The annotations of one function, resolved one by one so that an error can name the faulty one."""

    def __init__(
        self, function: Callable[..., Any], injected: type | None, namespace: Mapping[str, Any]
    ) -> None:
        declared = inspect.unwrap(function)
        self.function_name = f"{declared.__module__}:{declared.__qualname__}"
        self._annotations = inspect.get_annotations(declared)
        self._globals = getattr(declared, "__globals__", {})
        self._names = dict(namespace)
        if injected is not None and injected.__name__ not in self._globals:
            self._names.setdefault(injected.__name__, injected)  # it may be imported for type checkers only

    def of(self, name: str) -> Any:
        """Return the annotation of a parameter (or of `return`); `Any` if there is none."""
        if name not in self._annotations:
            return Any
        written = self._annotations[name]
        try:
            return typing.get_type_hints(
                types.SimpleNamespace(__annotations__={name: written}),
                globalns=self._globals,
                localns=self._names,
                include_extras=True,
            )[name]
        except Exception as error:  # an annotation is code and can raise anything
            raise self._unusable(name, written, error) from error

    def shape(self, name: str, hint: Any) -> Shape:
        """Return the shape of an annotation found under `name`."""
        try:
            return Shape(hint)
        except Exception as error:  # a class whose own annotations cannot be resolved
            raise self._unusable(name, hint, error) from error

    def _unusable(self, name: str, hint: object, error: Exception) -> ConfigError:
        shown = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        place = "return annotation" if name == "return" else f"annotation of {name}"
        return ConfigError(
            f"the {place} of {self.function_name}, {shown}, cannot be resolved ({error})",
            fix="import what it names at module level, outside `if TYPE_CHECKING`",
            function=self.function_name,
            parameter=name,
        )


def _is_injected(hint: Any, injected: type) -> bool:
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    others = [member for member in members if member is not injected]
    return len(others) < len(members) and all(other is type(None) for other in others)


def _parameter(item: inspect.Parameter, at: int, hints: _Hints) -> Parameter:
    hint = hints.of(item.name)
    if item.default is None and hint is not Any:
        hint = typing.Optional[hint]  # noqa: UP045 - `x: int = None` is common, and `|` refuses some hints
    variable = item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
    return Parameter(
        name=item.name,
        shape=hints.shape(item.name, hint),
        at=at if item.kind in _POSITIONAL_KINDS else KEYWORD_ONLY_AT,
        nameable=item.kind in _NAMED_KINDS,
        required=item.default is item.empty and not variable,
    )


_LONGEST_DEFAULT = 100


class _Default:
    """A default value for display: cut, and without secrets."""

    def __init__(self, name: str, value: object) -> None:
        text = redacted_text(f"{name}={value!r}", len(name) + 1 + _LONGEST_DEFAULT)
        self._text = text[len(name) + 1 :]

    def __repr__(self) -> str:
        return self._text


def _text(visible: list[inspect.Parameter], hints: _Hints) -> str:
    shown = [
        item.replace(
            annotation=item.empty if item.annotation is item.empty else hints.of(item.name),
            default=item.empty if item.default is item.empty else _Default(item.name, item.default),
        )
        for item in visible
    ]
    returns = hints.of("return")
    return str(
        inspect.Signature(shown, return_annotation=inspect.Signature.empty if returns is Any else returns)
    )
