"""Composes what checkpoints and callbacks of jobs need."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.rpc.application import Resource
from libs.common.runtime.clock import Clock
from libs.common.webhooks.destination import WebhookDestinations
from libs.common.webhooks.sender import WebhookSender
from services.executor.adapters.callbacks.postgres_deliveries import PostgresDeliveries
from services.executor.adapters.checkpoints.postgres_checkpoints import PostgresCheckpoints
from services.executor.adapters.checkpoints.valkey_checkpoints import ValkeyCheckpoints
from services.executor.config import Settings
from services.executor.domain.callbacks.callback_rules import CallbackRules
from services.executor.domain.callbacks.deliver_callbacks import CallbackDeliveries
from services.executor.domain.checkpoints.checkpoint import CheckpointBounds
from services.executor.domain.checkpoints.stored_checkpoints import StoredCheckpoints
from services.executor.domain.jobs.job import ClaimedJob
from services.executor.domain.jobs.ports import JobSignals
from services.executor.domain.jobs.worker.run_checkpoints import RunCheckpoints
from services.executor.domain.ports import Observer
from services.executor.domain.scheduling.heavy_work import HeavyWork


@dataclass(frozen=True)
class Checkpoints:
    """The stores of checkpoints, and the checkpoints of runs."""

    stored: StoredCheckpoints
    durable: PostgresCheckpoints
    bounds: CheckpointBounds
    clock: Clock
    resource: Resource

    def open(self, job: ClaimedJob) -> RunCheckpoints:
        """Return the checkpoints of a new run."""
        return RunCheckpoints(job, self.stored, self.durable, self.bounds, self.clock)


@dataclass(frozen=True)
class Callbacks:
    """The deliveries to callbacks, and the rules for them."""

    store: PostgresDeliveries
    rules: CallbackRules
    resource: Resource


def build_checkpoints(
    settings: Settings, database: AsyncEngine, owner: str, heavy_work: HeavyWork, clock: Clock
) -> Checkpoints:
    """Build the stores of checkpoints. `owner` is the one that this process claims jobs as."""
    bounds = CheckpointBounds(
        state_bytes=settings.checkpoint_state_bytes, tenant_bytes=settings.checkpoint_tenant_bytes
    )
    durable = PostgresCheckpoints(database, settings.sealing_keys, bounds, owner=owner)
    micro = ValkeyCheckpoints(settings.redis_url, settings.sealing_keys, tenant_bytes=bounds.tenant_bytes // 4)
    stored = StoredCheckpoints(micro, durable, heavy_work)
    return Checkpoints(stored, durable, bounds, clock, Resource(stop=micro.close))


def build_callbacks(settings: Settings, database: AsyncEngine, signals: JobSignals, observer: Observer) -> Callbacks:
    """Build the delivery of callbacks."""
    store = PostgresDeliveries(database, settings.sealing_keys)
    destinations = WebhookDestinations(settings.callback_internal_hosts)
    sender = WebhookSender(destinations)
    worker = CallbackDeliveries(store, sender.send, signals, observer)

    async def stop() -> None:
        await worker.stop()
        await sender.close()

    return Callbacks(store, CallbackRules(destinations), Resource(worker.start, stop))
