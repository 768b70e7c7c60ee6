"""Show the progress of the demo: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Protocol, TextIO

import click

from tidegate.testing.demo.counts import DemoCounts

_LINE_SECONDS = 3.0
_EVENTS_SHOWN = 14


class DemoView(Protocol):
    """Shows the progress of the demo."""

    def show_event(self, at_seconds: float, text: str) -> None:
        """Show one event."""

    def show_text(self, text: str) -> None:
        """Show text that stays on the screen, so that it can be copied."""

    def show(self, counts: DemoCounts) -> None:
        """Show the present counts."""

    def close(self) -> None:
        """Restore the terminal. Safe to repeat."""


def make_view(stream: TextIO) -> DemoView:
    """Return the live view for a terminal, else the plain one."""
    if stream.isatty() and find_spec("rich") is not None:
        return LiveView(stream)
    return LineView(stream)


class LineView:
    """Prints a line for each event, and the counts every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown_at = float("-inf")

    def show_event(self, at_seconds: float, text: str) -> None:
        """Print one event."""
        click.echo(f"{at_seconds:5.1f} s  {text}", file=self._stream)

    def show_text(self, text: str) -> None:
        """Print the text."""
        click.echo(text, file=self._stream)

    def show(self, counts: DemoCounts) -> None:
        """Print the counts if enough time has passed."""
        if counts.elapsed_seconds - self._shown_at < _LINE_SECONDS:
            return
        self._shown_at = counts.elapsed_seconds
        click.echo(
            f"{counts.elapsed_seconds:5.1f} s  {counts.succeeded} succeeded, {counts.dead} dead, "
            f"{counts.running} running, {counts.waiting} retrying, {counts.ready} ready; "
            f"{counts.calls} calls, {counts.throttled} throttled",
            file=self._stream,
        )

    def close(self) -> None:
        """Do nothing: there is nothing to restore."""


class LiveView:
    """Shows one bar for all tasks, the counts below it, and the last events."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False)
        self._events: list[tuple[float, str]] = []
        self._counts = DemoCounts(0.0, 0)
        self._live = Live(console=self._console, refresh_per_second=8, get_renderable=self._render)
        self._live.start()

    def show_event(self, at_seconds: float, text: str) -> None:
        """Add one event."""
        self._events = [*self._events, (at_seconds, text)][-_EVENTS_SHOWN:]

    def show_text(self, text: str) -> None:
        """Print the text above the display, without line breaks."""
        self._console.print(text, markup=False, soft_wrap=True)

    def show(self, counts: DemoCounts) -> None:
        """Show these counts from now on."""
        self._counts = counts

    def close(self) -> None:
        """Draw the display a last time and stop."""
        self._live.stop()

    def _render(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        return Group(*self._top_lines(), Text(), *(_format_event(at, text) for at, text in self._events))

    def _top_lines(self) -> list[Any]:
        from rich.text import Text

        now = self._counts
        parts = [
            ("succeeded", now.succeeded, "green"),
            ("dead", now.dead, "red"),
            ("running", now.running, "cyan"),
            ("retrying", now.waiting, "yellow"),
            ("ready", now.ready, "bright_black"),
        ]
        width = max(20, min(self._console.width - 12, 80))
        bar, legend = Text(" "), Text(" ")
        for (name, count, colour), cells in zip(
            parts, split_width([count for _, count, _ in parts], width), strict=True
        ):
            bar.append("█" * cells, colour)
            legend.append("■ ", colour).append(f"{name} {count}   ")
        bar.append(f" {now.succeeded + now.dead}/{now.submitted}", "bold")
        provider = Text(f" provider: {now.calls} calls, {now.throttled} of them refused with 429")
        return [
            Text(f" {now.elapsed_seconds:4.0f} s", "bold").append("   tidegate demo", "dim"),
            bar,
            legend,
            provider,
        ]


def _format_event(at_seconds: float, text: str) -> Any:
    from rich.text import Text

    return Text(f" {at_seconds:5.1f} s  ", "dim", no_wrap=True, overflow="ellipsis").append(text, "not dim")


def split_width(counts: list[int], width: int) -> list[int]:
    """Divide a width among counts in proportion; the cells add up to the width unless all counts are 0."""
    total = sum(counts)
    if total <= 0:
        return [0] * len(counts)
    edges = [round(width * sum(counts[: index + 1]) / total) for index in range(len(counts))]
    return [edge - before for before, edge in zip([0, *edges], edges, strict=False)]
