"""Results: encoded like arguments, but a result that cannot be stored does not make the task fail."""

from __future__ import annotations

from dataclasses import dataclass
from types import CoroutineType
from typing import Any, NamedTuple

import msgspec

from tidegate.codec.decode import loads
from tidegate.codec.encode import dumps, type_name
from tidegate.codec.shape import LIMIT_BYTES, Shape, too_large
from tidegate.codec.tags import TAG, TAG_MARK, tagged
from tidegate.errors import ArgumentsError, TidegateError

_UNSTORABLE = "unstorable"
_AS_IS = "as-is"
_REASON_LENGTH = 500
_FREE = Shape()


@dataclass(frozen=True, slots=True)
class Unstorable:
    """Replaces a result that could not be stored. The task succeeded, and its function is not run again."""

    type_name: str
    """The type of the value that the function returned."""
    reason: str
    """Why the value could not be stored, with the place in the value."""


class EncodedResult(NamedTuple):
    """The encoded result of a function that returned."""

    data: bytes
    """The encoded result, or a stand-in. The stand-in is not larger than the limit, unless the limit is very
    small."""
    stored: bool
    """False if `data` is a stand-in that decodes to `Unstorable`."""
    note: str = ""
    """Why the data is a stand-in, for the history and the log; empty if the result itself is stored."""
    other_type: str = ""
    """The type of a stored value that does not fit the return annotation; empty if it fits."""


def encode_result(shape: Shape, value: Any, limit: int = LIMIT_BYTES) -> EncodedResult:
    """Return the bytes of a function's result. Never raises, because the work is already done.

    A value that does not fit the return annotation is encoded without the annotation if possible. A value
    that cannot be encoded is replaced by a stand-in with its type and the reason.

    Args:
        shape: The return annotation.
        value: The returned value.
        limit: The most bytes of the result.
    """
    try:
        usual = shape.encode_usual(value, limit)
        if usual is not None and len(usual) <= limit:
            return EncodedResult(usual, stored=True)
        data, fits = _encode(shape, value, limit)
        return EncodedResult(data, stored=True, other_type="" if fits else type_name(value))
    except BaseException as error:  # reading a value can raise anything
        if type(value) is CoroutineType:
            value.close()  # else Python would also warn that it was not awaited, which the reason states
        if isinstance(error, TidegateError):
            return _stand_in(type_name(value), f"{error.message}; {error.fix}")
        return unencodable(value, error)


def unencodable(value: Any, fault: BaseException) -> EncodedResult:
    """Return the stand-in for a value whose encoding raised this error."""
    return _stand_in(type_name(value), f"{type(fault).__name__} while encoding")


def _encode(shape: Shape, value: Any, limit: int) -> tuple[bytes, bool]:
    """Return the bytes, and whether the value fits the annotation."""
    try:
        return shape.encode(value, path="result", limit=limit), True
    except ArgumentsError as error:
        if error.limit is not None:
            raise
    free = _FREE.encode(value, path="result", limit=limit)
    data = dumps(tagged(_AS_IS, msgspec.Raw(free)))
    if len(data) > limit:
        raise too_large("result", len(data), limit)
    return data, False


def _stand_in(name: str, reason: str) -> EncodedResult:
    reason = reason[:_REASON_LENGTH]
    data = dumps(tagged(_UNSTORABLE, [name, reason]))
    return EncodedResult(data, stored=False, note=f"result not stored: {reason}")


def load_result(shape: Shape, data: bytes) -> Any:
    """Return the value that the function returned, or an `Unstorable`.

    Args:
        shape: The current return annotation; `Shape()` if the function is unknown.
        data: The bytes that `encode_result` returned.

    Raises:
        ArgumentsError: The bytes do not fit the current annotation.
    """
    if TAG_MARK not in data:
        return shape.decode(data, path="result")
    tree = loads(data)
    name = tree.get(TAG) if isinstance(tree, dict) else None
    if name == _UNSTORABLE:
        return Unstorable(*tree["v"])
    if name == _AS_IS:
        return _FREE.decode(msgspec.json.encode(tree["v"]), path="result")
    return shape.decode(data, path="result")
