"""Signatures as their source has them."""

from __future__ import annotations

import enum
import inspect
import re
import typing
from typing import Any

from tests.public_signatures import INTERNAL

WIDTH = 68
"""The longest list of parameters in one line."""


def signature_of(function: Any) -> str:
    """Return the parameters and the result of a function as its source has them, without `self`."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    shown, kinds = list[str](), inspect.Parameter
    for index, each in enumerate(parameters):
        before = parameters[index - 1].kind if index else None
        if before is kinds.POSITIONAL_ONLY and each.kind is not kinds.POSITIONAL_ONLY:
            shown.append("/")
        if each.kind is kinds.KEYWORD_ONLY and before not in (kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL):
            shown.append("*")
        shown.append(_parameter(each))
    returns = signature.return_annotation
    if returns in (inspect.Signature.empty, "None"):
        returns = ""
    end = f" -> {type_text(returns)}" if returns else ""
    line = f"({', '.join(shown)}){end}"
    if len(line) <= WIDTH or not shown:
        return line
    return "(\n" + "".join(f"    {each},\n" for each in shown) + f"){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = f"{stars.get(parameter.kind, '')}{parameter.name}"
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {type_text(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        is_usual = type(value).__name__ in INTERNAL
        return "..." if is_usual else f"{type(value).__name__}.{value.name}"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def type_text(hint: Any) -> str:
    """Return an annotation as its source has it, without modules and internal alternatives."""
    if isinstance(hint, typing.ForwardRef):
        hint = hint.__forward_arg__
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    return without_modules(text).replace('"', "")


def without_modules(text: str) -> str:
    """Return the text of a type with `tidegate.context.Progress` as `Progress`."""
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)
