"""Runs the work of an invocation on the event loop if its arguments are small, else beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from libs.common.runtime.clock import Clock
from services.executor.domain.invocation import Invocation
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.scheduling.time_limit import limit_wait

T = TypeVar("T")


class Offload:
    """Decides where the work of a call is done."""

    def __init__(self, heavy_work: HeavyWork, clock: Clock) -> None:
        self._heavy_work, self._clock = heavy_work, clock

    async def run(self, invocation: Invocation, work: Callable[[], T]) -> T:
        """Return what the function returns. Large arguments are handled beside the event loop, within the deadline."""
        if invocation.small:
            return work()
        async with limit_wait(invocation, self._clock):
            return await self._heavy_work.run(invocation.request.caller, work)
