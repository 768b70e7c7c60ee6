"""The names of modules."""

from __future__ import annotations

import sys
from pathlib import Path

from tidegate.errors import ConfigError


def module_name(module: str) -> str:
    """Return the name by which others import a module, also for `__main__`.

    Raises:
        ConfigError: The module is a script without a file, which cannot be imported.
    """
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    if file is None and hasattr(sys, "ps1"):
        return "interactive"  # a notebook or a prompt, whose embedded worker finds it
    if file is None or str(file).startswith("<"):
        raise ConfigError(
            "a script that is read from stdin or given with -c cannot declare task functions: "
            "no worker can import them",
            fix="save it as a file, or import the functions from a module",
        )
    return Path(file).stem
