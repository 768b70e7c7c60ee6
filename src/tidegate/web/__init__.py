"""The HTTP API: submit a task, get its `task_id`, follow it live. Needs `tidegate[server]`.

Nothing else in Tidegate imports this room: a client or worker loads no web framework.
"""

from tidegate.domain.access import Principal, Role
from tidegate.web.app import create_app
from tidegate.web.settings import WebSettings

__all__ = ["Principal", "Role", "WebSettings", "create_app"]
