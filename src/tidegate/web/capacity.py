"""Places that all requests of a process share, of which one token or tenant cannot take all."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from tidegate.domain.access import Principal

Holder = tuple[str, ...]


class SharedCapacity:
    """A number of places: open streams, waiting requests, bytes of bodies in flight.

    A token may hold as many as are free, and all tokens of a tenant twice as many. So one token alone gets
    half of the places and one tenant two thirds, several greedy ones share the rest evenly, and a newcomer
    always finds some free. Nothing has to be configured for each token. The rule is that of dynamic
    thresholds for shared buffers (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).

    Args:
        total: How many there are.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = 0
        self._used_by: Counter[Holder] = Counter()

    @property
    def taken(self) -> int:
        """How many are taken just now."""
        return self._taken

    @contextlib.contextmanager
    def take(self, principal: Principal, amount: int = 1) -> Iterator[None]:
        """Hold places for the block.

        Args:
            principal: Who holds them.
            amount: How many.

        Raises:
            NoPlaceError: They are all taken, or this principal holds its share.
        """
        token, tenant = _shares_of(principal)
        free = self._total - self._taken
        for holder, share in ((token, 1), (tenant, 2)):
            if holder and self._used_by[holder] + amount > share * free:
                raise NoCapacityError
        if amount > free:
            raise NoCapacityError
        self._add(token, tenant, amount)
        try:
            yield
        finally:
            self._add(token, tenant, -amount)

    def _add(self, token: Holder, tenant: Holder, amount: int) -> None:
        self._taken += amount
        for holder in filter(None, (token, tenant)):
            self._used_by[holder] += amount
            if not self._used_by[holder]:
                del self._used_by[holder]


class NoCapacityError(Exception):
    """Places are not to be had just now."""


def _shares_of(principal: Principal) -> tuple[Holder, Holder]:
    """Return what stands for a token and for its tenant, empty if it has none."""
    tenant = principal.tenant
    return (principal.name, tenant or "", principal.role), ("tenant", tenant) if tenant else ()
