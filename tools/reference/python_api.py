"""The reference of the Python API, from the signatures and docstrings of the public names."""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import re
import textwrap
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from tests.public_signatures import INTERNAL, MADE_BY_TIDEGATE, classes_in_public_signatures
from tools.reference.fields import assigned, docstrings_of_class, docstrings_of_module, strings_below
from tools.reference.markdown import anchor, from_docstring, paragraphs
from tools.reference.signatures import signature_of, type_text, without_modules

import tidegate
import tidegate.testing
from tidegate import _HOMES as HOMES
from tidegate.errors import TidegateError

SUBJECTS = Path(__file__).with_name("subjects.toml")
TYPES = """\
Types in signatures: `Seconds` is a number of seconds, a `timedelta`, or text such as `"30s"`, `"5m"`, `"7d"`.
`Deadline` is also a `datetime` with a time zone. `Size` is a number of bytes, or text such as `"300MiB"`.
`Backoff` is `Exponential`, `Fixed` or `Polynomial`. Where a default is `...`, the text says how it is chosen.
"""
PUBLIC: Mapping[str, Any] = {
    **{name: getattr(tidegate, name) for name in tidegate.__all__ if name != "__version__"},
    **{name: getattr(tidegate.testing, name) for name in tidegate.testing.__all__},
}
"""Every public name with its value."""
VALUES_OF_USERS = ("Failure",)
"""Values that users construct, although most code only reads them."""


@dataclass(frozen=True)
class Subject:
    """One page: public names that belong together."""

    title: str
    introduction: str
    names: tuple[str, ...]


def subjects() -> dict[str, Subject]:
    """Return the pages by their file's name, without its ending.

    The errors, and the names of `tidegate.testing` that no page lists, are added by themselves.
    """
    tables = tomllib.loads(SUBJECTS.read_text(encoding="utf-8"))
    tables["errors"]["names"] = [name for name in tidegate.__all__ if _is_error(PUBLIC.get(name))]
    listed = {name for table in tables.values() for name in table["names"]}
    tables["testing"]["names"] += [name for name in tidegate.testing.__all__ if name not in listed]
    return {
        file: Subject(table["title"], table["introduction"], tuple(table["names"]))
        for file, table in tables.items()
    }


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, TidegateError)


def page_of(name: str) -> str:
    """Return the file that describes a public name, and the anchor in it.

    Raises:
        LookupError: No page has the name.
    """
    for file, subject in subjects().items():
        if name in subject.names:
            return f"{file}.md#{anchor(name)}"
    raise LookupError(f"{name} is on no page: add it to {SUBJECTS.name}")


def page(file: str) -> str:
    """Return one page."""
    subject = subjects()[file]
    parts = [f"# {subject.title}", subject.introduction, "" if file == "errors" else TYPES]
    parts += ["\n\n".join(_name(name, PUBLIC[name])) for name in subject.names]
    return _linked("\n\n".join(part.strip("\n") for part in parts if part) + "\n", file)


def _name(name: str, value: Any) -> Iterator[str]:
    yield f"## {name}"
    if inspect.isfunction(value):
        yield _code(f"def {name}{signature_of(value)}")
        yield from_docstring(value.__doc__ or "")
    elif not isinstance(value, type):
        yield from _plain_value(name, value)
    elif issubclass(value, enum.Enum):
        yield from_docstring(value.__doc__ or "")
        yield from _enum(value)
    else:
        yield from _class(name, value)


def _plain_value(name: str, value: Any) -> Iterator[str]:
    """Describe a constant or the alias of a type."""
    yield _code(f"{name} = {without_modules(str(value))}")
    if text := docstrings_of_module(HOMES[name]).get(name, ""):
        yield from_docstring(text)


def _enum(kind: type[enum.Enum]) -> Iterator[str]:
    texts = docstrings_of_class(kind)
    lines = []
    for member in kind:
        text = f": {paragraphs(texts[member.name])}" if member.name in texts else ""
        lines.append(f"- `{member.name}` = `{member.value!r}`{text}")
    yield "\n".join(lines)


def _class(name: str, kind: type) -> Iterator[str]:
    bases = [base.__name__ for base in kind.__bases__ if base.__name__ in PUBLIC]
    if bases:
        yield f"A kind of `{bases[0]}`."
    if issubclass(kind, TidegateError):
        code = vars(kind)["code"]
        yield f"Code: [{code}](../errors.md#{code.lower()})."
    if constructor := _constructor(name, kind):
        yield _code(f"{name}{signature_of(constructor)}")
    yield from_docstring(kind.__doc__ or "", without=("Args", "Raises") if name in MADE_BY_TIDEGATE else ())
    if fields := list(_fields(name, kind)):
        yield "Attributes:\n\n" + "\n".join(fields)
    for member, function in _methods(name, kind):
        yield f"### {name}.{member}"
        yield from _method(member, function)


