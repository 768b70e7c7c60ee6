"""Results: stored like arguments, but a result that cannot be stored never undoes the work that made it."""

from __future__ import annotations

from dataclasses import dataclass
from types import CoroutineType
from typing import Any

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
    """Stands where a result should be that could not be stored. The task succeeded; its body ran once."""

    type_name: str
    """The type of what the body returned."""
    reason: str
    """Why it could not be stored, with the place."""


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """What to write for a body that returned."""

    data: bytes
    """The encoded result, or its stand-in; never larger than the limit where that is a sensible one."""
    stored: bool
    """False: `data` is a stand-in that decodes to `Unstorable`."""
    note: str = ""
    """Why it is a stand-in, for history and log; empty when stored."""
    other_type: str = ""
    """The type of a value that is stored although it is not what the return annotation says."""


def encode_result(shape: Shape, value: Any, limit: int = LIMIT_BYTES) -> EncodedResult:
    """Return the bytes for what a body returned. Raises nothing: the work is done, whatever it gave.

    A value that is not what the return annotation says is kept as it is, if it can be kept without one.
    One that cannot be kept is replaced by a stand-in with its type and the reason.

    Args:
        shape: The return annotation.
        value: What the body returned.
        limit: Bytes the result may take.
    """
    try:
        data, fits = _encode(shape, value, limit)
        return EncodedResult(data, stored=True, other_type="" if fits else type_name(value))
    except BaseException as error:  # a value may raise anything when it is looked at
        if type(value) is CoroutineType:
            value.close()  # the reason says it was not awaited; without this the collector would warn as well
        if isinstance(error, TidegateError):
            return _stand_in(type_name(value), f"{error.message}; {error.fix}")
        return unencodable(value, error)


def unencodable(value: Any, fault: BaseException) -> EncodedResult:
    """Return the stand-in for what a body returned where the encoding itself raised this fault."""
    return _stand_in(type_name(value), f"{type(fault).__name__} while encoding")


def _encode(shape: Shape, value: Any, limit: int) -> tuple[bytes, bool]:
    """Return the bytes, and whether the value is what the annotation says."""
    try:
        return shape.encode(value, path="result", limit=limit), True
    except ArgumentsError as error:
        if "limit" in error.facts:
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
    """Return what the body returned, or an `Unstorable`.

    Args:
        shape: The return annotation as it is now; `Shape()` where the function is not known.
        data: What `encode_result` gave.

    Raises:
        ArgumentsError: The bytes do not fit the annotation as it is now.
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
