"""The HTTP API: submit a task, get its `task_id`, follow it live. Needs `tidegate[server]`.

No other part of Tidegate imports this package, so clients and workers load no web framework.
"""

from tidegate.domain.access import Principal, Role
from tidegate.web.app import create_app
from tidegate.web.settings import WebSettings

__all__ = ["Principal", "Role", "WebSettings", "create_app"]
