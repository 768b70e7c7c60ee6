"""Builds the OpenAPI document: FastAPI provides the routes, `schemas` the types of requests and responses."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tidegate._version import __version__
from tidegate.web.request_schemas import SubmitRequest
from tidegate.web.schemas import ProblemDetails

_REFS = "#/components/schemas/{name}"

_DESCRIPTION = (
    "Submit a task, get its `task_id`, follow it live. Requests do not wait for a task unless they ask for "
    "it. Ids and integers beyond 2^53 - 1 are strings; times are seconds since the epoch."
)


class Schemas:
    """Collects the types that the routes use, and refers to them by name."""

    def __init__(self) -> None:
        self._types: list[Any] = [ProblemDetails]

    def named(self, kind: Any) -> dict[str, Any]:
        """Return a reference to the schema of a type."""
        if kind is str:
            return {"type": "string"}
        if kind not in self._types:
            self._types.append(kind)
        return {"$ref": _REFS.format(name=kind.__name__)}

    def components(self) -> dict[str, Any]:
        """Return all schemas by name."""
        _, components = msgspec.json.schema_components(self._types, ref_template=_REFS, schema_hook=_any)
        submit = components[SubmitRequest.__name__]["properties"]
        submit["args"] = {
            "type": ["object", "array"],
            "description": "Arguments by name (object) or by position (array).",
        }
        items = {"$ref": _REFS.format(name=SubmitRequest.__name__)}
        components["SubmitManyRequest"]["properties"]["tasks"] = {"type": "array", "items": items}
        return components


def document(api: FastAPI, schemas: Schemas) -> dict[str, Any]:
    """Return the OpenAPI document of an API."""
    spec = get_openapi(title="Tidegate", version=__version__, description=_DESCRIPTION, routes=api.routes)
    spec.setdefault("components", {}).setdefault("schemas", {}).update(schemas.components())
    spec["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    spec["security"] = [{"token": []}]
    return spec


def _any(kind: type) -> dict[str, Any]:
    return {}
