"""Check that names and prose use the standard terms listed in `words.toml`.

Run by `make lint`: `python tools/words.py [FILE ...]`. Names are those that the project defines: Python
functions, classes, parameters, fields and files, SQL tables and columns, commands and options, and the paths,
parameters and fields of the HTTP API. Prose is comments, docstrings, messages and Markdown.

Exits with 1 after printing one line for each word that has a standard term, and for each allowed
word in `words.toml` that no place needs any more.
"""

from __future__ import annotations

import ast
import fnmatch
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RULES = Path(__file__).with_name("words.toml")
CHECKED_PATHS = (
    "src/",
    "tests/",
    "benchmarks/",
    "examples/",
    "docs/",
    "tools/",
    "README.md",
    "CONTRIBUTING.md",
)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SQL_NOISE = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$\w*\$")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.M | re.S)


@dataclass(frozen=True, slots=True)
class AllowedWord:
    """A place where a replaced word is right."""

    word: str
    where: str
    reason: str


@dataclass(slots=True)
class Rules:
    """The rules of `words.toml`, and which allowed words were met."""

    names: dict[tuple[str, ...], str]
    prose: dict[str, str]
    allowed: list[AllowedWord]
    used: set[AllowedWord] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path = RULES) -> Rules:
        """Read the rules from a TOML file."""
        table = tomllib.loads(path.read_text())
        return cls(
            names={tuple(word.split("_")): term for word, term in table["names"].items()},
            prose=table["prose"],
            allowed=[AllowedWord(**entry) for entry in table.get("allowed", [])],
        )

    def is_allowed(self, word: str, place: str, name: str) -> bool:
        """Return whether this word is allowed in this file or name."""
        for allowed in self.allowed:
            if allowed.word == word and any(fnmatch.fnmatch(each, allowed.where) for each in (place, name)):
                self.used.add(allowed)
                return True
        return False


@dataclass(frozen=True, slots=True)
class Finding:
    """A word that has a standard term."""

    place: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.place}:{self.line}: {self.text}"


def parts_of(name: str) -> tuple[str, ...]:
    """Split a snake_case or CamelCase name into lower-case words."""
    return tuple(part.lower() for part in _PARTS.findall(name))


def check_name(rules: Rules, place: str, line: int, name: str) -> Iterator[Finding]:
    """Yield a finding for each replaced word in a name."""
    parts = parts_of(name)
    for word, term in rules.names.items():
        spans = (parts[at : at + len(word)] for at in range(len(parts) - len(word) + 1))
        if word in spans and not rules.is_allowed("_".join(word), place, name):
            yield Finding(place, line, f'the name `{name}` contains "{"_".join(word)}": use {term}')


def check_prose(rules: Rules, place: str, line: int, text: str) -> Iterator[Finding]:
    """Yield a finding for each coined word in a comment, docstring, message or page."""
    for pattern, term in rules.prose.items():
        for match in re.finditer(rf"\b(?:{pattern})\b", text, re.I):
            if not rules.is_allowed(pattern, place, match.group()):
                yield Finding(
                    place, line + text.count("\n", 0, match.start()), f'"{match.group()}": write {term}'
                )


def python_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and name of everything that a Python module defines."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str() as name):
                yield node.lineno, name


def python_prose(source: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every comment, and of every string that holds a space."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def sql_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and each word of SQL outside comments and literals."""
    bare = _SQL_NOISE.sub(lambda match: "\n" * match.group().count("\n"), source)
    for number, line in enumerate(bare.splitlines(), 1):
        for name in set(re.findall(r"[A-Za-z_]\w*", line)):
            yield number, name


def sql_prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every comment of SQL."""
    for number, line in enumerate(source.splitlines(), 1):
        if "--" in line:
            yield number, line.split("--", 1)[1]


def check_file(rules: Rules, place: str, source: str) -> Iterator[Finding]:
    """Check one file of the project by its kind."""
    names: Iterable[tuple[int, str]] = ()
    prose: Iterable[tuple[int, str]] = ()
    if place.endswith(".py"):
        tree = ast.parse(source)
        names, prose = python_names(tree), python_prose(source, tree)
    elif place.endswith(".sql"):
        names, prose = sql_names(source), sql_prose(source)
    elif place.endswith(".md"):
        prose = [(1, _CODE_BLOCK.sub(lambda block: "\n" * block.group().count("\n"), source))]
    if place.endswith((".py", ".sql")):
        yield from check_name(rules, place, 1, place.rsplit("/", 1)[-1].rsplit(".", 1)[0])
    for line, name in names:
        yield from check_name(rules, place, line, name)
    for line, text in prose:
        yield from check_prose(rules, place, line, text)


def command_names() -> Iterator[str]:
    """Yield the names of all commands and options of the command line."""
    import click

    from tidegate.cli import program

    def walk(command: click.Command, context: click.Context) -> Iterator[str]:
        for parameter in command.params:
            yield from (option.strip("-") for option in parameter.opts)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                yield name
                if (inner := command.get_command(context, name)) is not None:
                    yield from walk(inner, click.Context(inner, parent=context))

    yield from walk(program, click.Context(program))


def http_names() -> Iterator[str]:
    """Yield the names in the OpenAPI document: path segments, parameters, schemas and fields."""
    from tidegate import Tidegate
    from tidegate.web.app import create_app

    def walk(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in ("properties", "schemas", "paths") and isinstance(inner, dict):
                    yield from (segment for name in inner for segment in str(name).split("/"))
                if key == "name" and isinstance(inner, str):
                    yield inner
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    yield from walk(create_app(Tidegate("sqlite:///unused.db")).openapi())


def tracked_files() -> list[str]:
    """Return the paths of the files under version control that are checked, and new ones."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted(
        path
        for path in set(listed)
        if path.startswith(CHECKED_PATHS)
        and path.endswith((".py", ".sql", ".md"))
        and (ROOT / path).is_file()
    )


def main(paths: list[str]) -> int:
    """Check the named files, or the whole project; return the exit status."""
    rules = Rules.read()
    findings = [
        finding
        for place in paths or tracked_files()
        for finding in check_file(rules, place, (ROOT / place).read_text())
    ]
    if not paths:
        for name in sorted(set(command_names())):
            findings += check_name(rules, "command line", 0, name)
        for name in sorted(set(http_names())):
            findings += check_name(rules, "HTTP API", 0, name)
        findings += [
            Finding(
                RULES.name,
                0,
                f'the word "{allowed.word}" is allowed in {allowed.where} and is not there: delete the entry',
            )
            for allowed in rules.allowed
            if allowed not in rules.used
        ]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
