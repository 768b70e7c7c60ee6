"""Key rings: several API keys of one upstream, each with limits and a gate of its own.

Secrets come from the environment or a file when they are needed, and are never stored, logged or shown.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from tidegate.errors import ConfigError, OptionError
from tidegate.limits.options import UpstreamLimits, make_limits
from tidegate.limits.settings import GateKind, LimitDeclaration
from tidegate.limits.values import key_gate_name
from tidegate.readers import shown


class Key:
    """One API key of an upstream.

    Args:
        name: How it is called in the store and on screens; never the secret.
        env: The environment variable that holds the secret.
        file: Or the file that holds it.
        environment: The `TIDEGATE_ENV` it is for; empty: any.
        functions: Names of the task functions it is for; none: all.
        kind: Failing over goes only to keys of the same kind, such as `paid`.
        limits: As of an upstream.

    Raises:
        OptionError: It names no source or two, or a limit cannot work.
    """

    def __init__(
        self,
        name: str,
        *,
        env: str = "",
        file: str | Path = "",
        environment: str = "",
        functions: Sequence[str] = (),
        kind: str = "",
        **limits: Unpack[UpstreamLimits],
    ) -> None:
        if bool(env) == bool(file):
            raise OptionError(f"key {shown(name)}", fix="say where it is: env= or file=, one of them")
        if not name or "#" in name:
            raise OptionError(f"key name {shown(name)}", fix="use a name without #")
        self.name = name
        self.environment = environment
        self.functions = frozenset(functions)
        self.kind = kind
        self.limits = make_limits(**limits)
        self._env, self._file = env, file

    def __repr__(self) -> str:
        return f"<key {self.name}>"

    def secret(self) -> str:
        """Return the secret, read now.

        Raises:
            ConfigError: It is not where it should be.
        """
        try:
            found = os.environ.get(self._env, "") if self._env else Path(self._file).read_text("utf-8")
        except OSError as error:
            raise ConfigError(f"the key {self.name} cannot be read: {error}", fix="check file=") from error
        if not found.strip():
            where = f"the variable {self._env}" if self._env else str(self._file)
            raise ConfigError(
                f"the key {self.name} is missing: {where} is empty", fix="set it, or leave it out"
            )
        return found.strip()


class KeyRing:
    """The keys of one upstream that may be used in this environment.

    Args:
        upstream: Its name.
        keys: In the order in which they are preferred.
        environment: The present one; empty: none is named.
    """

    def __init__(self, upstream: str, keys: Sequence[Key], environment: str) -> None:
        names = [key.name for key in keys]
        if len(set(names)) < len(names):
            raise OptionError(f"upstream {upstream}: two keys have one name", fix="name each differently")
        self.upstream = upstream
        self.keys = tuple(key for key in keys if key.environment in ("", environment))
        if keys and not self.keys:
            raise ConfigError(
                f"upstream {upstream} has no key for the environment {environment or '(none)'}",
                fix="add one, or set TIDEGATE_ENV",
            )

    def declared(self) -> list[LimitDeclaration]:
        """Return what is told to the store: a gate for each key."""
        return [
            LimitDeclaration(GateKind.UPSTREAM, key_gate_name(self.upstream, key.name), key.limits)
            for key in self.keys
        ]

    def check(self) -> None:
        """Do nothing if every secret is there.

        Raises:
            ConfigError: One is missing.
        """
        for key in self.keys:
            key.secret()

    def candidates(self, function: str) -> list[Key]:
        """Return the key for a function, then those it may fail over to: of one environment and kind.

        A key that names the function is preferred to one for all of them.
        """
        mine = [key for key in self.keys if function in key.functions]
        fitting = mine + [key for key in self.keys if not key.functions]
        if not fitting:
            return []
        first = fitting[0]
        return [key for key in fitting if (key.environment, key.kind) == (first.environment, first.kind)]
