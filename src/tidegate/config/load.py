"""Loads the configuration: environment variables override the file, and the file overrides the defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tidegate.alerts.settings import AlertSettings
from tidegate.config import alerts, links
from tidegate.config.find import STORE, find_project
from tidegate.config.sections import (
    RETENTION_NAMES,
    TELEMETRY_NAMES,
    TIMING_NAMES,
    make_retention,
    make_timings,
    read_pools,
    read_retention,
    read_retention_setting,
    read_retries,
    read_telemetry,
    read_timing,
    read_timings,
)
from tidegate.config.table import Table, near_miss
from tidegate.domain.links import LinkSettings
from tidegate.domain.readers import shown
from tidegate.domain.retention import Retention
from tidegate.errors import ConfigError
from tidegate.limits.retry_budget import SYSTEM_RETRIES_PER_MINUTE
from tidegate.monitor.otel.settings import TelemetrySettings
from tidegate.store.connect import anchored_url
from tidegate.worker.settings import Pool, Timings

DEFAULT_DATABASE_URL = f"sqlite:///{STORE.as_posix()}"

_SECTION_KEYS = (
    "app",
    "modules",
    "database",
    "retries_per_minute",
    "retry_window",
    "worker",
    "pools",
    "retention",
    "alerts",
    "links",
    "telemetry",
)
_APP = re.compile(r"[\w.]+(?::\w+)?")
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_OTHERS = ("ALLOW_NETWORK_FS", "LOG", "MARK", "REPLAY", "RUN", "SCRATCH")  # read where they are needed
_VARIABLES = (
    "DATABASE_URL",
    "DATABASE_URL_FILE",
    "APP",
    "ENV",
    *_OTHERS,
    *alerts.VARIABLES,
    *links.VARIABLES,
    *(name.upper() for name in TIMING_NAMES),
    *(f"RETENTION_{name.upper()}" for name in RETENTION_NAMES),
    *(name.upper() for name in TELEMETRY_NAMES),
)
_PREFIX = "TIDEGATE_"
_NO_TABLE = Table({}, file="", section="links")


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration, with the origin of each value."""

    database_url: str
    app: str | None
    """The application, as `module:attribute`; None if it is not configured."""
    modules: tuple[str, ...]
    """More modules that declare task functions, besides the application's own."""
    pools: tuple[Pool, ...]
    timings: Timings
    retention: Retention
    retries_per_minute: float
    """The retry budget of the whole system."""
    retry_window: float
    """The window of the retry budget, in seconds."""
    alerts: AlertSettings
    """The rules and the sinks of alerts."""
    links: LinkSettings | None
    """Where the links of approvals lead, and what signs them; None if they are not configured."""
    telemetry: TelemetrySettings
    """What OpenTelemetry records."""
    path: Path | None
    """The file that was read; None if there is none."""
    environment: str | None
    """`TIDEGATE_ENV`, which chooses `[env.NAME]`."""
    origins: Mapping[str, str]
    """Where each value comes from: `database_url`, `app`, `pools`, `timings.lease`… Missing for defaults."""


