"""Holds the thread of heavy work, so that a test sees what waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from services.executor.domain.scheduling.heavy_work import HeavyWork, Principal
from services.executor.tests.waiting import until

T = TypeVar("T")


class Gate:
    """Work that runs until it is let go."""

    def __init__(self) -> None:
        self.began, self._go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.began.set()
        self._go.wait(120)

    def open(self) -> None:
        self._go.set()


async def offloaded(heavy_work: HeavyWork, call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a call, after it was seen to wait for the thread. Fails if it does without."""
    gate = Gate()
    holding = asyncio.create_task(heavy_work.run(Principal("another tenant", ""), gate))
    await asyncio.to_thread(gate.began.wait, 120)
    task = asyncio.create_task(call)
    try:
        await until(lambda: heavy_work._queue or task.done())
        assert not task.done()
    finally:
        gate.open()
        await holding
    return await task
