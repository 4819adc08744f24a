"""Shows the cluster that this executor lives, and removes the pods of executors that do not."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress

from libs.common.telemetry.log import Log
from services.executor.adapters.sandbox.pods.pod_api import ClusterError, LeaseState, PodApi

RENEW_SECONDS, LEASE_SECONDS = 10.0, 60.0
_MAX_NAME = 52
_REFUSED = re.compile(r"[^a-z0-9-]+")


def name_of(instance: str) -> str:
    """Return an executor's instance as a name that Kubernetes accepts."""
    return _REFUSED.sub("-", instance.lower())[-_MAX_NAME:].strip("-") or "executor"


class PodOwnership:
    """A lease that owns the pods of this executor, renewed while it lives.

    The pods name the lease as their owner, so the cluster removes them with it. A lease that was not renewed for its
    time, by this executor's own clock, is deleted; so are pods whose lease is gone.
    """

    def __init__(self, api: PodApi, instance: str, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._name, self._log, self._clock = api, name_of(instance), log, clock
        self._lease: LeaseState | None = None
        self._seen: dict[str, tuple[str, float]] = {}
        self._acquiring = asyncio.Lock()

    @property
    def name(self) -> str:
        """The name of this executor in the cluster."""
        return self._name

    async def lease(self) -> LeaseState:
        """Return the lease of this executor. What an earlier process of its name left is removed. Raises
        ClusterError."""
        async with self._acquiring:
            if self._lease is None:
                self._lease = await self._api.create_lease(self._name)
            return self._lease

    async def renew(self) -> None:
        """Renew the lease, if there is one. Raises ClusterError."""
        if self._lease is not None and not await self._api.renew_lease(self._name):
            # Another executor took this one for dead: its pods are gone.
            self._lease = None
            self._log.warning("the lease of this executor's pods was deleted", lease=self._name)

    async def sweep(self) -> None:
        """Delete leases that are not renewed, and pods without a lease. Raises ClusterError."""
        leases, now = await self._api.list_leases(), self._clock()
        dead = [lease for lease in leases if lease.name != self._name and self._is_dead(lease, now)]
        self._seen = {lease.uid: self._seen[lease.uid] for lease in leases if lease.uid in self._seen}
        alive = {lease.uid for lease in leases} - {lease.uid for lease in dead}
        if self._lease is not None:
            alive.add(self._lease.uid)
        for lease in dead:
            await self._api.delete_lease(lease.name)
        # Leases are read before pods, and a pod is made after its lease: one of a new executor may only seem orphaned.
        orphans = [pod.name for pod in await self._api.list_pods() if pod.owner not in alive]
        alive = {lease.uid for lease in await self._api.list_leases()} if orphans else alive
        for pod in [each for each in await self._api.list_pods() if each.name in orphans and each.owner not in alive]:
            await self._api.delete_pod(pod.name)
        if dead or orphans:
            self._log.info("orphaned pods of tools removed", executors=len(dead), pods=len(orphans))

    async def release(self) -> None:
        """Delete the lease, and with it all pods of this executor."""
        lease, self._lease = self._lease, None
        if lease is not None:
            with suppress(ClusterError):
                await self._api.delete_lease(lease.name)

    def _is_dead(self, lease: LeaseState, now: float) -> bool:
        renewed, since = self._seen.setdefault(lease.uid, (lease.renewed, now))
        if renewed != lease.renewed:
            self._seen[lease.uid] = (lease.renewed, now)
            return False
        return now - since >= LEASE_SECONDS
