"""Runs the heavy work of calls (large arguments and results) in threads, in turn for tenants and their subjects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeVar

from services.executor.domain.scheduling.round_robin import RoundRobin
from services.executor.domain.validation_cost import INLINE_BYTES, is_light

T = TypeVar("T")

# One leaves the other cores to the event loop and the tools. The validator releases the interpreter's lock.
THREADS = 1


class Owner(Protocol):
    """The caller that work is done for."""

    @property
    def tenant(self) -> str:
        """The tenant of the caller; empty if it has none."""
        ...

    @property
    def subject(self) -> str:
        """The caller itself."""
        ...


class Principal(NamedTuple):
    """An owner that outlives one call."""

    tenant: str
    subject: str


class HeavyWork:
    """Runs functions in threads. Work that began runs to its end, so it must be bounded."""

    def __init__(self, threads: int = THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="heavy-work")
        self._free = threads
        self._turns = RoundRobin()
        self._queue: dict[_Turn, None] = {}
        self._number = count()

    def share_of(self, owner: Owner) -> WorkShare:
        """Return what one owner's input is handled with."""
        return WorkShare(self, owner)

    async def run(self, owner: Owner, work: Callable[[], T]) -> T:
        """Return what the function returns. An owner that leaves meanwhile leaves the queue."""
        turn = _Turn(owner.tenant, owner.subject, next(self._number))
        self._queue[turn] = None
        self._start_next()
        try:
            await turn.granted
        except BaseException:
            if turn in self._queue:
                del self._queue[turn]
            else:
                # The turn was granted in the moment of the cancellation.
                self._release()
            raise
        running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        running.add_done_callback(self._ended)
        # The thread stays busy if the caller leaves, and so does its place.
        return await asyncio.shield(running)

    def _start_next(self) -> None:
        while self._free and self._queue:
            turn = next(self._turns.order(self._queue))
            del self._queue[turn]
            self._turns.serve(turn)
            self._free -= 1
            if not turn.granted.done():
                turn.granted.set_result(None)

    def _ended(self, running: asyncio.Future[Any]) -> None:
        if not running.cancelled():
            # Retrieved, because the caller may have left.
            running.exception()
        self._release()

    def _release(self) -> None:
        self._free += 1
        self._start_next()


@dataclass(frozen=True, slots=True)
class WorkShare:
    """The work that is done for one owner."""

    heavy_work: HeavyWork
    owner: Owner

    async def run(self, work: Callable[[], T]) -> T:
        """Return what the function returns. Runs beside the event loop."""
        return await self.heavy_work.run(self.owner, work)

    async def run_if_large(self, size: int, work: Callable[[], T]) -> T:
        """Return what the function returns. It runs beside the event loop if its input has many bytes."""
        return work() if size <= INLINE_BYTES else await self.run(work)

    async def run_unless_light(self, value: Any, work: Callable[[], T]) -> T:
        """Return what the function returns. It runs beside the event loop if the value that it handles is not light."""
        return work() if is_light(value) else await self.run(work)


class _Turn:
    """One piece of work that waits for a thread."""

    __slots__ = ("_number", "granted", "subject", "tenant")

    def __init__(self, tenant: str, subject: str, number: int) -> None:
        self.tenant, self.subject, self._number = tenant, subject, number
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __lt__(self, other: _Turn) -> bool:
        return self._number < other._number
