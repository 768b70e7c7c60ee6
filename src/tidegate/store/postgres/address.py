"""What a `postgresql://` URL says: which server for the driver, and a few words for Tidegate."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from tidegate.errors import ConfigError
from tidegate.readers import shown

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
"""Words of libpq with the values that ask for no more than the driver does anyway."""
_UNSUPPORTED = frozenset(
    {
        *_NEEDS_NOTHING,
        *("connect_timeout", "gssdelegation", "hostaddr", "keepalives_count", "keepalives_idle"),
        *("keepalives_interval", "max_protocol_version", "min_protocol_version", "replication"),
        *("require_auth", "requirepeer", "service", "servicefile", "sslcrldir", "sslnegotiation"),
        "tcp_user_timeout",
    }
)
"""Words of libpq 17 (its "Parameter Key Words") that the driver would hand to the server as settings."""

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
"""Variables of libpq that say which server is meant or what it must prove, with their words in a URL. The
driver does not read them. Nor does it read PGCONNECT_TIMEOUT and others, but those choose no server."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is and how to reach it."""

    dsn: str
    """For the driver: hosts, database, credentials, and what else libpq knows (`sslmode=…`)."""
    listen_dsn: str
    """For the listener, which a pooler in transaction mode cannot serve: a direct way around it."""
    schema: str = SCHEMA
    """Of the tables; one for each application that shares the database."""
    connections: int = CONNECTIONS
    """At most, for each event loop of a process; one more listens for hints, where somebody waits."""
    hints: bool = True
    """Whether commits are told to waiting processes (NOTIFY). Polling goes on either way."""
    pooler: bool | None = None
    """Whether a pooler in transaction mode is in between; None: found out at each connect."""


def parse_address(url: str, env: Mapping[str, str] | None = None) -> Address:
    """Return what a URL says. What it leaves open the driver takes from libpq's variables (PGHOST, PGUSER…).

    Args:
        url: `postgresql://…`.
        env: None: the environment of the process.

    Raises:
        ConfigError: A word in it cannot work. The URL is not repeated: it may hold a password.
    """
    parts = _split(url)
    words = dict(parse_qsl(parts.query, keep_blank_values=True))
    _demand_usable(os.environ if env is None else env, words)
    others = {
        word: value for word, value in words.items() if word not in _OURS and _is_for_driver(word, value)
    }
    schema = words.get("schema", SCHEMA)
    if not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise ConfigError(
            f"schema={shown(schema)} in the database URL", fix="use small letters, digits and _, at most 48"
        )
    # A path of / alone names no database, which is then the variable's or the user's.
    bare = parts._replace(query=urlencode(others), path="" if parts.path == "/" else parts.path)
    return Address(
        dsn=urlunsplit(bare),
        schema=schema,
        connections=_number(words.get("connections", str(CONNECTIONS))),
        hints=_switch("hints", words["hints"]) if "hints" in words else True,
        pooler=_switch("pooler", words["pooler"]) if "pooler" in words else None,
        listen_dsn=urlunsplit(_at(bare, words["listen"]) if "listen" in words else bare),
    )


def _split(url: str) -> SplitResult:
    """Return the parts of a URL; the error for one that cannot be read shows nothing of it."""
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
            "the database URL cannot be read: it holds a character with a meaning of its own",
            fix="percent-encode such characters of the user name and password: # is %23, @ is %40, / is %2F, "
            "a space is %20",
        ) from None
    return parts


def _is_for_driver(word: str, value: str) -> bool:
    """Return whether the driver understands a word; refuse one that would be lost."""
    if value in _NEEDS_NOTHING.get(word, ()):
        return False
    if word in _UNSUPPORTED:
        raise ConfigError(
            f"{word}={shown(value)} in the database URL is not supported",
            fix=_instead(word, "take it out of the URL"),
        )
    return True


def _demand_usable(env: Mapping[str, str], words: Mapping[str, str]) -> None:
    """Do nothing if the driver takes libpq's variables as libpq would.

    Raises:
        ConfigError: One would be lost, and with it the server that is meant or what it must prove.
    """
    for variable, word in _UNSUPPORTED_VARIABLES.items():
        value = env.get(variable, "")
        if value and word not in words and value not in _NEEDS_NOTHING.get(word, ()):
            raise ConfigError(
                f"{variable}={shown(value)} in the environment is not supported",
                fix=_instead(word, f"unset {variable} for Tidegate's processes"),
            )
    if (ports := env.get("PGPORT", "")) and not all(port.isdecimal() for port in ports.split(",")):
        raise ConfigError(f"PGPORT={shown(ports)} in the environment", fix="use a number")


def _instead(word: str, undo: str) -> str:
    """Return how to do without a word of libpq."""
    if word in ("service", "servicefile"):
        return f"{undo}; name host, user and database in the URL, or in PGHOST, PGUSER and PGDATABASE"
    return f"{undo}. Connections have time limits and keepalive of their own"


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
