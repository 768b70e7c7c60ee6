"""A capacity that all requests of a process share, but that one token or tenant cannot use up."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from tidegate.domain.access import Principal

Holder = tuple[str, ...]


class SharedCapacity:
    """A shared capacity: open streams, waiting requests, or bytes of request bodies in flight.

    A token may use as much capacity as is free, and all tokens of a tenant twice as much. So a single token
    gets at most half of the capacity, and a single tenant two thirds. Several busy tokens share evenly, and
    some capacity is always free for a new token. No token needs its own configuration. The rule is known as
    dynamic thresholds for shared buffers (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2),
    1998).

    Args:
        total: The total capacity.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = 0
        self._used_by: Counter[Holder] = Counter()

    @property
    def taken(self) -> int:
        """How much of the capacity is used now."""
        return self._taken

    @contextlib.contextmanager
    def take(self, principal: Principal, amount: int = 1) -> Iterator[None]:
        """Use some of the capacity for the block.

        Args:
            principal: Who uses it.
            amount: How much.

        Raises:
            NoCapacityError: Too little is free, or the token or tenant has used its share.
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
    """No capacity is free for this token or tenant now."""


def _shares_of(principal: Principal) -> tuple[Holder, Holder]:
    """Return the keys under which a token and its tenant are counted; an empty key without a tenant."""
    tenant = principal.tenant
    return (principal.name, tenant or "", principal.role), ("tenant", tenant) if tenant else ()
