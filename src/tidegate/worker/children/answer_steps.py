"""Answers the step requests of a child process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tidegate.steps.port import StepPort
from tidegate.store.step_rows import StepRow
from tidegate.worker.children.messages import (
    ApprovalAsked,
    AskApproval,
    BeginJob,
    BeginStep,
    EndStep,
    EventAnswer,
    JobItemsRead,
    JobRecorded,
    ReadJobItems,
    ReportJob,
    StepAnswer,
    StepBegun,
    StepEnded,
    StepRefused,
    StepRequest,
    StepsRead,
    WaitForEvent,
)

ROWS_BYTES = 4 * 2**20
"""About the most bytes of recorded steps in one message."""


def answer_step(port: StepPort, request: StepRequest, send: Callable[[StepAnswer], None]) -> None:
    """Pass a request on, and send the answer when it comes."""
    number = request.number
    if isinstance(request, BeginStep):
        _when_done(port.begin(request.begin), number, send, lambda answer: send(StepBegun(number, answer)))
    elif isinstance(request, EndStep):
        _when_done(port.end(request.end), number, send, lambda answer: send(StepEnded(number, answer)))
    elif isinstance(request, WaitForEvent):
        _when_done(
            port.wait_for_event(request.wait),
            number,
            send,
            lambda answer: send(EventAnswer(number, answer)),
        )
    elif isinstance(request, BeginJob):
        _when_done(
            port.begin_job(request.begin), number, send, lambda answer: send(JobRecorded(number, answer))
        )
    elif isinstance(request, ReportJob):
        _when_done(
            port.report_job(request.report), number, send, lambda answer: send(JobRecorded(number, answer))
        )
    elif isinstance(request, ReadJobItems):
        _when_done(
            port.read_job_items(request.wanted),
            number,
            send,
            lambda items: send(JobItemsRead(number, items)),
        )
    elif isinstance(request, AskApproval):
        _when_done(
            port.ask_approval(request.asked),
            number,
            send,
            lambda answer: send(ApprovalAsked(number, answer)),
        )
    else:
        _when_done(port.read(request.task_id), number, send, lambda rows: _send_rows(number, rows, send))


def _when_done(
    future: Future[Any], number: int, send: Callable[[StepAnswer], None], take: Callable[[Any], None]
) -> None:
    def done(ended: Future[Any]) -> None:
        if ended.cancelled():
            return
        error = ended.exception()
        if error is not None:
            send(StepRefused(number, str(error)))
        else:
            take(ended.result())

    future.add_done_callback(done)


def _send_rows(number: int, rows: list[StepRow], send: Callable[[StepAnswer], None]) -> None:
    part: list[StepRow] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row.data or b"")
        if size >= ROWS_BYTES:
            send(StepsRead(number, part, is_last=False))
            part, size = [], 0
    send(StepsRead(number, part, is_last=True))
