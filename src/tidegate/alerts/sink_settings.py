"""The settings of sinks: where messages are sent. The values are checked when they are created.

No repr shows a secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tidegate.alerts.signature import decode_secret
from tidegate.domain.readers import Seconds, name_option, seconds_option, set_fields, texts_option
from tidegate.errors import OptionError

SECRET_FIX = "use whsec_ and base64 of 24 to 64 random bytes: openssl rand -base64 32"  # noqa: S105 - an advice
_LONGEST_SECONDS = 60.0
FINAL_STATES = ("dead", "succeeded", "cancelled")
"""The final states of tasks about which a sink can get messages."""


@dataclass(frozen=True, slots=True)
class TaskMessages:
    """Which tasks a sink gets messages about, when they become final."""

    states: tuple[str, ...] = ()
    """The final states to report; empty: no messages about tasks."""
    queues: tuple[str, ...] = ()
    """The queues whose tasks are reported; empty: every queue."""
    functions: tuple[str, ...] = ()
    """The functions whose tasks are reported; empty: every function."""


@dataclass(frozen=True, slots=True)
class LogSink:
    """Writes messages to the log of the process that evaluates."""

    name: str
    sends_alerts: bool = True
    tasks: TaskMessages = TaskMessages()

    @property
    def target(self) -> str:
        """A description of the sink for people, without secrets."""
        return "the log"


@dataclass(frozen=True, slots=True, init=False)
class WebhookSink:
    """Posts messages as JSON, signed by the rules of Standard Webhooks.

    Raises:
        OptionError: A value is not allowed.
    """

    name: str
    url: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    """Every secret signs each message, so that a receiver can move from one secret to the next without a
    gap."""
    timeout: float
    sends_alerts: bool = True
    tasks: TaskMessages = TaskMessages()

    def __init__(
        self,
        name: str,
        url: str,
        secrets: Sequence[str],
        *,
        timeout: Seconds = 10.0,
        sends_alerts: bool = True,
        tasks: TaskMessages | None = None,
    ) -> None:
        place = f"sink {name_option('sink name', name)}: "
        if not secrets or any(not isinstance(each, str) or decode_secret(each) is None for each in secrets):
            raise OptionError(f"{place}secret=***", fix=SECRET_FIX, option="secret")
        set_fields(
            self,
            name=name,
            url=read_url(place, url),
            secrets=tuple(secrets),
            timeout=_timeout(place, timeout),
            sends_alerts=sends_alerts,
            tasks=tasks or TaskMessages(),
        )

    @property
    def target(self) -> str:
        """A description of the sink for people, without secrets: the server only."""
        return _server_of(self.url)


@dataclass(frozen=True, slots=True, init=False)
class SlackSink:
    """Posts a text to an incoming webhook of Slack, or of another chat that takes its form.

    Raises:
        OptionError: A value is not allowed.
    """

    name: str
    url: str = field(repr=False)
    timeout: float
    sends_alerts: bool = True
    tasks: TaskMessages = TaskMessages()

    def __init__(
        self,
        name: str,
        url: str,
        *,
        timeout: Seconds = 10.0,
        sends_alerts: bool = True,
        tasks: TaskMessages | None = None,
    ) -> None:
        place = f"sink {name_option('sink name', name)}: "
        set_fields(
            self,
            name=name,
            url=read_url(place, url),
            timeout=_timeout(place, timeout),
            sends_alerts=sends_alerts,
            tasks=tasks or TaskMessages(),
        )

    @property
    def target(self) -> str:
        """A description of the sink for people, without secrets: the server only."""
        return _server_of(self.url)


@dataclass(frozen=True, slots=True, init=False)
class CommandSink:
    """Runs a program with the message as JSON on its standard input.

    Raises:
        OptionError: A value is not allowed.
    """

    name: str
    command: tuple[str, ...] = field(repr=False)
    """The program and its arguments. No shell is used."""
    timeout: float
    sends_alerts: bool = True
    tasks: TaskMessages = TaskMessages()

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        timeout: Seconds = 30.0,
        sends_alerts: bool = True,
        tasks: TaskMessages | None = None,
    ) -> None:
        place = f"sink {name_option('sink name', name)}: "
        words = texts_option(f"{place}command", command)
        if not words:
            raise OptionError(
                f"{place}command=[]", fix='write a list: ["/usr/local/bin/page", "oncall"]', option="command"
            )
        set_fields(
            self,
            name=name,
            command=words,
            timeout=_timeout(place, timeout),
            sends_alerts=sends_alerts,
            tasks=tasks or TaskMessages(),
        )

    @property
    def target(self) -> str:
        """A description of the sink for people, without secrets: the program only."""
        return self.command[0]


Sink = LogSink | WebhookSink | SlackSink | CommandSink


def target_hash(url: str) -> str:
    """Return a hash that shows whether an address has changed, without the address itself."""
    return hashlib.sha256(url.encode()).hexdigest()


def read_url(place: str, url: str) -> str:
    """Return the URL of an HTTP server.

    Raises:
        OptionError: The value is no such URL. The message does not contain it, because its path may be a
            secret.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        is_usable = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.username is None
            and (parts.port is None or parts.port > 0)
            and url.isascii()
            and url.isprintable()
            and " " not in url
        )
    except ValueError:
        is_usable = False
    if not is_usable:
        raise OptionError(
            f"{place}url is not usable",
            fix="write https://HOST/PATH, in ASCII and without user and password",
            option="url",
        )
    return url


def _server_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def _timeout(place: str, value: Seconds) -> float:
    return seconds_option(f"{place}timeout", value, least=0.1, most=_LONGEST_SECONDS)
