"""Log lines with the running task and its trace, for an application that sets its logging up itself.

`JsonFormatter` and `TextFormatter` write lines as `tidegate worker` does. `TaskFieldsFilter` adds `task_id`,
`run`, `queue`, `function`, `trace_id` and `span_id` to each record, for formatters of your own.
`add_task_fields` is the same for structlog.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from tidegate.worker.log_formatters import JsonFormatter, TaskFieldsFilter, TextFormatter, task_fields

__all__ = ["JsonFormatter", "TaskFieldsFilter", "TextFormatter", "add_task_fields"]


def add_task_fields(
    logger: Any, method: str, event_dict: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add the fields of the running task and its trace to an event of structlog. A processor.

    Fields without a value are left out, and one that the event has already is kept.

    Args:
        logger: The wrapped logger.
        method: The name of the logger's method.
        event_dict: The event.
    """
    for name, value in task_fields().items():
        if value is not None:
            event_dict.setdefault(name, value)
    return event_dict
