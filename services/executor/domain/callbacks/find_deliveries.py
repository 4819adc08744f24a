"""Shows callers the deliveries to their callbacks, and sends them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from services.executor.domain.callbacks.delivery import Delivery, DeliveryFilter, DeliveryStore
from services.executor.domain.jobs import errors as job_errors
from services.executor.domain.jobs.job import JobOwner


class FindDeliveries:
    """Reads deliveries. Those of others do not exist for a caller."""

    def __init__(self, store: DeliveryStore, wake: Callable[[], None]) -> None:
        self._store, self._wake = store, wake

    async def page(
        self, wanted: DeliveryFilter, size: int, after: tuple[datetime, str] | None
    ) -> tuple[Sequence[Delivery], tuple[datetime, str] | None]:
        """Return a page of deliveries, the newest end first, and where the next one continues."""
        return await self._store.page(wanted, size, after)

    async def redeliver(self, owner: JobOwner, invocation_id: str) -> Delivery:
        """Let a delivery be sent again, and return it. Raises INVOCATION_NOT_FOUND."""
        delivery = await self._store.redeliver(owner, invocation_id)
        if delivery is None:
            raise job_errors.invocation_not_found(invocation_id)
        self._wake()
        return delivery
