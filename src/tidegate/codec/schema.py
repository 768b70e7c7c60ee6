"""Describes a task function's arguments as JSON Schema (2020-12), for clients over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.codec import models
from tidegate.codec.declaration import Declaration, Parameter
from tidegate.domain.redaction import redact, redact_named

_REFS = "#/$defs/{name}"
_NAMED = frozenset({"properties", "$defs"})
_VALUES = frozenset({"default", "const", "enum", "examples", "example"})
_DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


def arguments_schema(declaration: Declaration) -> Schema:
    """Return the schema of a call's arguments.

    The schema is an object with a property for each parameter, or an array by position if some parameters
    have no name (positional-only ones, `*args`). An annotation without a JSON Schema accepts any value: the
    signature still checks the arguments.
    """
    listed = list(declaration.positional)
    listed += [parameter for name, parameter in declaration.by_name.items() if parameter not in listed]
    kinds = [*listed, *filter(None, (declaration.rest, declaration.others))]
    schemas, defs = _schemas(kinds)
    schema: Schema = {"$schema": _DIALECT}
    if declaration.rest is not None or any(not parameter.nameable for parameter in listed):
        schema |= _by_position(declaration, schemas)
    else:
        others = declaration.others
        schema |= {
            "type": "object",
            "properties": {parameter.name: schemas[parameter.name] for parameter in listed},
            "required": [parameter.name for parameter in listed if parameter.required],
            "additionalProperties": False if others is None else schemas[others.name],
        }
    shown: Schema = _without_secrets(schema | ({"$defs": defs} if defs else {}))
    return shown


def _without_secrets(schema: Any, name: str = "") -> Any:
    """Return the schema of the property `name` with secrets in its values and descriptions starred out."""
    if isinstance(schema, list):
        return [_without_secrets(item, name) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shown: Schema = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            shown[key] = {property_: _without_secrets(part, property_) for property_, part in value.items()}
        elif key in _VALUES:
            shown[key] = _value(value, name)
        elif key == "description" and isinstance(value, str):
            shown[key] = redact(value)
        else:
            shown[key] = _without_secrets(value, name)
    return shown


def _value(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return redact_named(value, name)
    if isinstance(value, list):
        return [_value(item, name) for item in value]
    if isinstance(value, dict):
        return {key: _value(item, key) for key, item in value.items()}
    return value


def _by_position(declaration: Declaration, schemas: dict[str, Schema]) -> Schema:
    taken = list(declaration.positional)
    rest = declaration.rest
    return {
        "type": "array",
        "prefixItems": [schemas[parameter.name] for parameter in taken],
        "minItems": sum(parameter.required for parameter in taken),
        "items": False if rest is None else schemas[rest.name],
    }


def _schemas(parameters: list[Parameter]) -> tuple[dict[str, Schema], Schema]:
    """Return the schema of each parameter by name, and their shared definitions."""
    schemas: dict[str, Schema] = {}
    defs: Schema = {}
    for parameter in parameters:
        try:
            (schema,), parts = msgspec.json.schema_components(
                [parameter.shape.hint], schema_hook=_hook, ref_template=_REFS
            )
        except (TypeError, ValueError, RuntimeError):
            schema, parts = {}, {}
        schemas[parameter.name] = _lifted(schema, defs)
        defs |= {name: _lifted(part, defs) for name, part in parts.items()}
    return schemas, defs


def _lifted(schema: Any, defs: Schema) -> Any:
    """Return a schema whose own definitions (pydantic nests them) are moved to the common ones."""
    if isinstance(schema, list):
        return [_lifted(item, defs) for item in schema]
    if not isinstance(schema, dict):
        return schema
    own = schema.get("$defs", {})
    defs |= {name: _lifted(part, defs) for name, part in own.items()}
    return {key: _lifted(value, defs) for key, value in schema.items() if key != "$defs"}


def _hook(kind: type) -> Schema:
    if isinstance(kind, type) and models.is_model(kind):
        schema: Schema = kind.model_json_schema(ref_template=_REFS.replace("{name}", "{model}"))  # type: ignore[attr-defined]
        return schema
    raise NotImplementedError  # means "no schema" to msgspec
