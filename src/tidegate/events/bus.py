"""`EventBus`: passes the events of one application in this process to their subscribers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from tidegate.events.flushing import Flusher
from tidegate.events.values import Event

E = TypeVar("E", bound=Event)

_log = logging.getLogger("tidegate.events")


class EventBus:
    """Holds the subscribers by the type of their events.

    An event costs only what its subscribers do: code that emits calls `wants` first, and makes no event
    without a subscriber.
    """

    def __init__(self) -> None:
        self._subscribers: dict[type[Event], tuple[Callable[[Event], object], ...]] = {}
        self._failed: set[tuple[type[Event], int]] = set()
        """The event types and subscriber ids whose error was logged."""
        self.exporters = Flusher()
        """The exporters to which subscribers send."""

    def subscribe(self, kind: type[E], subscriber: Callable[[E], object]) -> None:
        """Call this function with each event of a type, after the functions that subscribed earlier."""
        known = self._subscribers.get(kind, ())
        self._subscribers[kind] = (*known, subscriber)  # type: ignore[arg-type]

    def wants(self, kind: type[Event]) -> bool:
        """Return whether anything subscribes to events of this type."""
        return kind in self._subscribers

    def emit(self, event: Event) -> None:
        """Call the subscribers of an event. Their errors are logged once each, and never raised.

        Raises:
            KeyboardInterrupt: A person interrupted the program while a subscriber ran.
        """
        for subscriber in self._subscribers.get(type(event), ()):
            try:
                subscriber(event)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # no error of a subscriber may end a run
                self._log_once(type(event), subscriber, error)

    def _log_once(
        self, kind: type[Event], subscriber: Callable[[Event], object], error: BaseException
    ) -> None:
        if (kind, id(subscriber)) in self._failed:
            return
        self._failed.add((kind, id(subscriber)))
        name = getattr(subscriber, "__qualname__", None) or type(subscriber).__qualname__
        _log.error(
            "the subscriber %s of %s failed. Its next errors are not logged; the run is not affected",
            name,
            kind.__name__,
            exc_info=error,
        )
