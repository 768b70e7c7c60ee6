"""Encodes the arguments of a task function's call as a payload, and decodes the payload.

Arguments are stored by name where Python allows it, so that a release may reorder or add parameters while
tasks wait. Defaults are not stored: the code that runs the task decides them.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tidegate.codec.declaration import Declaration, Parameter, faults_of_call, read_declaration
from tidegate.codec.encode import dumps
from tidegate.codec.result import EncodedResult, encode_result, load_result
from tidegate.codec.shape import LIMIT_BYTES, too_large
from tidegate.codec.tags import TAG_MARK, sorted_pairs
from tidegate.errors import ArgumentsError

_INT64_END = 2**63

_UNKNOWN: tuple[int, frozenset[type]] = (0, frozenset())
_Store = Callable[[Parameter, str, Any], Any]


class _Payload(msgspec.Struct, forbid_unknown_fields=True):
    a: list[msgspec.Raw] = []
    """Positional arguments: those without a name, or all of them if some belong to `*args`."""
    k: dict[str, msgspec.Raw] = {}
    """All other arguments, by name."""


_read_payload = msgspec.json.Decoder(_Payload).decode


class Signature:
    """The parameters and the return annotation of one task function. Made by `Signature.of`.

    Attributes:
        name: `module:qualname` of the function, for messages.
        text: The signature as callers see it, without the context.
        context: The name of the parameter that takes the context, or `None`.
        is_async: Whether the function is `async def`.

    Example:
        >>> def summarize(text: str, *, words: int = 100) -> str: ...
        >>> signature = Signature.of(summarize)
        >>> signature.bind(("It was a dark night.",), {"words": 5})
        b'{"a":[],"k":{"text":"It was a dark night.","words":5}}'
    """

    def __init__(self, declaration: Declaration, *, is_async: bool) -> None:
        self.name = declaration.name
        self.text = declaration.text
        self.context = declaration.context
        self.is_async = is_async
        self._declaration = declaration
        every = {p.name: p for p in declaration.positional} | dict(declaration.by_name)
        self._required = tuple(p for p in every.values() if p.required)
        self._required_names = frozenset(p.name for p in self._required)
        self._decoders = {p.name: p.shape.decode_untagged for p in declaration.by_name.values()}
        self._positional = [
            (p.name, p.shape.exact if p.nameable else frozenset()) for p in declaration.positional
        ]
        self._by_name = {p.name: (p.at, p.shape.exact) for p in declaration.by_name.values()}

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        injected: type | None = None,
        namespace: Mapping[str, Any] | None = None,
    ) -> Signature:
        """Read the signature of a task function.

        Annotations are resolved now, so call this after the function's module is fully loaded.

        Args:
            function: A plain `def` or `async def`.
            injected: The class of the parameter that callers do not see (`ctx: Context`, `Context | None`).
            namespace: Further names that annotations written as text may use.

        Raises:
            ConfigError: The value is not a plain function, or an annotation cannot be resolved.
        """
        declaration = read_declaration(function, injected=injected, namespace=namespace or {})
        return cls(declaration, is_async=inspect.iscoroutinefunction(function))

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, limit: int = LIMIT_BYTES) -> bytes:
        """Check a call against the signature and return its payload.

        A value that would not reach the function unchanged is refused here.

        Args:
            args: Positional arguments, without the context.
            kwargs: Keyword arguments.
            limit: The most bytes of the payload.

        Raises:
            ArgumentsError: The arguments do not fit the signature or their annotations, cannot be stored, or
                are too large. `path` names the faulty argument, if there is one.
        """
        try:
            named = self._usual_arguments(args, kwargs)
            if named is not None:
                data = dumps({"a": (), "k": named})
            else:
                data = dumps(self._placed(args, kwargs, functools.partial(self._pack, limit)))
        except ValueError:  # some text is not valid UTF-8; the slow path finds which
            data = self._bind_carefully(args, kwargs, limit)
        if len(data) > limit:
            raise self._too_large(data, limit)
        return data

    def _usual_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return all arguments by name if each is stored as it is; None if `_placed` must look."""
        given = len(args)
        if given > len(self._positional):
            return None
        named: dict[str, Any] = {}
        for (name, exact), value in zip(self._positional, args, strict=False):
            if not _is_stored_as_it_is(value, exact):
                return None
            named[name] = value
        for name, value in kwargs.items():
            at, exact = self._by_name.get(name, _UNKNOWN)
            if at < given or not _is_stored_as_it_is(value, exact):
                return None
            named[name] = value
        return named if self._required_names <= named.keys() else None

    def load(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a payload, decoded by the annotations of the current code.

        Args:
            payload: The bytes that `bind` returned, in this or an older release, or JSON written by hand: an
                object with `a` (array, by position) and `k` (object, by name), each optional.

        Returns:
            Positional and keyword arguments, without the context; see `with_context`.

        Raises:
            ArgumentsError: The arguments do not fit this code. The function must not be called, and a retry
                cannot help.
        """
        try:
            stored = _read_payload(payload)
        except (ValueError, RecursionError) as error:
            raise self._misfit(f"the payload cannot be read: {error}") from error
        if TAG_MARK in payload:
            placed = self._placed(stored.a, stored.k, self._unpack_tagged)
        elif not stored.a and (named := self._load_named(stored.k)) is not None:
            return (), named
        else:
            placed = self._placed(stored.a, stored.k, self._unpack)
        return tuple(placed["a"]), placed["k"]

    def _load_named(self, stored: Mapping[str, msgspec.Raw]) -> dict[str, Any] | None:
        """Return arguments that are all by name and without tags; None if they need the slow path."""
        decoders = self._decoders
        try:
            named = {name: decoders[name](raw) for name, raw in stored.items()}
        except Exception:  # the slow path finds the place and the message
            return None
        return named if self._required_names <= named.keys() else None

    def accept(self, payload: bytes, *, limit: int = LIMIT_BYTES) -> bytes:
        """Check a payload written by hand as `load` does, and return it as `bind` would have written it.

        For arguments that come as JSON: from the command line, over HTTP, or edited before a redrive.

        Raises:
            ArgumentsError: The arguments do not fit.
        """
        args, kwargs = self.load(payload)
        return self.bind(args, kwargs, limit=limit)

    def with_context(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], context: object
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with the context added, if the function takes it."""
        if self.context is None:
            return tuple(args), dict(kwargs)
        at = self._declaration.context_at
        if len(args) > at:
            return (*args[:at], context, *args[at:]), dict(kwargs)
        return tuple(args), {**kwargs, self.context: context}

    def fingerprint(self, payload: bytes) -> bytes:
        """Return the SHA-256 (32 bytes) of a payload from `bind`. Equal arguments have equal fingerprints.

        Passing arguments by position or by name makes no difference, and neither does the order of the keys.
        Passing a default explicitly makes a difference.
        """
        tree = msgspec.json.decode(payload)
        if TAG_MARK in payload:
            tree["a"] = [sorted_pairs(item) for item in tree["a"]]
            tree["k"] = {name: sorted_pairs(item) for name, item in tree["k"].items()}
        return hashlib.sha256(msgspec.json.encode(tree, order="sorted")).digest()

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of the arguments."""
        from tidegate.codec.schema import arguments_schema

        return arguments_schema(self._declaration)

    def encode_result(self, value: Any, limit: int = LIMIT_BYTES) -> EncodedResult:
        """Return the bytes of the function's result, or a stand-in for it. Never raises.

        Args:
            value: The returned value.
            limit: The most bytes of the result.
        """
        return encode_result(self._declaration.returns, value, limit)

    def load_result(self, data: bytes) -> Any:
        """Return the result, decoded by the current return annotation, or an `Unstorable`.

        Raises:
            ArgumentsError: The stored result no longer fits the annotation.
        """
        return load_result(self._declaration.returns, data)

    def _placed(self, args: Sequence[Any], kwargs: Mapping[str, Any], store: _Store) -> dict[str, Any]:
        """Match arguments with parameters. Return `store`'s result for each, by position and by name."""
        takes = self._declaration
        given, count, rest = len(args), len(takes.positional), takes.rest
        if given > count and rest is None:
            raise self._no_such_call(args, kwargs)
        placed: list[Any] = []
        named: dict[str, Any] = {}
        for parameter, value in zip(takes.positional, args, strict=False):
            stored = store(parameter, parameter.name, value)
            if given > count or not parameter.nameable:
                placed.append(stored)
            else:
                named[parameter.name] = stored
        if given > count and rest is not None:
            placed += [store(rest, f"{rest.name}[{at}]", value) for at, value in enumerate(args[count:])]
        for name, value in kwargs.items():
            taker = takes.by_name.get(name) or takes.others
            if taker is None or taker.at < given or name == self.context:
                raise self._no_such_call(args, kwargs)
            named[name] = store(taker, name, value)
        for needed in self._required:
            if needed.at >= given and not (needed.nameable and needed.name in kwargs):
                raise self._no_such_call(args, kwargs)
        return {"a": placed, "k": named}

    def _bind_carefully(self, args: Sequence[Any], kwargs: Mapping[str, Any], limit: int) -> bytes:
        placed = self._placed(args, kwargs, functools.partial(self._pack_carefully, limit))
        try:
            return dumps(placed)
        except ValueError as error:  # the values are bytes already, so it is a name in **kwargs
            raise self._misfit("a name has a lone surrogate, which UTF-8 cannot hold") from error

    def _pack(self, limit: int, parameter: Parameter, label: str, value: Any) -> Any:
        if _is_stored_as_it_is(value, parameter.shape.exact):
            return value
        return self._pack_carefully(limit, parameter, label, value)

    def _pack_carefully(self, limit: int, parameter: Parameter, label: str, value: Any) -> msgspec.Raw:
        try:
            return msgspec.Raw(parameter.shape.encode(value, path=label, limit=limit))
        except ArgumentsError as error:
            raise self._misfit(error.message, fix=error.fix, **error.facts) from error

    def _unpack(self, parameter: Parameter, label: str, raw: msgspec.Raw) -> Any:
        try:
            return parameter.shape.decode_untagged(raw)
        except Exception:  # decoding again finds the place and the message
            return self._unpack_tagged(parameter, label, raw)

    def _unpack_tagged(self, parameter: Parameter, label: str, raw: msgspec.Raw) -> Any:
        try:
            return parameter.shape.decode(bytes(raw), path=label)
        except ArgumentsError as error:
            raise self._misfit(error.message, **error.facts) from error

    def _no_such_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ArgumentsError:
        return self._misfit(faults_of_call(self._declaration, args, kwargs))

    def _too_large(self, data: bytes, limit: int) -> ArgumentsError:
        stored = _read_payload(data)
        sizes = {name: len(bytes(raw)) for name, raw in stored.k.items()}
        sizes |= {f"argument {at}": len(bytes(raw)) for at, raw in enumerate(stored.a, start=1)}
        path = max(sizes, key=lambda name: sizes[name])
        error = too_large("the payload", len(data), limit)
        text = f"{error.message}; the largest part is {path}"
        return self._misfit(text, fix=error.fix, **(error.facts | {"path": path}))

    def _misfit(self, what: str, *, fix: str = "", **facts: Any) -> ArgumentsError:
        facts.setdefault("path", "")
        return ArgumentsError(
            f"arguments do not fit {self.name}{self.text}: {what}",
            fix=fix or f"call it as {self.name.rpartition(':')[2]}{self.text}",
            **(facts | {"function": self.name, "signature": self.text}),
        )


def _is_stored_as_it_is(value: Any, exact: frozenset[Any]) -> bool:
    """Return whether JSON without tags gives a value of one of these types back unchanged."""
    kind = type(value)
    return kind in exact and (kind is not int or -_INT64_END <= value < _INT64_END)
