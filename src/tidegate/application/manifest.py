"""What an application declares, as workers store it for processes that cannot import the application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.codec import CODEC
from tidegate.domain.spec import NO_LIMIT
from tidegate.schedule.declared import DeclaredSchedule, to_manifest
from tidegate.store.common.final_hooks import encode_hook
from tidegate.task import TaskFunction


def make_manifest(
    functions: Mapping[str, TaskFunction[Any, Any, Any]], schedules: Sequence[DeclaredSchedule]
) -> dict[str, Any]:
    """Return the manifest of these task functions and schedules."""
    return {
        "functions": {
            name: {
                "queue": function.spec.queue,
                "upstream": function.spec.upstream,
                "slots_grow": function.spec.slots_grow,
                "priority": function.spec.priority.word,
                "timeout": function.spec.timeout if function.spec.timeout < float("inf") else None,
                "max_attempts": function.spec.max_attempts,
                "signature": function.signature.text,
                "rate_limit": None
                if function.spec.rate_limit is None
                else [function.spec.rate_limit.amount, function.spec.rate_limit.seconds],
                # for the function `enqueue` of PostgreSQL
                "deadline": function.spec.deadline if function.spec.deadline < NO_LIMIT else None,
                "on_final": encode_hook(function.spec.on_final),
            }
            for name, function in sorted(functions.items())
        },
        "schedules": to_manifest(schedules),
        "codec": CODEC,
    }
