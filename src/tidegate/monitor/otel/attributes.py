"""The attributes of spans and metrics, made from events. Pure."""

from __future__ import annotations

from collections import Counter

from tidegate.domain.failure import Failure
from tidegate.events import CallFinished, CallStarted, RunFinished, RunStarted, StepStarted
from tidegate.monitor import semconv

Attributes = dict[str, str | int | float | bool]


def send_attributes(sent: Counter[tuple[str, str]], task_id: str) -> Attributes:
    """Return the attributes of an enqueue.

    Args:
        sent: How many tasks of each queue and function were enqueued.
        task_id: The id of the only task; empty if there are several.
    """
    queues, functions = {queue for queue, _ in sent}, {function for _, function in sent}
    found = operation_attributes(semconv.SEND)
    if len(queues) == 1:
        found[semconv.MESSAGING_DESTINATION_NAME] = next(iter(queues))
    if len(functions) == 1:
        found[semconv.TASK_NAME] = next(iter(functions))
    if task_id:
        found[semconv.MESSAGING_MESSAGE_ID] = task_id
    else:
        found[semconv.MESSAGING_BATCH_MESSAGE_COUNT] = sent.total()
    return found


def operation_attributes(operation: str) -> Attributes:
    """Return the attributes that every messaging operation has."""
    return {
        semconv.MESSAGING_SYSTEM: semconv.SYSTEM,
        semconv.MESSAGING_OPERATION_NAME: operation,
        semconv.MESSAGING_OPERATION_TYPE: operation,
    }


def run_attributes(event: RunStarted | RunFinished) -> Attributes:
    """Return the attributes of the span of a run."""
    found = operation_attributes(semconv.PROCESS) | {
        semconv.MESSAGING_DESTINATION_NAME: event.queue,
        semconv.MESSAGING_MESSAGE_ID: event.task_id,
        semconv.MESSAGING_CLIENT_ID: event.worker_id,
        semconv.TASK_NAME: event.function,
        semconv.RUN: event.run,
        semconv.ATTEMPT: event.attempt,
        semconv.MAX_ATTEMPTS: event.max_attempts,
        semconv.QUEUE_WAIT: event.wait_seconds,
    }
    if event.upstream:
        found[semconv.UPSTREAM] = event.upstream
    if event.tenant:
        found[semconv.TENANT] = event.tenant
    return found


def step_attributes(event: StepStarted) -> Attributes:
    """Return the attributes of the span of a step."""
    return {
        semconv.MESSAGING_MESSAGE_ID: event.task_id,
        semconv.TASK_NAME: event.function,
        semconv.RUN: event.run,
        semconv.STEP_NAME: event.step,
        semconv.STEP_KEY: event.key,
    }


def run_metric_attributes(event: RunFinished) -> Attributes:
    """Return the attributes of the metrics of runs: only names and fixed words, so that they are few."""
    found = operation_attributes(semconv.PROCESS) | {
        semconv.MESSAGING_DESTINATION_NAME: event.queue,
        semconv.TASK_NAME: event.function,
        semconv.OUTCOME: str(event.outcome),
    }
    if event.failure is not None:
        found[semconv.ERROR_TYPE] = str(event.failure.reason)
    return found


def call_attributes(event: CallStarted | CallFinished) -> Attributes:
    """Return the attributes of a call that are known before it is sent."""
    found: Attributes = {semconv.UPSTREAM: event.upstream}
    if event.operation:
        found[semconv.GEN_AI_OPERATION_NAME] = event.operation
    if event.model:
        found[semconv.GEN_AI_REQUEST_MODEL] = event.model
    if event.operation or event.model:
        found[semconv.GEN_AI_PROVIDER_NAME] = semconv.provider_name(event.provider)
    return found


def started_call_attributes(event: CallStarted) -> Attributes:
    """Return the attributes of a call's span that are known before the call is sent."""
    found = call_attributes(event)
    if event.max_tokens:
        found[semconv.GEN_AI_REQUEST_MAX_TOKENS] = event.max_tokens
    if event.task_id:
        found |= {semconv.MESSAGING_MESSAGE_ID: event.task_id, semconv.RUN: event.run}
    return found


def answer_attributes(event: CallFinished) -> Attributes:
    """Return the attributes of a call's span that are known at the end of the call."""
    found: Attributes = {}
    if event.status is not None:
        found[semconv.HTTP_RESPONSE_STATUS_CODE] = event.status
        found[semconv.GEN_AI_TIME_TO_FIRST_CHUNK] = event.first_byte_seconds
    if event.is_in_doubt:
        found[semconv.IN_DOUBT] = True
    if (used := event.usage) is not None:
        found |= {
            semconv.GEN_AI_INPUT_TOKENS: used.input_tokens,
            semconv.GEN_AI_OUTPUT_TOKENS: used.output_tokens,
        }
        parts: Attributes = {
            semconv.GEN_AI_CACHE_READ_TOKENS: used.cached_tokens,
            semconv.GEN_AI_CACHE_WRITE_TOKENS: used.cache_write_tokens,
            semconv.GEN_AI_REASONING_TOKENS: used.reasoning_tokens,
            semconv.GEN_AI_RESPONSE_MODEL: used.model,
        }
        found |= {name: value for name, value in parts.items() if value}
    return found


def error_type(failure: Failure) -> str:
    """Return the `error.type` of a failure: the class of the exception, else the status, else the reason."""
    status = "" if failure.status is None else str(failure.status)
    return failure.error_class or status or str(failure.reason)
