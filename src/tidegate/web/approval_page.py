"""The page on which the holder of a signed link answers an approval. It has no script and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape

from starlette.responses import HTMLResponse

from tidegate.codec.plain import plain
from tidegate.domain.approval import COMMENT_LENGTH
from tidegate.domain.moments import to_datetime
from tidegate.operations.approvals import describe_closed
from tidegate.store.approval_rows import ApprovalRow

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff }
h1 { font-size: 1.4rem; overflow-wrap: anywhere }
pre { background: #f3f4f6; padding: .75rem; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere }
textarea { width: 100%; box-sizing: border-box; font: inherit; padding: .5rem; color: inherit;
  background: inherit; border: 1px solid #6b7280 }
button { font: inherit; padding: .6rem 1.4rem; margin: 1rem .75rem 0 0; border-radius: .4rem; cursor: pointer;
  border: 1px solid #1b1f24; background: #fff; color: #1b1f24 }
button[value=approve] { background: #14692e; border-color: #14692e; color: #fff }
small { color: #4b5563 }
@media (prefers-color-scheme: dark) {
  body { color: #e6e8eb; background: #16181c }
  pre { background: #23262c }
  small { color: #a5abb5 }
}
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex",
}
"""No other site learns the address, which is the credential. With `no-referrer` a browser would not send the
origin of the form, which the API checks."""

_FORM = """<form method="post">
<p><label for="comment">Comment (optional)</label><br>
<textarea id="comment" name="comment" rows="3" maxlength="{limit}"></textarea></p>
<button name="answer" value="approve">Approve</button><button name="answer" value="reject">Reject</button>
</form>"""


def question_page(row: ApprovalRow) -> HTMLResponse:
    """Return the page with the question and the two buttons. Loading the page changes nothing."""
    return _page(row.question, _data(row) + _FORM.format(limit=COMMENT_LENGTH) + _facts(row))


def answered_page(row: ApprovalRow, *, status: int = 200) -> HTMLResponse:
    """Return the page that says who answered and when, or why nobody can answer any more."""
    comment = f"<p>{_text(row.comment)}</p>" if row.comment else ""
    closed = f"{describe_closed(row)}."
    return _page(row.question, f"<p><strong>{_text(closed)}</strong></p>{comment}{_data(row)}", status)


def message_page(title: str, text: str, status: int) -> HTMLResponse:
    """Return the page for a link that cannot be used."""
    return _page(title, f"<p>{_text(text)}</p>", status)


def _page(title: str, body: str, status: int = 200) -> HTMLResponse:
    content = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{_text(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{_text(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )
    return HTMLResponse(content, status, _HEADERS)


def _data(row: ApprovalRow) -> str:
    value = json.loads(bytes(plain(row.data)))
    if value is None:
        return ""
    shown = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return f"<pre>{_text(shown)}</pre>"


def _facts(row: ApprovalRow) -> str:
    facts = [f"Asked at {_moment(row.asked_at)} by task {row.task_id}."]
    if row.deadline_at is not None:
        facts.append(f"Please answer before {_moment(row.deadline_at)}.")
    if row.recipient:
        facts.append(f"Your answer is recorded as that of {row.recipient}.")
    facts.append("The first answer counts.")
    return f"<p><small>{'<br>'.join(map(_text, facts))}</small></p>"


def _moment(seconds: float) -> str:
    return f"{to_datetime(seconds):%Y-%m-%d %H:%M:%S} UTC"


def _text(text: str) -> str:
    return escape(text.encode("utf-8", "replace").decode())
