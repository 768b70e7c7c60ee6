"""Why a message was not delivered."""

from __future__ import annotations


class DeliveryError(Exception):
    """A message was not delivered, or it is unknown whether it was.

    Args:
        why: For people, without secrets.
        wait_seconds: How long the receiver asks to wait; None if it does not ask.
        is_gone: Whether the receiver wants no more messages.
    """

    def __init__(self, why: str, *, wait_seconds: float | None = None, is_gone: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.wait_seconds = wait_seconds
        self.is_gone = is_gone
