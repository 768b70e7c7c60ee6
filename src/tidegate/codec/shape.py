"""Encodes and decodes values of one annotation, and guarantees that a decoded value equals the original.

A value is encoded in the form that the annotation reads. The encoded bytes are decoded immediately and
compared with the value. If they differ, the value is encoded with tags. If that differs too, the value is
refused. So either the run gets an equal value of the same type, or enqueue raises. Usual values skip the
comparison.
"""

from __future__ import annotations

import types
import typing
from typing import Any

from tidegate.codec.compare import Difference, difference
from tidegate.codec.decode import Decoder, FreeDecoder
from tidegate.codec.encode import TOO_LARGE_FIX, Flattener, dumps, is_plain, type_name
from tidegate.codec.paths import locate, relocate
from tidegate.errors import ArgumentsError

LIMIT_BYTES = 1_048_576
"""The default limit of a task's encoded arguments, and of its encoded result: 1 MiB."""

_SELF_EVIDENT = frozenset({str, int, bool, type(None)})
_FREE_HINTS = (Any, object)


class Shape:
    """An annotation with its decoder.

    Args:
        hint: The resolved annotation; `Any` (or `object`) if there is none.

    Attributes:
        exact: The types whose values fit this annotation without a check.
        trouble: Why values cannot be decoded by this annotation; empty if they can. With a trouble, the
            annotation is ignored.
        decode_untagged: Returns the value of bytes that contain no tag. Fast, but its errors are not meant
            for users.
    """

    __slots__ = ("_decoder", "_free", "decode_untagged", "exact", "hint", "trouble")

    def __init__(self, hint: Any = Any) -> None:
        self.hint = hint
        self.trouble = ""
        self._decoder: Decoder | FreeDecoder = FreeDecoder()
        if not any(hint is free for free in _FREE_HINTS):
            try:
                self._decoder = Decoder(hint)
            except TypeError as error:
                self.trouble = str(error)
        self.decode_untagged = self._decoder.decode
        self._free = isinstance(self._decoder, FreeDecoder)
        self.exact = _SELF_EVIDENT if self._free else _exact_types(hint)

    def encode(self, value: Any, *, path: str, limit: int = LIMIT_BYTES) -> bytes:
        """Return the bytes from which `decode` makes an equal value.

        Args:
            value: The value to encode.
            path: The value's name in errors: the parameter's name, or `result`.
            limit: The most bytes.

        Raises:
            ArgumentsError: The value cannot be stored, does not fit the annotation, would come back as
                another value, or is too large. `path` names the part.
        """
        data = self.encode_usual(value, limit) or self._carefully(value, path, limit)
        if len(data) > limit:
            raise too_large(path, len(data), limit)
        return data

    def decode(self, data: bytes, *, path: str) -> Any:
        """Return the value of bytes that `encode` returned, or that a person wrote as plain JSON.

        Raises:
            ArgumentsError: The bytes do not fit the current annotation. `path` names the place.
        """
        try:
            return self._decoder.decode_tagged(data)
        except Exception as error:  # constructors and validators are user code
            place, what = relocate(path, _described(error))
            fix = "pass a value that fits the annotation"
            raise ArgumentsError(f"{place}: {what}", fix=fix, path=place) from error

    def encode_usual(self, value: Any, limit: int) -> bytes | None:
        """Return the bytes of a usual value, which may be more than `limit`; None if `encode` must look."""
        if not is_plain(value, [limit]):
            return None
        try:
            data = dumps(value)
            if not self._free and type(value) not in self.exact:
                back = self._decoder.decode(data)
                if back != value or not is_plain(back, [limit]):  # an equal str may be an enum's member
                    return None
        except Exception:  # the slow path finds the place and the message
            return None
        return data

    def _carefully(self, value: Any, path: str, limit: int) -> bytes:
        refusal: ArgumentsError | None = None
        for exact in (True,) if self._free else (False, True):
            try:
                data = dumps(Flattener(path, exact=exact, limit=limit).flatten(value))
                self._require_same(value, data, path)
            except ArgumentsError as error:
                if error.limit is not None:  # tags would make it even larger
                    raise
                refusal = error
            except Exception as error:  # attributes, serializers and comparisons are user code
                refusal = _failed_on(path, value, error)
            else:
                return data
        assert refusal is not None
        raise refusal

    def _require_same(self, value: Any, data: bytes, path: str) -> None:
        found = difference(value, self.decode(data, path=path))
        if found is not None:
            raise self._would_change(found, path)

    def _would_change(self, found: Difference, root: str) -> ArgumentsError:
        path = locate(root, found.keys)
        before, after = type_name(found.before), type_name(found.after)
        changed = f"as a {after}" if before != after else "with another value"
        message = f"{path} (type {before}) would come back {changed}"
        place = "return type" if root == "result" else f"parameter {root}"
        if self.trouble:
            message += f", since its annotation cannot be decoded ({self.trouble})"
            fix = f"annotate the {place} with one class, or pass plain values"
        elif before == after:
            fix = "pass plain values, or give the class fields that hold all of its state"
        else:
            fix = f"annotate the {place} with {before} here, or pass a value that fits its annotation"
        return ArgumentsError(message, fix=fix, path=path, type=before)


def _failed_on(path: str, value: Any, error: Exception) -> ArgumentsError:
    message = f"{path} (type {type_name(value)}) failed while it was encoded ({type(error).__name__})"
    refusal = ArgumentsError(message, fix="see the cause", path=path, type=type_name(value))
    refusal.__cause__ = error
    return refusal


def too_large(path: str, size: int, limit: int) -> ArgumentsError:
    """Return the error for `size` encoded bytes when `limit` are allowed."""
    message = f"{path} takes {size:,} bytes; the limit is {limit:,} bytes"
    return ArgumentsError(message, fix=TOO_LARGE_FIX, path=path, size=size, limit=limit)


def encode(value: Any, *, path: str, hint: Any = Any, limit: int = LIMIT_BYTES) -> bytes:
    """Return the bytes of one value, as `Shape(hint).encode` does. Keep a `Shape` if speed matters.

    Raises:
        ArgumentsError: The value cannot be stored as it is.
    """
    return Shape(hint).encode(value, path=path, limit=limit)


def decode(data: bytes, *, path: str = "value", hint: Any = Any) -> Any:
    """Return the value that `encode` encoded with `hint`.

    Raises:
        ArgumentsError: The bytes do not fit `hint`.
    """
    return Shape(hint).decode(data, path=path)


def _exact_types(hint: Any) -> frozenset[Any]:
    origin = typing.get_origin(hint)
    members = typing.get_args(hint) if origin in (typing.Union, types.UnionType) else (hint,)
    kinds = frozenset(type(None) if member is None else member for member in members if _hashable(member))
    # In a union with other types, another member (a date for example) may also accept a str.
    return kinds if len(kinds) == len(members) and kinds <= _SELF_EVIDENT else frozenset()


def _hashable(member: Any) -> bool:
    return isinstance(member, type) or member is None


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
