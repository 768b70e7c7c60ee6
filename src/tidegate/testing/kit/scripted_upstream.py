"""A scripted upstream: what each call to an outside service gets in a test, without any socket."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from tidegate.context import current_context
from tidegate.domain.readers import Seconds, seconds_option, whole_option
from tidegate.errors import UsageError
from tidegate.testing.kit import reply_formats
from tidegate.testing.kit.results import KitError

if TYPE_CHECKING:
    from tidegate.calls.transport.transport import UpstreamTransport

Kind = Literal["answer", "stream", "hang", "unreachable", "disconnect"]
Json = Mapping[str, Any] | Sequence[Any] | str | float | bool | None


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """One call that a scripted upstream received."""

    method: str
    url: str
    headers: Mapping[str, str]
    """The headers by name, in lower case."""
    content: bytes
    task_id: str | None
    """The task that made the call; None for a call outside a task."""

    @property
    def path(self) -> str:
        """The path of the URL, without its query."""
        return "/" + self.url.partition("://")[2].partition("/")[2].partition("?")[0]

    @property
    def json(self) -> Any:
        """The body, decoded from JSON; None if there is none."""
        return json.loads(self.content) if self.content else None

    def __str__(self) -> str:
        return f"{self.method} {self.url}"


@dataclass(frozen=True, slots=True)
class Step:
    """What one call gets."""

    kind: Kind = "answer"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    events: tuple[bytes, ...] = ()
    pause_seconds: float = 0.0
    """Between two events of a stream."""
    breaks_off: bool = False
    """Whether the connection breaks after the last event."""


Make = Callable[[ScriptedRequest], Step]


class ScriptedUpstream:
    """Answers the calls to one outside service, in the order of its script.

    Made by `kit.upstream("openai")`, which takes the place of the transport inside every
    `app.upstream("openai").transport()`. A client without one gets `transport=script.transport()`.
    Each method adds to the script and returns it. A call after its end fails.

    Args:
        name: For messages.

    Example:
        >>> script = kit.upstream("openai")  # doctest: +SKIP
        >>> script.rate_limits(retry_after=30).replies("a summary")  # doctest: +SKIP
    """

    def __init__(self, name: str = "scripted") -> None:
        self.name = name
        self.requests: list[ScriptedRequest] = []
        """The calls that the upstream received, in order."""
        self.fault: KitError | None = None
        """Why a call could not be answered; None if every call was."""
        self._script: deque[Make] = deque()
        self._for_ever: Make | None = None
        self._scripted = 0
        self.pass_time: Callable[[float], None] = lambda _: None
        """Called with the seconds that a call hangs where no drain can let time pass."""

    def __repr__(self) -> str:
        return f"<scripted upstream {self.name}: {len(self.requests)} calls, {len(self._script)} to come>"

    # --- the script --------------------------------------------------------------------------------------

    def replies(self, *texts: str, times: int | None = 1) -> Self:
        """Let the model reply with a text, in the format that the call asks for, also as a stream.

        For chat completions and responses of OpenAI, and messages of Anthropic. Other services: `answers`.

        Args:
            texts: The replies of as many calls.
            times: How often the answers are given, one after another; None: to all calls that follow.
        """
        makers: list[Make] = [_replying(text) for text in texts]
        return self._add(makers, times)

    def answers(
        self,
        *bodies: Json | Callable[[ScriptedRequest], Json],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        times: int | None = 1,
    ) -> Self:
        """Answer with a body.

        Args:
            bodies: The answers of as many calls, sent as JSON. Each may be a function of the request.
            status: The HTTP status.
            headers: More headers.
            times: How often the answers are given, one after another; None: to all calls that follow.
        """
        return self._add([_answering(body, status, dict(headers or {})) for body in bodies], times)

    def rate_limits(
        self,
        *,
        retry_after: Seconds | None = None,
        message: str = "Rate limit reached",
        times: int | None = 1,
    ) -> Self:
        """Answer with status 429.

        Args:
            retry_after: The time in the header `Retry-After`; None: no such header.
            message: The text of the error.
            times: How often; None: for all calls that follow.
        """
        seconds = None if retry_after is None else seconds_option("retry_after", retry_after)
        return self.fails(
            429, message, headers={} if seconds is None else {"retry-after": f"{seconds:g}"}, times=times
        )

    def fails(
        self,
        status: int = 500,
        message: str = "scripted failure",
        *,
        headers: Mapping[str, str] | None = None,
        times: int | None = 1,
    ) -> Self:
        """Answer with an error, in the format of the provider that the path belongs to.

        Args:
            status: The HTTP status, 400 or above.
            message: The text of the error.
            headers: More headers.
            times: How often; None: for all calls that follow.
        """
        whole_option("status", status, least=400, most=599)
        return self._add([_failing(status, message, dict(headers or {}))], times)

    def streams(
        self,
        *events: Json,
        pause: Seconds = 0,
        breaks_off: bool = False,
        times: int | None = 1,
    ) -> Self:
        """Answer with server-sent events.

        Args:
            events: The data of each event, sent as JSON; text is sent as it is, such as `[DONE]`.
            pause: Time between two events.
            breaks_off: Whether the connection breaks after the last event.
            times: How often; None: for all calls that follow.
        """
        step = Step(
            "stream",
            events=tuple(reply_formats.event(data) for data in events),
            pause_seconds=seconds_option("pause", pause),
            breaks_off=breaks_off,
        )
        return self._add([lambda _: step], times)

    def hangs(self, *, times: int | None = 1) -> Self:
        """Never answer: the call ends at its time limit. In a drain that takes no real time."""
        return self._add([lambda _: Step("hang")], times)

    def unreachable(self, *, times: int | None = 1) -> Self:
        """Refuse the connection, so that nothing was sent."""
        return self._add([lambda _: Step("unreachable")], times)

    def disconnects(self, *, times: int | None = 1) -> Self:
        """Break the connection after the request was sent, without an answer."""
        return self._add([lambda _: Step("disconnect")], times)

    # --- looking -----------------------------------------------------------------------------------------

    def assert_used(self) -> None:
        """Fail the test unless every call of the script was made.

        Raises:
            KitError: Some were not.
        """
        if self._script:
            raise KitError(
                f"expected {self._scripted} calls to {self.name}; {len(self.requests)} were made:",
                [str(request) for request in self.requests] or ["none"],
                "check that the code under test reaches its calls; drain the tasks first",
            )

    def transport(self, library: Any = None) -> UpstreamTransport:
        """Return a transport for a client of `httpx2` or `httpx`, sync or async.

        Args:
            library: The module of the client's library; None uses `httpx2` if it is installed, otherwise
                `httpx`.
        """
        from tidegate.testing.kit.scripted_transport import make_transport

        made: UpstreamTransport = make_transport(self, library)
        return made

    def take(self, request: ScriptedRequest) -> Step:
        """Record a call and return what it gets.

        Raises:
            KitError: The script has ended, or `replies` has no format for the request.
        """
        self.requests.append(request)
        make = self._script.popleft() if self._script else self._for_ever
        try:
            if make is None:
                raise self._unexpected()
            return make(request)
        except KitError as fault:  # the code under test may catch it, and an SDK wraps it
            self.fault = self.fault or fault
            raise

    def _unexpected(self) -> KitError:
        return KitError(
            f"expected {self._scripted} calls to {self.name}; the last of these has no answer in the script:",
            [str(each) for each in self.requests],
            'add an answer: kit.upstream("…").replies("…"), or times=None for every further call',
        )

    def _add(self, makers: Iterable[Make], times: int | None) -> Self:
        steps = list(makers)
        if not steps:
            raise UsageError("an answer of a scripted upstream is missing", fix='write .replies("text")')
        if times is None:
            if len(steps) > 1:
                self._script.extend(steps[:-1])
                self._scripted += len(steps) - 1
            self._for_ever = steps[-1]
            return self
        for _ in range(whole_option("times", times)):
            self._script.extend(steps)
        self._scripted += len(steps) * times
        return self


def recorded_request(request: Any) -> ScriptedRequest:
    """Return a request of either library as it is recorded.

    The request's body must already have been read.
    """
    run = current_context()
    return ScriptedRequest(
        method=str(request.method),
        url=str(request.url),
        headers={str(name).lower(): str(value) for name, value in request.headers.items()},
        content=bytes(request.content),
        task_id=None if run is None else run.task_id,
    )


def _replying(text: str) -> Make:
    def make(request: ScriptedRequest) -> Step:
        asked = request.json if isinstance(request.json, dict) else {}
        if asked.get("stream"):
            events = reply_formats.reply_events(request.path, text, asked)
            if events is not None:
                return Step("stream", events=tuple(events))
        body = reply_formats.reply_body(request.path, text, asked)
        if body is None:
            raise KitError(
                f"replies() has no format for {request}",
                fix="write the body of the answer: .answers({…}), or .streams({…}, …)",
            )
        return _json_step(body, 200, {})

    return make


def _answering(
    body: Json | Callable[[ScriptedRequest], Json], status: int, headers: Mapping[str, str]
) -> Make:
    return lambda request: _json_step(body(request) if callable(body) else body, status, headers)


def _failing(status: int, message: str, headers: Mapping[str, str]) -> Make:
    return lambda request: _json_step(
        reply_formats.error_body(request.path, status, message), status, headers
    )


def _json_step(body: Any, status: int, headers: Mapping[str, str]) -> Step:
    return Step(
        status=status,
        headers={"content-type": "application/json", **headers},
        content=json.dumps(body).encode(),
    )
