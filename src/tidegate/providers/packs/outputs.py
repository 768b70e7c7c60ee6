"""Libraries that parse a model's output: a validation error is taken as the fault of that output.

They also check values that no model wrote. A value that never fits ends its task after the same two attempts.

Sources: pydantic 2.14 `ValidationError` (of pydantic_core); msgspec 0.23 `ValidationError`; jsonschema
`ValidationError`; langchain-core `OutputParserException`; instructor `IncompleteOutputException`,
`InstructorRetryException`; pydantic-ai `UnexpectedModelBehavior`.
"""

from __future__ import annotations

from tidegate.providers.meaning import INVALID_OUTPUT, table
from tidegate.providers.pack import Pack

OUTPUTS = Pack(
    name="outputs",
    modules=(
        "pydantic",
        "pydantic_core",
        "msgspec",
        "jsonschema",
        "langchain_core",
        "instructor",
        "pydantic_ai",
    ),
    classes=table(
        (
            INVALID_OUTPUT,
            (
                "ValidationError OutputParserException IncompleteOutputException InstructorRetryException"
                " UnexpectedModelBehavior"
            ),
        ),
    ),
)