def load_config(directory: Path | None = None, env: Mapping[str, str] | None = None) -> Config:
    """Return the configuration of a directory.

    `TIDEGATE_…` variables override `tidegate.toml`. If there is no such file, `[tool.tidegate]` of
    `pyproject.toml` is read. Values in neither are defaults. If `TIDEGATE_ENV` is NAME, `[env.NAME]`
    overrides the top of the same file, and its pools replace the others.

    Args:
        directory: The directory in which, and above which, to search a file; None for the working directory.
        env: The environment variables. None: the process's own.

    Raises:
        ConfigError: A key or value is wrong. The message names the file, section, key and value.
    """
    variables = _own_variables(os.environ if env is None else env)
    here = Path.cwd() if directory is None else directory
    path, top, project = find_project(here)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for table in _layers(top, variables.get("ENV")):
        _read_section(table, values, origins)
    _read_variables(variables, values, origins)
    timings = {name: value for name in TIMING_NAMES if (value := values.get(f"timings.{name}")) is not None}
    return Config(
        database_url=_database_url(values, origins, here, project),
        app=values.get("app"),
        modules=values.get("modules", ()),
        pools=values.get("pools", (Pool(),)),
        timings=make_timings(timings, _origin_of("timings.", origins)),
        retention=make_retention(
            _retention(values, origins, here, project), _origin_of("retention.", origins)
        ),
        retries_per_minute=values.get("retries_per_minute", SYSTEM_RETRIES_PER_MINUTE),
        retry_window=values.get("retry_window", 60.0),
        alerts=alerts.read_alert_variables(variables, values.get("alerts", AlertSettings())),
        links=links.read_link_variables(variables, values.get("links", _NO_TABLE)),
        telemetry=TelemetrySettings(
            **{name: values[key] for name in TELEMETRY_NAMES if (key := f"telemetry.{name}") in values}
        ),
        path=path,
        environment=variables.get("ENV"),
        origins=MappingProxyType(origins),
    )


def _layers(top: Table, environment: str | None) -> list[Table]:
    """Return the tables that apply. Later ones override earlier ones."""
    top.require_known((*_SECTION_KEYS, "env"))
    sections = top.table("env").tables()
    for section in sections.values():
        section.require_known(_SECTION_KEYS)
    if environment is None:
        return [top]
    if environment in sections:
        return [top, sections[environment]]
    # Without a section of that name the top of the file applies, as is usual for "production". But a typo
    # must not start the wrong pools.
    if meant := near_miss(environment, sections):
        raise ConfigError(
            f"TIDEGATE_ENV={environment}: there is no such section in {top.file}",
            fix=f"did you mean {meant}?",
            place=f"{_PREFIX}ENV",
        )
    return [top]


def _read_section(table: Table, values: dict[str, Any], origins: dict[str, str]) -> None:
    """Read one layer. This layer overrides the values of the layers before it."""
    found: dict[str, Any] = {}
    if "app" in table:
        found["app"] = _app(table.text("app"), table.place)
    if "modules" in table:
        found["modules"] = _modules(table)
    if "database" in table:
        found["database_url"] = table.text("database")
    if pools := read_pools(table.table("pools")):
        found["pools"] = pools
    if "alerts" in table:
        found["alerts"] = alerts.read_alerts(table.table("alerts"), values.get("alerts", AlertSettings()))
    if "links" in table:
        found["links"] = table.table("links")
    found |= read_retries(table)
    found |= {f"timings.{name}": value for name, value in read_timings(table.table("worker")).items()}
    retention = read_retention(table.table("retention"))
    queues = retention.pop("queues", {})
    found |= {f"retention.{name}": value for name, value in retention.items()}
    found |= {"retention.queues": values.get("retention.queues", {}) | queues} if queues else {}
    telemetry = read_telemetry(table.table("telemetry"))
    found |= {f"telemetry.{name}": value for name, value in telemetry.items()}
    values |= found
    origins |= dict.fromkeys(found, table.place)


def _modules(table: Table) -> tuple[str, ...]:
    names = table.names("modules")
    if not all(_MODULE.fullmatch(name) and not name.endswith(".py") for name in names):
        raise table.wrong("modules", 'write a list of modules: modules = ["jobs", "billing.tasks"]')
    return names


def _database_url(values: Mapping[str, Any], origins: Mapping[str, str], here: Path, project: Path) -> str:
    """Return the database URL. A relative path is anchored at the project, unless a variable set it."""
    url: str = values.get("database_url", DEFAULT_DATABASE_URL)
    if project == here.absolute() or project == here or origins.get("database_url", "").startswith(_PREFIX):
        return url
    return anchored_url(url, project)


def _retention(
    values: Mapping[str, Any], origins: Mapping[str, str], here: Path, project: Path
) -> dict[str, Any]:
    """Return the settings of retention. A relative archive is in the project, unless a variable set it."""
    found = {
        name: value
        for name in (*RETENTION_NAMES, "queues")
        if (value := values.get(f"retention.{name}")) is not None
    }
    if "archive" in found:
        is_variable = origins["retention.archive"].startswith(_PREFIX)
        found["archive"] = str((here if is_variable else project).absolute() / found["archive"])
    return found


