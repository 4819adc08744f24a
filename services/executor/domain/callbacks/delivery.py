"""Deliveries: reports of the end of invocations to the callbacks of their callers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from services.executor.domain.jobs.job import Callback, JobOwner
from services.executor.domain.states import State


class DeliveryStatus(StrEnum):
    """What became of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class Delivery(Struct, frozen=True):
    """A delivery as its owner sees it."""

    invocation_id: str
    status: DeliveryStatus
    state: State
    """The state of the invocation that it reports."""
    tries: int
    detail: str
    end_time: datetime
    next_time: datetime
    expire_time: datetime
    try_time: datetime | None = None

    @property
    def name(self) -> str:
        """The resource name."""
        return f"invocations/{self.invocation_id}/callbackDelivery"


class ClaimedDelivery(Struct, frozen=True):
    """A delivery that this process sends."""

    invocation_id: str
    tenant: str
    state: State
    end_time: datetime
    tries: int
    """This one included."""
    callback: Callback | None
    """None if it cannot be decrypted."""


class DeliveryFilter(Struct, frozen=True):
    """Which deliveries to list."""

    owner: JobOwner
    invocation_id: str = ""
    statuses: tuple[DeliveryStatus, ...] = ()


class DeliveryStore(Protocol):
    """The deliveries of all replicas. Every method raises SERVICE_UNAVAILABLE when the store does not answer."""

    async def claim(self, limit: int) -> Sequence[ClaimedDelivery]:
        """Claim deliveries that are due, some of each tenant. Another replica claims them again after the lease."""
        ...

    async def delivered(self, claimed: ClaimedDelivery, detail: str) -> None:
        """Note that the receiver accepted it."""
        ...

    async def failed(self, claimed: ClaimedDelivery, detail: str, delay: float | None) -> None:
        """Note that it was not accepted; it is sent again after the delay, or never for None."""
        ...

    async def page(
        self, wanted: DeliveryFilter, size: int, after: tuple[datetime, str] | None
    ) -> tuple[Sequence[Delivery], tuple[datetime, str] | None]:
        """Return deliveries, the newest end first, and where the next page continues."""
        ...

    async def redeliver(self, owner: JobOwner, invocation_id: str) -> Delivery | None:
        """Let a delivery be sent again, with all its tries; None if the owner has none."""
        ...
