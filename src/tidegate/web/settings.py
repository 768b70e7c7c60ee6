"""The settings of the HTTP API: which requests it accepts, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.alerts.settings import AlertSettings

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Hosts, origins and limits. Sizes are in bytes, times in seconds."""

    hosts: tuple[str, ...] = ()
    """Host names of this API, without port, in addition to the loopback names; `*` for any. A request for a
    different host is refused, because another site may have pointed its own name at this machine."""
    origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may call this API, such as `https://app.example`. Pages of this
    API's own origin always may."""
    open_without_tokens: bool = False
    """Accept requests from this machine itself as admin until the first token is created. For development.
    Requests through a proxy always need a token. All requests need a token if `hosts` or `origins` name more
    than loopback addresses."""
    body_limit: int = 1_310_720
    """The largest body of one request."""
    batch_body_limit: int = 8_388_608
    """The largest body of a batch submit."""
    depth_limit: int = 64
    """The deepest nesting of the JSON."""
    value_limit: int = 150_000
    """The most values in one request's JSON. Each comma counts as one value, each array and object as four.
    The default is enough for 128,000 token numbers."""
    batch_value_limit: int = 300_000
    """The most values in the JSON of a batch submit."""
    batch_limit: int = 1_000
    """The most tasks in a batch, and the most ids in a bulk action."""
    page_limit: int = 200
    """The most items in a page."""
    wait_limit: float = 20.0
    """The longest time of `Prefer: wait`."""
    waiters: int = 400
    """How many requests may wait at the same time; others get 202 without a wait. One token may use as much
    of this limit as is free, and all tokens of a tenant twice as much. The same holds for `followers` and
    `bodies_in_flight`."""
    bodies_in_flight: int = 67_108_864
    """The most bytes of all bodies that are read, checked and stored at the same time; other requests get
    429."""
    followers: int = 5_000
    """How many streams may be open at the same time; others get 503."""
    heartbeat: float = 10.0
    """Time between two keep-alive messages on an idle stream."""
    send_limit: float = 60.0
    """How long a follower may read nothing before its stream is closed."""
    read_limit: float = 30.0
    """How long the body of a request may take."""
    token_memory: float = 2.0
    """How long a valid token is cached. A revocation takes effect after this time at the latest."""
    alerts: AlertSettings | None = None
    """The rules and sinks of alerts that this process evaluates, as `tidegate web` does; None to evaluate no
    alerts. `load_config().alerts` of `tidegate.config` returns the settings in `tidegate.toml`."""
