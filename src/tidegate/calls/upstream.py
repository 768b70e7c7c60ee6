"""`Upstream`: an outside service as an application declares it."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidegate.calls.settings import NOT_RECORDED, AdmissionCounting, CallSettings, CallTimes, Recording
from tidegate.domain.readers import shown
from tidegate.errors import OptionError
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.limits.values import is_key_gate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from tidegate.calls.keys import KeyRing
    from tidegate.calls.manual_call import ManualCall
    from tidegate.calls.permits import PermitSource
    from tidegate.calls.transport.transport import StandIn, UpstreamTransport
    from tidegate.events import EventBus
    from tidegate.store.protocol import Store


class Upstream:
    """An outside service that tasks call. Made by `app.upstream(…)`, passed to `@app.task(upstream=…)`.

    A worker stores its limits when it starts, and all processes share them. The limits in the code of the
    worker that started last apply. Limits set with `tidegate upstreams set` take precedence until they are
    handed back.
    """

    def __init__(
        self,
        name: str,
        limits: Limits,
        *,
        provider: str = "",
        times: CallTimes | None = None,
        recording: Recording = NOT_RECORDED,
        admission: AdmissionCounting | None = None,
        keys: KeyRing | None = None,
        opened_store: Callable[[], Awaitable[Store]],
        events: EventBus | None = None,
    ) -> None:
        if is_key_gate(name):
            raise OptionError(
                f"upstream={shown(name)}",
                fix="use a name without #, which marks the gates of keys",
                option="upstream",
                value=name,
            )
        self.name = name
        self.limits = limits
        self.calls = CallSettings(
            name, provider or name, times or CallTimes(), recording=recording, admission=admission
        )
        """The settings of the upstream's calls."""
        self.has_transport = False
        """Whether a transport was made. Only then do the time limits of calls apply to tasks."""
        self.keys = keys
        """The API keys; None if clients use their own."""
        self._opened_store = opened_store
        self._events = events
        self._clock: Callable[[], float] = time.monotonic
        self._rng: random.Random | None = None
        self.stand_in: StandIn | None = None
        """Makes the inner transport that all transports of this upstream use instead of their own. For
        tests."""

    def __repr__(self) -> str:
        return f"<upstream {self.name}>"

    @cached_property
    def permits(self) -> PermitSource:
        """The source of permits for the upstream's calls.

        All its transports share this source, and so one gate.

        Raises:
            ConfigError: A key is missing.
        """
        from tidegate.calls.permit_source import GatePermitSource

        if self.keys is not None:
            self.keys.check()
        return GatePermitSource(
            self.declared,
            self._opened_store,
            keys=self.keys,
            clock=self._clock,
            rng=self._rng,
            events=self._events,
        )

    def transport(
        self, inner: Any = None, *, times: CallTimes | None = None, record: bool | None = None
    ) -> UpstreamTransport:
        """Return a transport for one client of `httpx2` or `httpx`: `AsyncClient(transport=…)`.

        Args:
            inner: The client library's transport that sends the requests. None for a new one: of `httpx2` if
                that is installed, else of `httpx`.
            times: The time limits of a call; None for the upstream's.
            record: Whether the responses of calls in tasks are kept, see `app.upstream`. This holds for all
                task functions. None: as `record_calls` of the task function says, else as for the upstream.

        Raises:
            ConfigError: Neither library is installed, or `inner` belongs to neither.
        """
        from tidegate.calls.transport.transport import UpstreamTransport

        self.has_transport = True
        settings = self._settings(times)
        if record is not None:
            recording = replace(settings.recording, is_on=record, is_final=True)
            settings = replace(settings, recording=recording)
        return UpstreamTransport(self.permits, settings, inner, stand_in=lambda: self.stand_in)

    def call(
        self,
        *,
        model: str = "",
        input_tokens: int = 0,
        output_tokens: int = 0,
        times: CallTimes | None = None,
    ) -> AbstractAsyncContextManager[ManualCall]:
        """Make one call with any client: `async with upstream.call(model="…") as call:`.

        Args:
            model: The model's name.
            input_tokens: An estimate of the prompt's tokens; 0 if there is none.
            output_tokens: The most tokens the response may have; 0 for no limit.
            times: The time limits of the call; None for the upstream's.

        Raises:
            UpstreamParkedError: The gate is closed; the block is not entered.
            TimeoutError: The block took longer than the call's time limit.
        """
        from tidegate.calls.manual_call import manual_call
        from tidegate.providers.requests import Sizes

        return manual_call(self.permits, self._settings(times), Sizes(model, input_tokens, output_tokens))

    def _settings(self, times: CallTimes | None) -> CallSettings:
        return self.calls if times is None else replace(self.calls, times=times)

    @contextmanager
    def fresh_permits(self, clock: Callable[[], float], rng: random.Random) -> Iterator[None]:
        """At the start and the end of the block, forget what this process knows of the service. For tests.

        A stand-in that is set in the block is removed at its end. Transports keep their permit source, so the
        source itself is reset.

        Args:
            clock: Returns monotonic seconds.
            rng: The source of jitter.
        """
        before = self._clock, self._rng, self.stand_in
        self._clock, self._rng = clock, rng
        try:
            self._renew_permits()
            yield
        finally:
            self._clock, self._rng, self.stand_in = before
            self._renew_permits()

    def _renew_permits(self) -> None:
        permits = vars(self).get("permits")
        if permits is not None:
            type(permits).__init__(
                permits,
                self.declared,
                self._opened_store,
                keys=self.keys,
                clock=self._clock,
                rng=self._rng,
                events=self._events,
            )

    def with_keys(self) -> list[LimitDeclaration]:
        """Return the declarations of the upstream and its keys for the store."""
        return [self.declared, *(self.keys.declared() if self.keys is not None else ())]

    @property
    def declared(self) -> LimitDeclaration:
        """The declaration of the upstream for the store, without its keys."""
        return LimitDeclaration(GateKind.UPSTREAM, self.name, self.limits)
