"""Support for pydantic 2 models. pydantic is not imported here: a caller with a model has loaded it."""

from __future__ import annotations

from typing import Any

import msgspec


def is_model(kind: type) -> bool:
    """Return whether `kind` is a pydantic 2 model class."""
    return any(base.__name__ == "BaseModel" and base.__module__ == "pydantic.main" for base in kind.__mro__)


def dump(model: Any, *, exact: bool) -> Any:
    """Return all fields of the model: as Python values if `exact`, else in the model's own JSON form.

    Warnings are off: whether the model can be decoded is checked afterwards.
    """
    mode = "python" if exact else "json"
    return model.model_dump(mode=mode, by_alias=True, round_trip=True, warnings=False)


def load(kind: Any, fields: Any, *, exact: bool) -> Any:
    """Return the model of class `kind` made from the fields that `dump` returned.

    The JSON form uses the model's JSON validation, in which even a strict model accepts a date as text.

    Raises:
        ValueError: The fields do not fit. The text contains no values, because those may be secret.
    """
    try:
        if exact:
            return kind.model_validate(fields)
        return kind.model_validate_json(msgspec.json.encode(fields))
    except ValueError as error:
        raise ValueError(_first_complaint(kind, error)) from None


def _first_complaint(kind: type, error: Any) -> str:
    if not hasattr(error, "errors"):
        return f"{kind.__name__} refused its fields ({type(error).__name__})"
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{kind.__name__}: {first['msg']}" + (f" ({place})" if place else "")
