"""Build an exception from JSON that describes an HTTP response or an exception, without any SDK.

The JSON object has either `status`, `headers` and `body`, or `exception`, `mro`, `attrs`, `args`, `cause`,
`context` and `children`. Both forms take `id`, `provider` and `now`. Other fields are ignored.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

_MAX_DEPTH = 40


class DescriptionError(ValueError):
    """A description of a failure cannot be read; the message explains why."""


@dataclass(frozen=True, slots=True)
class DescribedFailure:
    """One failure to classify."""

    id: object
    """The id in the description, or the default; usually a string."""
    error: BaseException
    """The exception that a task would raise."""
    provider: str
    now: float | None
    """The time of the failure in seconds since the epoch; None if the description gives none."""


def describe_failure(value: object, *, default_id: str = "") -> DescribedFailure:
    """Return the failure that a JSON object describes.

    Raises:
        DescriptionError: The value is not an object, or describes no failure.
    """
    if not isinstance(value, Mapping):
        raise DescriptionError(f"expected a JSON object, not {_kind(value)}")
    try:
        error = (
            _build_exception(value, 0) if "exception" in value or "mro" in value else _from_response(value)
        )
    except DescriptionError:
        raise
    except (TypeError, ValueError, AttributeError, RecursionError) as cause:
        raise DescriptionError(f"cannot build such an exception: {cause}") from None
    return DescribedFailure(
        id=value.get("id", default_id),
        error=error,
        provider=_text(value, "provider"),
        now=_parse_now(value.get("now")),
    )


def response_error(status: int, headers: Iterable[tuple[str, str]], body: str) -> BaseException:
    """Return an exception that carries the response, as SDKs raise it.

    Raises:
        DescriptionError: The status is not a number from 100 to 599.
    """
    if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 599:
        raise DescriptionError(f"status must be a number from 100 to 599, not {status!r}")
    error = type("HTTPStatusError", (Exception,), {})(f"status {status}")
    error.response = SimpleNamespace(status_code=status, headers=list(headers), text=body)
    assert isinstance(error, Exception)
    return error


def _from_response(value: Mapping[str, Any]) -> BaseException:
    if "status" not in value:
        raise DescriptionError("it has neither a status nor an exception")
    body = value.get("body")
    text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
    return response_error(value["status"], _pairs(value.get("headers")), text)


def _pairs(headers: object) -> list[tuple[str, str]]:
    if headers is None:
        return []
    pairs = list(headers.items()) if isinstance(headers, Mapping) else headers
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        raise DescriptionError("headers must be an object of strings, or a list of [name, value]")
    return [(name, str(value)) for name, value in pairs]


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)


def _build_exception(value: Mapping[str, Any], depth: int) -> BaseException:
    if depth > _MAX_DEPTH:
        raise DescriptionError(f"exceptions nested more than {_MAX_DEPTH} deep")
    kind = _class(_names(value))
    args = value.get("args", ())
    args = list(args) if isinstance(args, list | tuple) else [args]
    if (children := value.get("children")) is not None:
        args.append([_build_exception(child, depth + 1) for child in children])
    error = kind(*args)
    for name, attribute in value.get("attrs", {}).items():
        setattr(error, name, _attribute(name, attribute, depth))
    for link in ("cause", "context"):
        if value.get(link) is not None:
            setattr(error, f"__{link}__", _build_exception(value[link], depth + 1))
    return error


def _names(value: Mapping[str, Any]) -> Sequence[str]:
    names = value.get("mro") or [value.get("exception"), "builtins.Exception"]
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise DescriptionError("mro must be a list of class names, the nearest first")
    return names


def _class(mro: Sequence[str]) -> type[BaseException]:
    """Return a class with this class hierarchy.

    Built-in classes are used as they are; for each other name an empty class is created.
    """
    real = [_built_in(name) for name in mro if _is_built_in(name)] or [Exception]
    bases = tuple(
        kind for kind in real if not any(other is not kind and issubclass(other, kind) for other in real)
    )
    for name in reversed([name for name in mro if not _is_built_in(name)]):
        module, _, short = name.rpartition(".")
        bases = (type(short, bases, {"__module__": module or "__main__"}),)
    return bases[0]


def _is_built_in(name: str) -> bool:
    return name.startswith("builtins.") or "." not in name


def _built_in(name: str) -> type[BaseException]:
    kind = getattr(builtins, name.removeprefix("builtins."), None)
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return kind
    raise DescriptionError(f"{name} is not a built-in exception")


def _attribute(name: str, value: object, depth: int) -> object:
    """Return an attribute's value: nested exceptions are built, responses and errors become objects."""
    if not isinstance(value, Mapping):
        return value
    if "mro" in value:
        return _build_exception(value, depth + 1)
    if name == "error" or (name == "response" and "status_code" in value):
        return SimpleNamespace(**value)
    return value


def _parse_now(now: object) -> float | None:
    if now is None or (isinstance(now, int | float) and not isinstance(now, bool)):
        return None if now is None else float(now)
    try:
        moment = datetime.fromisoformat(str(now))
    except ValueError:
        raise DescriptionError(f"now must be a time in ISO 8601, not {now!r}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name) or ""
    if not isinstance(text, str):
        raise DescriptionError(f"{name} must be a string, not {_kind(text)}")
    return text


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return {list: "a list", str: "a string", bool: "a boolean"}.get(type(value), "a number")
