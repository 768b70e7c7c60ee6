"""List the questions that tasks ask people, and answer them: with a token, or with a signed link."""

from __future__ import annotations

import json
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from tidegate.domain.approval import KEY_LENGTH, ApprovalState
from tidegate.domain.links import PATH, SignedApproval, verify
from tidegate.errors import ApprovalClosedError, ApprovalNotFoundError, OptionError, StoreError
from tidegate.operations import approvals
from tidegate.operations.approvals import ApprovalFilters
from tidegate.store.approval_rows import ApprovalRow
from tidegate.web.api_context import ApiContext, TaskId, json_response
from tidegate.web.approval_page import answered_page, message_page, question_page
from tidegate.web.approval_schemas import AnswerApprovalRequest, ApprovalOut, ApprovalPage, to_approval_out
from tidegate.web.problems import Problem
from tidegate.web.protected_routes import (
    OPERATORS,
    READERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)
from tidegate.web.routes.tasks import Limit, Text, state_or_any

_LARGEST = 2**53
_LONGEST_TOKEN = 2_000
_LARGEST_FORM = 65_536
_MOST_FIELDS = 10

Key = Annotated[str, Path(max_length=KEY_LENGTH, description="The key of the question.")]
AfterApproval = Annotated[
    int | None, Query(ge=1, le=_LARGEST, description="The `next` of the previous page.")
]


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes. A tenant's token sees and answers the questions of its own tasks only."""
    _add_list_route(api, context)
    _add_answer_route(api, context)
    _add_page_routes(api, context)


def _add_list_route(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "GET", "/api/v1/approvals", AccessRule(READERS), responses={200: ResponseSpec("A page", ApprovalPage)}
    )
    async def list_approvals(
        request: Request,
        state: Text = None,
        task: Text = None,
        function: Text = None,
        tenant: Text = None,
        after: AfterApproval = None,
        limit: Limit = 50,
    ) -> Response:
        """Return one page of approvals, in the order of the questions.

        `state`: default `open`, those that can be answered; `all` for any.
        """
        limit = min(limit, context.settings.page_limit)
        filters = ApprovalFilters(task=task, function=function, tenant=principal_of(request).tenant or tenant)
        rows = await approvals.list_approvals(
            await context.store(),
            filters,
            state=state_or_any(state, ApprovalState.OPEN),
            after=after,
            limit=limit,
        )
        following = rows[-1].number if len(rows) == limit else None
        return json_response(ApprovalPage([to_approval_out(row) for row in rows], following))


def _add_answer_route(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "POST",
        "/api/v1/tasks/{task_id}/approvals/{key}",
        AccessRule(OPERATORS),
        body=AnswerApprovalRequest,
        responses={200: ResponseSpec("The answer is recorded", ApprovalOut)},
    )
    async def answer_approval(request: Request, task_id: TaskId, key: Key) -> Response:
        """Answer a question of a task. The task goes on within about a second.

        The first answer counts. If somebody has answered, the 409 names who and when. The same answer of
        the same token is accepted again.
        """
        principal = principal_of(request)
        task = await context.row(task_id, principal)
        asked = await context.read_body(request, AnswerApprovalRequest)
        try:
            row = await approvals.answer(
                await context.store(),
                task.id,
                key,
                approved=asked.approved,
                by=principal.name,
                comment=asked.comment,
                data=json.loads(bytes(asked.data)),
                tenant=principal.tenant,
            )
        except ApprovalClosedError as error:
            at = error.at or None
            raise Problem(
                "refused", error.message, code=error.code, state=error.state, by=error.by, at=at
            ) from error
        action, target, answer = approvals.audit_facts(row)
        await context.audit.record_action(principal, action, [(target, answer)], asked.comment)
        return json_response(to_approval_out(row))


def _add_page_routes(api: ProtectedRouter, context: ApiContext) -> None:
    path = PATH + "{token}"
    pages = {
        200: ResponseSpec("The page", str),
        404: ResponseSpec("The link is not valid", str),
        410: ResponseSpec("The link has expired, or nobody waits for the answer", str),
        503: ResponseSpec("The store cannot be reached", str),
    }
    answers = {
        400: ResponseSpec("The form is not complete", str),
        409: ResponseSpec("Somebody has answered; the page says who", str),
    }

    @api.public_route(path, pages, media_type="text/html")
    async def approval_page(request: Request, token: str) -> Response:
        """Show the question of a signed link. This changes nothing, so a scanner of mail may load it."""
        try:
            found = await _linked(context, token)
        except StoreError:
            return _unavailable()
        if isinstance(found, Response):
            return found
        if found.can_be_answered:
            return question_page(found)
        return answered_page(found, status=200 if found.answered_by else 410)

    @api.public_route(path, pages | answers, method="POST", media_type="text/html")
    async def answer_by_link(request: Request, token: str) -> Response:
        """Answer the question of a signed link, with the form of its page."""
        form = await _form(request)
        if form is None:
            return message_page("Nothing was recorded", "The form is not complete. Please go back.", 400)
        try:
            found = await _linked(context, token)
            if isinstance(found, Response):
                return found
            return answered_page(await _answer(context, found, *form))
        except ApprovalClosedError as error:
            assert isinstance(found, ApprovalRow)
            row = await approvals.get_approval(await context.store(), found.task_id, found.key)
            return answered_page(row, status=409 if error.by else 410)
        except ApprovalNotFoundError:
            return _gone()
        except OptionError as error:
            return message_page("Nothing was recorded", f"{error.option}: {error.fix}. Please go back.", 400)
        except StoreError:
            return _unavailable()


async def _answer(context: ApiContext, found: ApprovalRow, answer: str, comment: str) -> ApprovalRow:
    return await approvals.answer_recorded(
        await context.store(),
        found.task_id,
        found.key,
        approved=answer == "approve",
        by=f"{found.recipient} (link)" if found.recipient else "holder of the link",
        comment=comment,
    )


async def _linked(context: ApiContext, token: str) -> ApprovalRow | Response:
    """Return the approval that a link names, or the page that says why there is none."""
    links = context.core.links
    signed = None if links is None or len(token) > _LONGEST_TOKEN else verify(links.keys, token)
    if signed is None:
        return message_page(
            "This link is not valid", "It is incomplete or was changed. Please open it as it was sent.", 404
        )
    store = await context.store()
    if signed.expires_at <= await store.now():
        return message_page("This link has expired", "It can no longer be used.", 410)
    return await _approval(context, signed) or _gone()


async def _approval(context: ApiContext, signed: SignedApproval) -> ApprovalRow | None:
    try:
        return await approvals.get_approval(await context.store(), signed.task_id, signed.key)
    except ApprovalNotFoundError:
        return None


async def _form(request: Request) -> tuple[str, str] | None:
    """Return the answer and the comment of a form; None if there is no such answer."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM:
            return None
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        return None
    answer = fields.get("answer", [""])[0]
    comment = fields.get("comment", [""])[0].replace("\r\n", "\n").strip()
    return (answer, comment) if answer in ("approve", "reject") else None


def _gone() -> Response:
    return message_page("This question no longer exists", "Its task was deleted. Nobody waits.", 410)


def _unavailable() -> Response:
    return message_page("Please try again in a moment", "Nothing was recorded: the store is away.", 503)
