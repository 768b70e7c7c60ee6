"""How an HTTP API is set up: who is let in, and what one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Limits and names. Sizes in bytes, times in seconds."""

    hosts: tuple[str, ...] = ()
    """Names this API is reached by, besides the loopback ones, without port; `*` for any. A request for
    another host is refused: a page elsewhere may have pointed its own name at this machine."""
    origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may call this API, as `https://app.example`. Its own always may."""
    open_without_tokens: bool = False
    """Let requests in as admin that come from this machine itself, as long as no token was ever made. For
    development. Requests through a proxy always need a token; so do all if `hosts` or `origins` name more
    than loopback addresses."""
    body_limit: int = 1_310_720
    """Of one request."""
    batch_body_limit: int = 8_388_608
    """Of a batch submit."""
    depth_limit: int = 64
    """Of nested JSON."""
    value_limit: int = 150_000
    """Values in one request's JSON: each comma counts as one, each array and object as four. It takes 128,000
    token numbers."""
    batch_value_limit: int = 300_000
    """Values in a batch submit's JSON."""
    batch_limit: int = 1_000
    """Tasks in a batch, and ids in a bulk act."""
    page_limit: int = 200
    """Items in a page."""
    wait_limit: float = 20.0
    """Longest `Prefer: wait`."""
    waiters: int = 400
    """Requests that wait at once; more are answered 202 without a wait. Of these, of the open streams and of
    the bodies in flight a token may hold as many as are free, and all tokens of a tenant twice as many."""
    bodies_in_flight: int = 67_108_864
    """Of requests that are read, checked and stored at once; more are refused with 429."""
    followers: int = 5_000
    """Open streams at once; more are refused with 503."""
    heartbeat: float = 10.0
    """Between two signs of life on a stream where nothing happens."""
    send_limit: float = 60.0
    """A follower that takes in nothing for so long is dropped."""
    read_limit: float = 30.0
    """A request whose body is not there by then is refused."""
    token_memory: float = 2.0
    """How long a token is believed without asking the store; a revocation is in force after it."""