def _constructor(name: str, kind: type) -> Any:
    """Return the constructor; None if users never call it, or if it takes the fields listed below it."""
    if name in MADE_BY_TIDEGATE or typing.is_typeddict(kind):
        return None
    for each in _own_classes(kind):
        if "__init__" in vars(each) and (each is kind or each.__name__ not in PUBLIC):
            is_made_of_fields = is_dataclass(each) and not _is_written(each)
            return None if is_made_of_fields and name not in VALUES_OF_USERS else vars(each)["__init__"]
    return None


def _is_written(kind: type) -> bool:
    """Return whether the source has the constructor; `dataclass` writes the others."""
    constructor: types.FunctionType = vars(kind)["__init__"]
    file: str = constructor.__code__.co_filename
    return file == inspect.getsourcefile(kind)


def _method(name: str, member: Any) -> Iterator[str]:
    function = member.fget if isinstance(member, property) else member
    function = function.func if isinstance(function, functools.cached_property) else function
    if isinstance(member, property | functools.cached_property):
        yield _code(f"{name}: {type_text(function.__annotations__.get('return', 'Any'))}")
    else:
        kind = "@classmethod\n" if isinstance(member, classmethod) else ""
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        is_async = inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)
        yield _code(f"{kind}{'async ' if is_async else ''}def {name}{signature_of(plain)}")
        function = plain
    yield from_docstring(function.__doc__ or "")


def _own_classes(kind: type) -> list[type]:
    return [each for each in kind.__mro__ if each.__module__.partition(".")[0] == "tidegate"]


def _fields(name: str, kind: type) -> Iterator[str]:
    """Yield a list item for each public field of a class, those of its bases first."""
    seen = set[str]()
    for each in reversed(_own_classes(kind)):
        if each is not kind and each.__name__ in PUBLIC:
            continue
        texts = docstrings_of_class(each)
        for field, annotation in vars(each).get("__annotations__", {}).items():
            if field.startswith("_") or field in seen or _is_internal(name, field):
                continue
            seen.add(field)
            yield _field(field, type_text(annotation), texts.get(field, ""))
    if name in MADE_BY_TIDEGATE and "__init__" in vars(kind) and not is_dataclass(kind):
        yield from _attributes(kind)


def _field(name: str, hint: str, text: str) -> str:
    parts = [hint] if "[" in hint else hint.split(" | ")
    kinds = " or ".join(f"`{part}`" for part in parts)
    return f"- `{name}` ({kinds})" + (f": {paragraphs(text)}" if text else "")


def _attributes(kind: Any) -> Iterator[str]:
    """Yield a list item for each public attribute that the constructor of a class sets from a parameter."""
    parameters = inspect.signature(kind.__init__).parameters
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind.__init__))).body
    assert isinstance(definition, ast.FunctionDef)
    texts = dict(strings_below(definition.body))
    for statement in definition.body:
        for name in assigned(statement):
            if name.startswith("_") or name not in parameters:
                continue
            kind_text = type_text(parameters[name].annotation)
            if set(re.findall(r"\b[A-Z]\w+", kind_text)) <= {*PUBLIC, "Mapping", "None"}:
                yield _field(name, kind_text, texts.get(name, ""))


def _methods(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class in source order, then those of its bases."""
    seen = set[str]()
    for each in _own_classes(kind):
        if each is not kind and each.__name__ in PUBLIC:
            continue
        for member, value in vars(each).items():
            is_described = isinstance(
                value, property | functools.cached_property | classmethod | staticmethod
            )
            if member.startswith("_") or member in seen or not (inspect.isfunction(value) or is_described):
                continue
            seen.add(member)
            if not _is_internal(name, member) and hasattr(kind, member):
                yield member, value


@functools.cache
def _internal_places() -> frozenset[str]:
    """Return the members that name a class which users need not know: `Class.member`."""
    places = set[str]()
    for kind, named in classes_in_public_signatures(MADE_BY_TIDEGATE).items():
        if kind.__name__ in INTERNAL:
            for place in named:
                owner, _, item = place.partition(": ")
                places.add(owner if "." in owner else f"{owner}.{item}")
    return frozenset(places)


def _is_internal(name: str, member: str) -> bool:
    return f"{name}.{member}" in _internal_places()


def _code(text: str) -> str:
    return f"```py\n{text}\n```"


def _linked(text: str, file: str) -> str:
    """Make links of the public names in code spans, outside headings and code blocks."""
    names = "|".join(sorted(PUBLIC, key=len, reverse=True))

    def link(found: re.Match[str]) -> str:
        target = page_of(found["name"]).removeprefix(f"{file}.md") if found["name"] else ""
        return f"[`{found['name']}`]({target})" if target else found[0]

    skipped = r"^```.*?^```$|^#[^\n]*$|\[[^\]\n]*\]\([^)\n]*\)"
    return re.sub(rf"{skipped}|`(?P<name>{names})`", link, text, flags=re.M | re.S)
