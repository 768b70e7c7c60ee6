"""Key rings: several API keys of one upstream, each with its own limits and gate.

Secrets are read from the environment or a file when they are needed. Secrets are never stored, logged or
shown.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from tidegate.domain.readers import shown
from tidegate.errors import ConfigError, OptionError
from tidegate.limits.options import UpstreamLimits, make_limits
from tidegate.limits.settings import GateKind, LimitDeclaration
from tidegate.limits.values import key_gate_name


class Key:
    """One API key of an upstream.

    Args:
        name: The key's name in the store and on screens; never the secret.
        env: The environment variable that holds the secret. Give either this or `file`.
        file: The file that holds the secret.
        environment: The key is used only if `TIDEGATE_ENV` is this. Empty: always.
        functions: The names of the task functions that use the key. Empty: all.
        kind: Calls fail over only to keys of the same kind, such as `paid`.
        limits: The key's limits, as for an upstream.

    Raises:
        OptionError: The key names no source or two sources, or a limit is invalid.
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
            raise OptionError(
                f"key {shown(name)}",
                fix="give either env= or file=",
                option="env",
                value=env,
            )
        if not name or "#" in name:
            raise OptionError(
                f"key name {shown(name)}", fix="use a name without #", option="name", value=name
            )
        self.name = name
        self.environment = environment
        self.functions = frozenset(functions)
        self.kind = kind
        self.limits = make_limits(**limits)
        self._env, self._file = env, file

    def __repr__(self) -> str:
        return f"<key {self.name}>"

    def secret(self) -> str:
        """Read the secret and return it.

        Raises:
            ConfigError: The file cannot be read, or the variable or file is empty.
        """
        try:
            found = os.environ.get(self._env, "") if self._env else Path(self._file).read_text("utf-8")
        except OSError as error:
            raise ConfigError(
                f"the key {self.name} cannot be read: {error}", fix="check file=", place=str(self._file)
            ) from error
        if not found.strip():
            where = f"the variable {self._env}" if self._env else str(self._file)
            raise ConfigError(
                f"the key {self.name} is missing: {where} is empty",
                fix="set it, or remove the key",
                place=self._env or str(self._file),
            )
        return found.strip()


class KeyRing:
    """The keys of one upstream that may be used in this environment.

    Args:
        upstream: The upstream's name.
        keys: The keys, the preferred ones first.
        environment: The current `TIDEGATE_ENV`; empty if it is not set.
    """

    def __init__(self, upstream: str, keys: Sequence[Key], environment: str) -> None:
        names = [key.name for key in keys]
        if len(set(names)) < len(names):
            raise OptionError(
                f"upstream {upstream}: two keys have the same name",
                fix="rename one of them",
                option="keys",
                value=names,
            )
        self.upstream = upstream
        self.keys = tuple(key for key in keys if key.environment in ("", environment))
        if keys and not self.keys:
            raise ConfigError(
                f"upstream {upstream} has no key for the environment {environment or '(none)'}",
                fix="add one, or set TIDEGATE_ENV",
            )

    def declared(self) -> list[LimitDeclaration]:
        """Return the declarations for the store: one gate per key."""
        return [
            LimitDeclaration(GateKind.UPSTREAM, key_gate_name(self.upstream, key.name), key.limits)
            for key in self.keys
        ]

    def check(self) -> None:
        """Check that the secret of every key can be read.

        Raises:
            ConfigError: A secret is missing.
        """
        for key in self.keys:
            key.secret()

    def candidates(self, function: str) -> list[Key]:
        """Return the key for a function, followed by the keys to which calls may fail over.

        A key that names the function is preferred to a key for all functions. Calls fail over only to keys of
        the same environment and kind.
        """
        named = [key for key in self.keys if function in key.functions]
        fitting = named + [key for key in self.keys if not key.functions]
        if not fitting:
            return []
        first = fitting[0]
        return [key for key in fitting if (key.environment, key.kind) == (first.environment, first.kind)]