def _own_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return our variables without their prefix. Empty variables count as unset."""
    own = {
        key.removeprefix(_PREFIX): value for key, value in env.items() if key.startswith(_PREFIX) and value
    }
    for name in sorted(own.keys() - set(_VARIABLES)):
        # Others may use the prefix (Kubernetes does for a service named tidegate), so only typos are refused.
        if meant := near_miss(name, _VARIABLES):
            raise ConfigError(
                f"there is no variable {_PREFIX}{name}",
                fix=f"did you mean {_PREFIX}{meant}?",
                place=_PREFIX + name,
            )
    return own


def _read_variables(variables: Mapping[str, str], values: dict[str, Any], origins: dict[str, str]) -> None:
    if "DATABASE_URL" in variables and "DATABASE_URL_FILE" in variables:
        raise ConfigError(
            "both TIDEGATE_DATABASE_URL and TIDEGATE_DATABASE_URL_FILE are set",
            fix="unset one of them",
            place=f"{_PREFIX}DATABASE_URL",
        )
    found: dict[str, tuple[Any, str]] = {}
    if "APP" in variables:
        found["app"] = (_app(variables["APP"], "TIDEGATE_APP"), "APP")
    if "DATABASE_URL" in variables:
        found["database_url"] = (variables["DATABASE_URL"], "DATABASE_URL")
    if "DATABASE_URL_FILE" in variables:
        found["database_url"] = (_secret(Path(variables["DATABASE_URL_FILE"])), "DATABASE_URL_FILE")
    for name in TIMING_NAMES:
        if (text := variables.get(name.upper())) is not None:
            found[f"timings.{name}"] = (_timing(name, text), name.upper())
    for name in RETENTION_NAMES:
        if (text := variables.get(f"RETENTION_{name.upper()}")) is not None:
            found[f"retention.{name}"] = (_retention_setting(name, text), f"RETENTION_{name.upper()}")
    for name in TELEMETRY_NAMES:
        if (text := variables.get(name.upper())) is not None:
            value = {"true": True, "false": False}.get(text.lower(), text)
            source = Table({name: value}, file=f"{_PREFIX}{name.upper()}", section="")
            found[f"telemetry.{name}"] = (read_telemetry(source)[name], name.upper())
    for key, (value, variable) in found.items():
        values[key] = value
        origins[key] = _PREFIX + variable


def _timing(name: str, text: str) -> float | int:
    return read_timing(
        Table({name: _number_or_text(text)}, file=f"{_PREFIX}{name.upper()}", section=""), name
    )


def _retention_setting(name: str, text: str) -> float | str:
    value = text if name.startswith("archive") else _number_or_text(text)
    place = f"{_PREFIX}RETENTION_{name.upper()}"
    return read_retention_setting(Table({name: value}, file=place, section=""), name)


def _number_or_text(text: str) -> float | int | str:
    try:
        return int(text) if text.strip().isdecimal() else float(text)
    except ValueError:
        return text


def _secret(path: Path) -> str:
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"TIDEGATE_DATABASE_URL_FILE={path} cannot be read", fix="name a readable file", place=str(path)
        ) from error
    if not text:
        raise ConfigError(
            f"TIDEGATE_DATABASE_URL_FILE={path} is empty",
            fix="write the database URL into it",
            place=str(path),
        )
    return text


def _app(text: str, place: str) -> str:
    if not _APP.fullmatch(text):
        raise ConfigError(
            f"{place}: app = {shown(text)}: invalid value",
            fix='name module and attribute: "app:app"',
            place=place,
            option="app",
        )
    return text


def _origin_of(prefix: str, origins: Mapping[str, str]) -> str:
    places = dict.fromkeys(place for key, place in origins.items() if key.startswith(prefix))
    return ", ".join(places) or "defaults"
