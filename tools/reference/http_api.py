"""The reference of the HTTP API, from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tools.reference.fields import docstrings_of_class
from tools.reference.markdown import anchor, table

from tidegate import Tidegate
from tidegate.web import (
    alert_schemas,
    control_schemas,
    create_app,
    history_schemas,
    operation_schemas,
    request_schemas,
    scaling_schemas,
    schedule_schemas,
    schemas,
)

_SCHEMAS = (
    schemas,
    request_schemas,
    control_schemas,
    history_schemas,
    schedule_schemas,
    scaling_schemas,
    operation_schemas,
    alert_schemas,
)

INTRODUCTION = """\
# HTTP routes

```console
$ curl -s localhost:4180/api/v1/tasks/01935c1e-7d3a-7000-8000-000000000000 -H "Authorization: Bearer $TOKEN"
```

Every route with its parameters and responses. [The HTTP API](http-api.md) explains them: access, submitting,
following live, also over a WebSocket.
`GET /api/v1/openapi.json` of a running API serves the same facts for programs.
"""

Document = Mapping[str, Any]


def page() -> str:
    """Return the page."""
    document = create_app(Tidegate("sqlite:///unused.db")).openapi()
    routes = [
        (method.upper(), path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    rows = [
        (f"[{method} `{path}`](#{anchor(f'{method} {path}')})", operation["summary"])
        for method, path, operation in routes
    ]
    parts = [INTRODUCTION, table(["route", "what it does"], rows)]
    parts += ["\n\n".join(_route(*route)) for route in routes]
    parts += ["## Schemas", "The JSON of requests and responses. Unknown fields of a request are refused."]
    found = document["components"]["schemas"]
    parts += ["\n\n".join(_schema(name, found[name])) for name in sorted(found)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _route(method: str, path: str, operation: Document) -> Iterator[str]:
    yield f"## {method} {path}"
    yield _sentence(operation["summary"])
    if operation.get("description", "") not in ("", operation["summary"], operation["summary"] + "."):
        yield operation["description"]
    if "x-roles" in operation:
        whole = "; the token must see all tenants" if operation.get("x-whole-installation") else ""
        yield f"Roles: {', '.join(operation['x-roles'])}{whole}."
    if parameters := operation.get("parameters"):
        shown = [
            (f"`{each['name']}`", each["in"], _type(each["schema"]), each.get("description", ""))
            for each in parameters
        ]
        yield table(["parameter", "in", "type", "meaning"], shown)
    if body := operation.get("requestBody"):
        yield f"Body: {_content(body['content'])}."
    rows = [
        ("refused" if status == "default" else status, each["description"], _content(each.get("content", {})))
        for status, each in operation["responses"].items()
    ]
    yield table(["response", "meaning", "content"], rows)


def _schema(name: str, schema: Document) -> Iterator[str]:
    yield f"### {name}"
    if text := schema.get("description"):
        yield " ".join(text.split())
    if "enum" in schema:
        yield "One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + "."
    needed, texts = schema.get("required", ()), _docstrings(name)
    rows = [
        (
            f"`{field}`",
            _type(each),
            "yes" if field in needed else _default(each),
            each.get("description") or texts.get(field, ""),
        )
        for field, each in schema.get("properties", {}).items()
    ]
    if rows:
        yield table(["field", "type", "required", "meaning"], rows)


def _docstrings(name: str) -> dict[str, str]:
    """Return what the class of a schema says of its fields."""
    kind = next((kind for each in _SCHEMAS if (kind := getattr(each, name, None)) is not None), None)
    return {} if kind is None else docstrings_of_class(kind)


def _default(schema: Document) -> str:
    return f"no; `{schema['default']}`" if schema.get("default") not in (None, "") else "no"


def _content(content: Document) -> str:
    return ", ".join(
        f"{_type(each['schema'])} (`{media}`)" if each.get("schema") else f"`{media}`"
        for media, each in content.items()
    )


def _type(schema: Document) -> str:
    """Return a JSON Schema in a few words, with links to the schemas it names."""
    if reference := schema.get("$ref"):
        name = reference.rsplit("/", 1)[-1]
        return f"[{name}](#{anchor(name)})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(_type(each) for each in schema[key])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."
