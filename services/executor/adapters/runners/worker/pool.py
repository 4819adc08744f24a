"""Warm workers, kept for the next call of the same tenant to the same version of the same tool, and for nobody else.

There is no guessing ahead: a worker is started when a call needs one, and lives on until it was idle too long, answered enough, or
somebody else needs its place. Places are bounded, in all and for each tenant; who finds none waits for one, first come first
served among those who can be served.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from services.executor.adapters.runners.worker.worker import Worker
from services.executor.domain.errors import sandbox_failed

Start = Callable[[], Awaitable[Worker]]


@dataclass(frozen=True, slots=True)
class Key:
    """Whose worker it is, and of what. Two calls share a worker only if all of it is equal."""

    digest: str
    tenant: str
    sandbox: str


@dataclass(frozen=True, slots=True)
class Limits:
    """How many workers there may be, and how long one is kept."""

    most: int = 16
    most_per_tenant: int = 8
    idle_seconds: float = 60.0
    calls: int = 1000


@dataclass(frozen=True, slots=True)
class _Place:
    """Room for one more worker, once the evicted one is gone."""

    evicted: Worker | None = None


_Grant = Worker | _Place


class Pool:
    """All warm workers of one executor."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._keys: dict[Worker, Key] = {}
        self._idle: OrderedDict[Worker, float] = OrderedDict()
        """Since when, the longest idle first."""
        self._tenants: Counter[str] = Counter()
        """Places taken, also by what is still starting."""
        self._waiting: deque[tuple[Key, asyncio.Future[_Grant]]] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        return self._tenants.total()

    @property
    def idle(self) -> int:
        """How many wait for a call."""
        return len(self._idle)

    async def take(self, key: Key, start: Start) -> Worker:
        """Return an idle worker, or a new one. Whoever takes it gives it back or discards it."""
        if self._closed:
            raise sandbox_failed("the executor is stopping")
        grant = None if self._waiting else self._grant(key)
        if grant is None:
            grant = await self._wait(key)
        return grant if isinstance(grant, Worker) else await self._begin(key, grant, start)

    def give_back(self, worker: Worker) -> None:
        """Keep a worker for the next call, unless it has answered enough."""
        if self._closed or worker.calls >= self._limits.calls or worker.ended.done():
            self._later(self._put_away(worker))
            return
        self._idle[worker] = asyncio.get_running_loop().time()
        self._reap_later()
        self._serve()

    async def discard(self, worker: Worker) -> None:
        """End a worker. It is gone when this returns, and goes even if nobody waits for that."""
        await asyncio.shield(self._later(self._put_away(worker)))

    async def close(self) -> None:
        """End every worker, and let nobody wait any longer."""
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(sandbox_failed("the executor is stopping"))
        self._idle.clear()
        for worker in tuple(self._keys):
            self._later(self._put_away(worker))
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait(self, key: Key) -> _Grant:
        waiter: asyncio.Future[_Grant] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, waiter))
        self._serve()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._return(key, waiter.result())
            raise

    def _return(self, key: Key, grant: _Grant) -> None:
        """Take back what was granted to somebody who left before hearing of it."""
        if isinstance(grant, Worker):
            self.give_back(grant)
            return
        if grant.evicted is not None:
            self._later(grant.evicted.end())
        self._release(key.tenant)

    def _grant(self, key: Key) -> _Grant | None:
        """Return an idle worker of this key, or a place for a new one; None when there is neither. What is granted is taken."""
        for worker in reversed(self._idle):
            if self._keys[worker] == key and not worker.ended.done():
                del self._idle[worker]
                return worker
        evicted = None
        if self._tenants[key.tenant] >= self._limits.most_per_tenant:
            evicted = self._evict(key.tenant)
        elif len(self) >= self._limits.most:
            evicted = self._evict(None)
        else:
            self._tenants[key.tenant] += 1
            return _Place()
        if evicted is None:
            return None
        self._tenants[key.tenant] += 1
        return _Place(evicted)

    def _evict(self, tenant: str | None) -> Worker | None:
        """Take the longest idle worker, of this tenant or of any, and its place with it."""
        for worker in self._idle:
            if tenant is None or self._keys[worker].tenant == tenant:
                del self._idle[worker]
                self._tenants[self._keys.pop(worker).tenant] -= 1
                return worker
        return None

    async def _begin(self, key: Key, place: _Place, start: Start) -> Worker:
        try:
            if place.evicted is not None:
                await asyncio.shield(self._later(place.evicted.end()))
            worker = await start()
        except BaseException:
            self._release(key.tenant)
            raise
        self._keys[worker] = key
        worker.ended.add_done_callback(lambda _: self._noticed(worker))
        return worker

    def _noticed(self, worker: Worker) -> None:
        """A worker is gone. Who uses it finds out by itself; an idle one gives its place to somebody else."""
        if self._idle.pop(worker, None) is not None:
            self._later(self._put_away(worker))

    async def _put_away(self, worker: Worker) -> None:
        self._idle.pop(worker, None)
        try:
            await worker.end()
        finally:
            key = self._keys.pop(worker, None)
            if key is not None:
                self._release(key.tenant)

    def _release(self, tenant: str) -> None:
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]
        self._serve()

    def _serve(self) -> None:
        """Give what there is to those who wait, in their order; one who cannot be served holds nobody up."""
        still: deque[tuple[Key, asyncio.Future[_Grant]]] = deque()
        for key, waiter in self._waiting:
            if waiter.done():
                continue
            grant = self._grant(key)
            if grant is None:
                still.append((key, waiter))
            else:
                waiter.set_result(grant)
        self._waiting = still

    def _reap_later(self) -> None:
        if self._reaper is None and self._idle:
            due = next(iter(self._idle.values())) + self._limits.idle_seconds
            self._reaper = asyncio.get_running_loop().call_at(due, self._reap)

    def _reap(self) -> None:
        self._reaper = None
        overdue = asyncio.get_running_loop().time() - self._limits.idle_seconds
        for worker in [each for each, since in self._idle.items() if since <= overdue]:
            del self._idle[worker]
            self._later(self._put_away(worker))
        self._reap_later()

    def _later(self, step: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
