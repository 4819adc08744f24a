"""Spending that connects when the first limited call comes; until then the store's client, 8 MB of it, is not even loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.executor.domain.model import Reservation

if TYPE_CHECKING:
    from services.executor.adapters.budget.redis_budget import RedisSpending


class SpendingWhenNeeded:
    """Keeps the promise of the port through RedisSpending."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._spending: RedisSpending | None = None

    async def close(self) -> None:
        """Close every connection, if there is one."""
        if self._spending is not None:
            await self._spending.close()

    async def reserve(self, reservation: Reservation) -> float:
        """Keep the promise of the port."""
        return await self._connected().reserve(reservation)

    async def settle(self, reservation: Reservation, *, ran: float | None) -> None:
        """Keep the promise of the port."""
        await self._connected().settle(reservation, ran=ran)

    def _connected(self) -> RedisSpending:
        if self._spending is None:
            from services.executor.adapters.budget.redis_budget import RedisSpending

            self._spending = RedisSpending(self._url)
        return self._spending
