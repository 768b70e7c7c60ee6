"""The part of the store contract for events, which the application sends to tasks that wait."""

from __future__ import annotations

from typing import Protocol

from tidegate.store.event_rows import EventWait, NewEvent, WaitAnswer


class Events(Protocol):
    """Events, and the waits of tasks for them.

    A task receives each event of a name once, the oldest first, and all tasks that wait for a name receive
    it. An event stays until it expires, so it may be sent before a task waits for it.
    """

    async def send_event(self, event: NewEvent) -> int:
        """Store an event and give it to the tasks that wait for it; return how many.

        Suspended tasks become due at once. An event that was sent before, with the same id, changes nothing.
        """

    async def wait_for_event(self, wait: EventWait) -> WaitAnswer:
        """Begin a wait, or return what became of it.

        What a wait has ended with stays, so a later run gets the same. An open wait whose time is over ends
        now, unless its event has been sent.
        """
