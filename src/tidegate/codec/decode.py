"""Decodes bytes to values by annotation. Raises `ValueError` with the text "what - at `$.place`"."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import msgspec

from tidegate.codec import models
from tidegate.codec.tags import TAG_MARK, untag

loads = msgspec.json.Decoder().decode


class Decoder:
    """Decodes values of one annotation.

    Args:
        hint: The resolved annotation.

    Raises:
        TypeError: Values cannot be decoded by this annotation.
    """

    __slots__ = ("_hint", "decode")

    def __init__(self, hint: Any) -> None:
        self._hint = hint
        self.decode: Callable[[bytes | msgspec.Raw], Any] = msgspec.json.Decoder(
            hint, dec_hook=_from_json
        ).decode
        """Decode bytes that hold no type tags."""

    def decode_tagged(self, data: bytes) -> Any:
        """Return the value of bytes that may hold tags."""
        if TAG_MARK not in data:
            return self.decode(data)
        return msgspec.convert(untag(loads(data)), self._hint, dec_hook=_from_exact)


class FreeDecoder:
    """Decodes values without an annotation: plain JSON and tagged values."""

    __slots__ = ("decode",)

    def __init__(self) -> None:
        self.decode: Callable[[bytes | msgspec.Raw], Any] = loads
        """Decode bytes that hold no type tags."""

    def decode_tagged(self, data: bytes) -> Any:
        """Return the value of bytes that may hold tags."""
        return untag(loads(data)) if TAG_MARK in data else loads(data)


def _from_json(kind: Any, stored: Any) -> Any:
    return models.load(kind, stored, exact=False) if _is_model(kind) else _as_is(kind, stored)


def _from_exact(kind: Any, stored: Any) -> Any:
    return models.load(kind, stored, exact=True) if _is_model(kind) else _as_is(kind, stored)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and models.is_model(kind)


def _as_is(kind: Any, stored: Any) -> Any:
    # Abstract annotations (Iterable[int], Hashable) come here, and classes that cannot be decoded.
    origin = typing.get_origin(kind) or kind
    if isinstance(stored, origin):
        return stored
    raise ValueError(f"Expected `{getattr(kind, '__name__', kind)}`, got `{type(stored).__name__}`")
