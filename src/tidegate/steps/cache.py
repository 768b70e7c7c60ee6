"""The identity of work whose results tasks share: its function, its content and, by default, its tenant."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from tidegate.codec import encode
from tidegate.domain.modules import module_name
from tidegate.domain.readers import LONGEST_WAIT_SECONDS, Seconds, positive_option, text_option, wrong
from tidegate.errors import ArgumentsError, ConfigError, OptionError
from tidegate.store.step_rows import CacheTerms

DEFAULT_SECONDS = 86_400.0
KEY_LENGTH = 100_000
"""The most characters of a key or a version. Only their digest is stored."""
ARGUMENT_BYTES = 64 * 2**20
"""The most bytes of the encoded content. Only its digest is stored."""

Cache = bool | Seconds
"""Whether results are shared with other tasks, and for how long."""
CacheScope = Literal["tenant", "all"]


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How a step shares its results with other tasks."""

    seconds: float
    key: str | None
    """A key that identifies the content in place of the arguments."""
    version: str
    """Part of the identity."""
    is_shared: bool
    """Whether tasks of all tenants share results."""


def cache_options(
    cache: Cache | None, *, key: str | None, version: str | None, scope: CacheScope | None
) -> CacheOptions | None:
    """Return the options of a cache; None if the step has none.

    Raises:
        OptionError: One of the options is invalid.
    """
    if cache is None or cache is False:
        for option, value in (("cache_key", key), ("cache_version", version), ("cache_scope", scope)):
            if value is not None:
                raise wrong(option, value, "give the step a cache= too: it says how long a result is used")
        return None
    seconds = DEFAULT_SECONDS if cache is True else positive_option("cache", cache, most=LONGEST_WAIT_SECONDS)
    if scope not in (None, "tenant", "all"):
        raise wrong("cache_scope", scope, "use 'tenant' or 'all'")
    for option, text in (("cache_key", key), ("cache_version", version)):
        if text is not None:
            text_option(option, text)
            if not text or len(text) > KEY_LENGTH:
                raise wrong(option, text, f"use text of 1 to {KEY_LENGTH:,} characters")
    return CacheOptions(seconds, key, version or "", scope == "all")


def cache_terms(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], options: CacheOptions, tenant: str
) -> CacheTerms:
    """Return what the store needs to find equal work.

    Args:
        name: The step's name. It counts only for a function without a name of its own.
        function: What the step calls.
        args: Its arguments.
        options: How results are shared.
        tenant: That of the task.

    Raises:
        OptionError: The result depends on more than the arguments, and there is no key.
        ArgumentsError: The arguments cannot be encoded, and there is no key.
    """
    keywords: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        args, keywords = (*function.args, *args), {**function.keywords, **keywords}
        function = function.func
    if options.key is None:
        content = _encoded(name, [list(args), keywords])
        _require_plain(function)
    else:
        content = b"key\0" + options.key.encode()
    parts = (
        "all" if options.is_shared else f"tenant\0{tenant}", _full_name(name, function), options.version,
    )  # fmt: skip
    digest = hashlib.sha256(b"\0".join([*(part.encode() for part in parts), content])).hexdigest()
    return CacheTerms(digest, tenant, options.is_shared, options.seconds)


def _require_plain(function: Any) -> None:
    """Refuse a function whose result depends on more than its name and its arguments say."""
    if not inspect.isroutine(function) or "<lambda>" in function.__qualname__:
        what = "an object" if not inspect.isroutine(function) else "a lambda"
    elif getattr(function, "__closure__", None) and not hasattr(function, "__wrapped__"):
        what = "a function that uses variables of another function"
    elif not isinstance(getattr(function, "__self__", None), type | ModuleType | None):
        what = "a method of an object"
    else:
        return
    raise OptionError(
        f"cache= was given for {what}: its arguments do not say all that its result depends on",
        fix="pass a function of a module and everything it needs as arguments, or name the content with "
        "cache_key=",
        option="cache",
        value=what,
    )


def _full_name(name: str, function: Any) -> str:
    qualname = getattr(function, "__qualname__", type(function).__qualname__)
    module = getattr(function, "__module__", None) or type(function).__module__
    with contextlib.suppress(ConfigError):  # a script from stdin
        module = module_name(module)
    return f"{module}:{qualname}" + (f":{name}" if "<" in qualname else "")


def _encoded(name: str, content: list[Any]) -> bytes:
    try:
        return encode(content, path=f"the arguments of step {name!r}", limit=ARGUMENT_BYTES)
    except ArgumentsError as error:
        raise ArgumentsError(
            error.message, fix="name the content with cache_key=, or pass plain values", **error.facts
        ) from error
