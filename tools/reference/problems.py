"""The page of the types of problems with which the HTTP API refuses a request."""

from __future__ import annotations

from tidegate.web.problems import PROBLEM_TYPES

INTRODUCTION = """\
# Problems

```console
$ curl -s -o /dev/null -w '%{http_code} %{content_type}\\n' localhost:4180/api/v1/tasks/no-such-task
404 application/problem+json
```

Every request that the [HTTP API](http-api.md) refuses is answered with `application/problem+json`. The last
part of its `type` is one of these, and never changes its meaning. A running API serves the same text at the
address in `type`.
"""


def page() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for slug in sorted(PROBLEM_TYPES):
        kind = PROBLEM_TYPES[slug]
        parts.append(f"## {slug}\n\n**{kind.status}** {kind.title}.\n\n**Fix**: {kind.fix}\n")
    return "\n".join(parts)
