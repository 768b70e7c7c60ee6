"""Stores what the application declares: its manifest and its schedules."""

from __future__ import annotations

import random

from tidegate.schedule.declared import DECLARE_SECONDS, ScheduleDeclarer
from tidegate.store.protocol import Store
from tidegate.worker.maintenance.job import MaintenanceJob
from tidegate.worker.supervisor.manifest import Manifest


class Declarations:
    """Stores a manifest once, and declares its schedules again and again.

    The repeats bring an older set of schedules back after a rollback, without a restart of this worker.

    Args:
        store: An open store.
        manifest: What the application declares.
        rng: For jitter.
    """

    def __init__(self, store: Store, manifest: Manifest, *, rng: random.Random) -> None:
        self._store = store
        self._manifest = manifest
        self._declarer = ScheduleDeclarer(store, manifest.schedule_set)
        self._job = MaintenanceJob("schedule declaration", DECLARE_SECONDS, self._declarer.run_once, rng=rng)

    @property
    def schedule_set(self) -> str:
        """The fingerprint of the schedules, for the rows of pool processes."""
        return self._declarer.schedule_set.fingerprint

    def replace(self, manifest: Manifest) -> None:
        """Use another manifest from the next `save` on, after a reload of the code."""
        self._manifest = manifest
        self._declarer.schedule_set = manifest.schedule_set

    async def save(self) -> None:
        """Store the manifest and the schedules.

        Raises:
            StoreError: The store is unreachable.
        """
        await self._store.save_manifest(self._manifest.application, self._manifest.content)
        await self._declarer.run_once()

    def start(self) -> None:
        """Repeat the declaration of the schedules until `stop`."""
        self._job.start()

    async def stop(self) -> None:
        """Stop repeating the declaration."""
        await self._job.stop()
