"""Parse a `postgresql://` URL: the server for the driver, and a few options of Tidegate."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from tidegate.domain.readers import shown
from tidegate.errors import ConfigError

SCHEMA = "tidegate"
CONNECTIONS = 4

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_OURS = frozenset({"schema", "connections", "hints", "pooler", "listen"})
_SWITCH = {"on": True, "off": False}

_NEEDS_NOTHING = {
    "channel_binding": {"disable", "prefer"},
    "gssencmode": {"disable", "prefer"},
    "keepalives": {"1"},
    "load_balance_hosts": {"disable"},
    "requiressl": {"0"},
    "sslcertmode": {"allow"},
    "sslcompression": {"0"},
    "sslsni": {"1"},
}
"""Options of libpq, with the values that the driver satisfies anyway."""
_UNSUPPORTED = frozenset(
    {
        *_NEEDS_NOTHING,
        *("connect_timeout", "gssdelegation", "hostaddr", "keepalives_count", "keepalives_idle"),
        *("keepalives_interval", "max_protocol_version", "min_protocol_version", "replication"),
        *("require_auth", "requirepeer", "service", "servicefile", "sslcrldir", "sslnegotiation"),
        "tcp_user_timeout",
    }
)
"""Options of libpq 17 ("Parameter Key Words") that the driver would send to the server as settings."""

_UNSUPPORTED_VARIABLES = {
    "PGCHANNELBINDING": "channel_binding",
    "PGGSSENCMODE": "gssencmode",
    "PGHOSTADDR": "hostaddr",
    "PGREQUIREAUTH": "require_auth",
    "PGREQUIREPEER": "requirepeer",
    "PGREQUIRESSL": "requiressl",
    "PGSERVICE": "service",
    "PGSSLCERTMODE": "sslcertmode",
    "PGSSLCRLDIR": "sslcrldir",
}
"""Variables of libpq that choose the server or how it must authenticate, with their options in a URL. The
driver does not read them. The driver does not read PGCONNECT_TIMEOUT and others either, but those do not
matter here."""


@dataclass(frozen=True, slots=True)
class Address:
    """The location of a store and how to connect to it."""

    dsn: str
    """For the driver: hosts, database, credentials and other libpq options (`sslmode=…`)."""
    listen_dsn: str
    """For the listener. The address must bypass a pooler in transaction mode, which does not support
    LISTEN."""
    schema: str = SCHEMA
    """The schema of the tables. Applications that share a database each have their own."""
    connections: int = CONNECTIONS
    """Most connections per event loop of a process. One further connection listens for hints while a task
    waits."""
    hints: bool = True
    """Whether commits notify waiting processes (NOTIFY). Waiting processes also poll, in either case."""
    pooler: bool | None = None
    """Whether a pooler in transaction mode is in between; None: check this at each connect."""


def parse_address(url: str, env: Mapping[str, str] | None = None) -> Address:
    """Return the address in a URL. The driver takes missing parts from libpq's variables (PGHOST, PGUSER…).

    Args:
        url: `postgresql://…`.
        env: Environment variables; None: the process's own.

    Raises:
        ConfigError: An option is not supported. The message omits the URL, which may contain a password.
    """
    parts = _split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    _require_usable(os.environ if env is None else env, options)
    others = {
        word: value for word, value in options.items() if word not in _OURS and _is_for_driver(word, value)
    }
    schema = options.get("schema", SCHEMA)
    if not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise ConfigError(
            f"schema={shown(schema)} in the database URL", fix="use small letters, digits and _, at most 48"
        )
    # A path of / alone names no database: then PGDATABASE counts, or the database named like the user.
    bare = parts._replace(query=urlencode(others), path="" if parts.path == "/" else parts.path)
    return Address(
        dsn=urlunsplit(bare),
        schema=schema,
        connections=_number(options.get("connections", str(CONNECTIONS))),
        hints=_switch("hints", options["hints"]) if "hints" in options else True,
        pooler=_switch("pooler", options["pooler"]) if "pooler" in options else None,
        listen_dsn=urlunsplit(_at(bare, options["listen"]) if "listen" in options else bare),
    )


def _split(url: str) -> SplitResult:
    """Return the parts of a URL. The error for an unreadable URL shows no part of it."""
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        if "," not in hosts:  # several hosts, each with a port, are left to the driver
            _ = parts.port
        is_clear = not parts.fragment and not any(character.isspace() for character in url)
    except ValueError:
        is_clear = False
    if not is_clear:
        raise ConfigError(
            "the database URL cannot be read: it contains a character that must be percent-encoded",
            fix="percent-encode such characters of the user name and password: # is %23, @ is %40, / is %2F, "
            "a space is %20",
        ) from None
    return parts


def _is_for_driver(word: str, value: str) -> bool:
    """Return whether the driver understands an option; raise `ConfigError` if it would be ignored."""
    if value in _NEEDS_NOTHING.get(word, ()):
        return False
    if word in _UNSUPPORTED:
        raise ConfigError(
            f"{word}={shown(value)} in the database URL is not supported",
            fix=_instead(word, "take it out of the URL"),
        )
    return True


def _require_usable(env: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Raise `ConfigError` unless the driver treats libpq's variables as libpq would.

    Raises:
        ConfigError: A variable that chooses or authenticates the server would be ignored.
    """
    for variable, word in _UNSUPPORTED_VARIABLES.items():
        value = env.get(variable, "")
        if value and word not in options and value not in _NEEDS_NOTHING.get(word, ()):
            raise ConfigError(
                f"{variable}={shown(value)} in the environment is not supported",
                fix=_instead(word, f"unset {variable} for Tidegate's processes"),
            )
    if (ports := env.get("PGPORT", "")) and not all(port.isdecimal() for port in ports.split(",")):
        raise ConfigError(f"PGPORT={shown(ports)} in the environment", fix="use a number")


def _instead(word: str, undo: str) -> str:
    """Return the fix for an unsupported option of libpq."""
    if word in ("service", "servicefile"):
        return f"{undo}; name host, user and database in the URL, or in PGHOST, PGUSER and PGDATABASE"
    return f"{undo}. Tidegate sets time limits and keepalive of its connections itself"


def _at(parts: SplitResult, server: str) -> SplitResult:
    """Return the URL of the same database, as the same user, at another host and port."""
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}{server}")


def _number(word: str) -> int:
    if not word.isascii() or not word.isdigit() or not 1 <= int(word) <= 100:
        raise ConfigError(f"connections={shown(word)} in the database URL", fix="use a number from 1 to 100")
    return int(word)


def _switch(name: str, word: str) -> bool:
    if word not in _SWITCH:
        raise ConfigError(f"{name}={shown(word)} in the database URL", fix=f"use {name}=on or {name}=off")
    return _SWITCH[word]
