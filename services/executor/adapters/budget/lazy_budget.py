"""Connects to the budget store on the first limited call. The client library (8 MB) is imported then too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.executor.domain.model import Reservation

if TYPE_CHECKING:
    from services.executor.adapters.budget.redis_budget import RedisBudget


class LazyBudget:
    """Creates a RedisBudget on first use and delegates to it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._budget: RedisBudget | None = None

    async def close(self) -> None:
        """Close the connections, if there are any."""
        if self._budget is not None:
            await self._budget.close()

    async def reserve(self, reservation: Reservation) -> float:
        """Reserve through RedisBudget."""
        return await self._connect().reserve(reservation)

    async def settle(self, reservation: Reservation, *, ran: float | None) -> None:
        """Settle through RedisBudget."""
        await self._connect().settle(reservation, ran=ran)

    def _connect(self) -> RedisBudget:
        if self._budget is None:
            from services.executor.adapters.budget.redis_budget import RedisBudget

            self._budget = RedisBudget(self._url)
        return self._budget
