"""What each folder of tests takes: printed at the end of a run, and an error if one takes too long.

A folder's seconds are its share of the run: the time of its tests, divided by the number of test processes.
`--folder-seconds` (`make test FOLDER_SECONDS=…`) is the most that a folder may take; 0, the default, only prints.
Its CPU seconds include those of the processes that its tests started and waited for.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

LISTED_FROM = 1.0
"""Seconds; folders that take less are not listed."""


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--folder-seconds", type=float, default=0.0, help="fail if the tests of one folder take longer"
    )


def folder_of(nodeid: str) -> str:
    """Return the folder of a test by its id."""
    return str(Path(nodeid.partition("::")[0]).parent)


@dataclass
class Spent:
    """What the tests of a folder took, in seconds."""

    wall: float = 0.0
    cpu: float = 0.0


class FolderTimes:
    """Adds up reports by folder, in the process that prints."""

    def __init__(self, limit: float, processes: int) -> None:
        self.limit = limit
        self.processes = max(processes, 1)
        self.spent: defaultdict[str, Spent] = defaultdict(Spent)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = self.spent[folder_of(report.nodeid)]
        spent.wall += report.duration / self.processes
        if report.when == "teardown":
            spent.cpu += sum(value for name, value in report.user_properties if name == "cpu_seconds")

    def too_slow(self) -> Iterator[str]:
        """Yield the folders that took longer than they may."""
        for folder, spent in sorted(self.spent.items()):
            if 0 < self.limit < spent.wall:
                yield folder

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and any(self.too_slow()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        listed = [(folder, each) for folder, each in self.spent.items() if each.wall >= LISTED_FROM]
        if not listed:
            return
        terminalreporter.section("seconds for each folder: of the run, of CPU")
        for folder, spent in sorted(listed, key=lambda item: -item[1].wall):
            terminalreporter.line(f"{spent.wall:7.1f} {spent.cpu:7.1f}  {folder}")
        for folder in self.too_slow():
            terminalreporter.line(
                f"{folder} took longer than {self.limit:g} s: mark its longest tests slow, or make them faster",
                red=True,
            )


class CpuTimes:
    """Adds the CPU time of each test to its report, in the process that runs it."""

    def __init__(self) -> None:
        self.before = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self.before = sum(os.times()[:4])
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.when == "teardown":
            item.user_properties.append(("cpu_seconds", sum(os.times()[:4]) - self.before))
        return (yield)


def register(config: pytest.Config) -> None:
    """Measure in each test process, and print in the one that the user started."""
    config.pluginmanager.register(CpuTimes())
    if not hasattr(config, "workerinput"):
        processes = config.getoption("numprocesses", 0) or 1
        config.pluginmanager.register(FolderTimes(config.getoption("folder_seconds"), processes))
