"""Delivers reports to callbacks: claims those that are due, sends each once, and notes what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from libs.common.json.jsonio import dump
from libs.common.runtime.backoff import Backoff
from libs.common.webhooks.schedule import next_delay
from libs.common.webhooks.sender import DeliveryResult, WebhookMessage
from libs.common.webhooks.signature import signing_key
from services.executor.domain.callbacks.delivery import ClaimedDelivery, DeliveryStore
from services.executor.domain.jobs.ports import JobSignals
from services.executor.domain.ports import Observer

EVENT = "invocation.ended"
POLL_SECONDS = 5.0
_MAX_SENDING = 16
_MIN_INTERVAL_SECONDS = 0.05

Send = Callable[[WebhookMessage], Awaitable[DeliveryResult]]


class CallbackDeliveries:
    """Sends the deliveries that this process claims. Any replica may claim any delivery."""

    def __init__(self, store: DeliveryStore, send: Send, signals: JobSignals, observer: Observer) -> None:
        self._store, self._send, self._signals, self._observer = store, send, signals, observer
        self._sending: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to deliver."""
        self._loop = asyncio.create_task(self._run(), name="deliver-callbacks")

    async def stop(self) -> None:
        """Stop. Deliveries under way are sent again by another replica."""
        tasks = {*self._sending, *([self._loop] if self._loop is not None else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self) -> None:
        backoff = Backoff(1.0, 30.0)
        while True:
            try:
                await asyncio.sleep(_MIN_INTERVAL_SECONDS)
                await self._claim_due()
                backoff.reset()
            except Exception as cause:
                self._observer.unexpected(cause)
                await backoff.wait()

    async def _claim_due(self) -> None:
        woken = self._signals.next_wake()
        free = _MAX_SENDING - len(self._sending)
        claimed = await self._store.claim(free) if free > 0 else ()
        for delivery in claimed:
            task = asyncio.create_task(self._deliver(delivery), name=f"callback-{delivery.invocation_id}")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        if not claimed:
            await asyncio.wait([woken, *self._sending], timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)

    async def _deliver(self, delivery: ClaimedDelivery) -> None:
        try:
            result = await self._try(delivery)
            if result.delivered:
                await self._store.delivered(delivery, result.detail)
            else:
                delay = next_delay(delivery.tries) if result.retry else None
                await self._store.failed(delivery, result.detail, delay)
        except Exception as cause:
            # Another replica sends it again after the lease.
            self._observer.unexpected(cause)

    async def _try(self, delivery: ClaimedDelivery) -> DeliveryResult:
        callback = delivery.callback
        if callback is None:
            return DeliveryResult(delivered=False, detail="unreadable", retry=False)
        message_id, key = f"msg_{delivery.invocation_id}", signing_key(callback.secret)
        return await self._send(WebhookMessage(message_id, callback.url, key, body_of(delivery), delivery.tenant))


def body_of(delivery: ClaimedDelivery) -> bytes:
    """Return the report: that an invocation ended, and how. The result is fetched with the caller's own token."""
    return dump(
        {
            "type": EVENT,
            "timestamp": delivery.end_time.isoformat(),
            "data": {"invocation": f"invocations/{delivery.invocation_id}", "state": str(delivery.state)},
        }
    )
