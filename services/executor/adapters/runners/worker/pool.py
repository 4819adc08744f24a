"""Pools warm workers. A worker is reused only for the same tenant, subject, tool version and sandbox.

Workers are started on demand. A worker ends when it was idle too long, has served its number of calls, or is evicted to
make room for another key. The number of workers is bounded in total and per tenant. Further calls wait in FIFO order; a
call that cannot be served yet does not block those behind it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from libs.common.runtime.tasks import BackgroundTasks
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.worker.worker import Worker
from services.executor.domain.errors import sandbox_failed

StartWorker = Callable[[], Awaitable[Worker]]


@dataclass(frozen=True, slots=True)
class WorkerKey:
    """Tool version, tenant, sandbox and subject of a worker. Two calls share a worker only if their keys are equal."""

    digest: str
    tenant: str
    """Limits count per tenant."""
    sandbox: str
    subject: str = ""
    """Empty if the tool lets all subjects of a tenant share a worker."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The size of the pool and the lifetime of its workers."""

    max_workers: int = 16
    max_per_tenant: int = 8
    idle_seconds: float = 60.0
    max_calls: int = 1000


@dataclass(frozen=True, slots=True)
class _Permit:
    """Permission to start a worker, after the evicted one has ended."""

    evicted: Worker | None = None


_Grant = Worker | _Permit


class WorkerPool:
    """All workers of one executor."""

    def __init__(self, limits: PoolLimits, log: Log) -> None:
        self._limits = limits
        self._keys: dict[Worker, WorkerKey] = {}
        self._idle: OrderedDict[Worker, float] = OrderedDict()
        """Idle workers with the start of their idle time, the longest idle first."""
        self._tenants: Counter[str] = Counter()
        """Workers per tenant, including those that are starting."""
        self._waiting: deque[tuple[WorkerKey, asyncio.Future[_Grant]]] = deque()
        self._tasks = BackgroundTasks(log, "worker not ended cleanly")
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        return self._tenants.total()

    @property
    def idle(self) -> int:
        """The number of idle workers."""
        return len(self._idle)

    async def take(self, key: WorkerKey, start: StartWorker) -> Worker:
        """Return an idle or a new worker. The caller must give it back or discard it."""
        if self._closed:
            raise sandbox_failed("the executor is stopping")
        grant = None if self._waiting else self._grant(key)
        if grant is None:
            grant = await self._wait(key)
        return grant if isinstance(grant, Worker) else await self._start(key, grant, start)

    def give_back(self, worker: Worker) -> None:
        """Keep a worker for the next call, unless it has served its number of calls."""
        if self._closed or worker.calls >= self._limits.max_calls or worker.ended.done():
            self._tasks.spawn(self._remove(worker))
            return
        self._idle[worker] = asyncio.get_running_loop().time()
        self._schedule_reaper()
        self._serve_waiters()

    async def discard(self, worker: Worker) -> None:
        """ExitKind a worker and wait for it. It ends even if the caller is canceled."""
        await asyncio.shield(self._tasks.spawn(self._remove(worker)))

    async def close(self) -> None:
        """ExitKind every worker and fail the waiting calls."""
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(sandbox_failed("the executor is stopping"))
        self._idle.clear()
        for worker in tuple(self._keys):
            self._tasks.spawn(self._remove(worker))
        await self._tasks.drain()

    async def _wait(self, key: WorkerKey) -> _Grant:
        waiter: asyncio.Future[_Grant] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, waiter))
        self._serve_waiters()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._take_back(key, waiter.result())
            raise

    def _take_back(self, key: WorkerKey, grant: _Grant) -> None:
        """Take back a grant whose waiter was canceled before it received it."""
        if isinstance(grant, Worker):
            self.give_back(grant)
            return
        if grant.evicted is not None:
            self._tasks.spawn(grant.evicted.end())
        self._release_permit(key.tenant)

    def _grant(self, key: WorkerKey) -> _Grant | None:
        """Reserve an idle worker of this key, or a permit for a new one; return None if neither is available."""
        for worker in reversed(self._idle):
            if self._keys[worker] == key and not worker.ended.done():
                del self._idle[worker]
                return worker
        evicted = None
        if self._tenants[key.tenant] >= self._limits.max_per_tenant:
            evicted = self._evict(key.tenant)
        elif len(self) >= self._limits.max_workers:
            evicted = self._evict(None)
        else:
            self._tenants[key.tenant] += 1
            return _Permit()
        if evicted is None:
            return None
        self._tenants[key.tenant] += 1
        return _Permit(evicted)

    def _evict(self, tenant: str | None) -> Worker | None:
        """Remove and return the longest idle worker, of this tenant or of any, and free its permit."""
        for worker in self._idle:
            if tenant is None or self._keys[worker].tenant == tenant:
                del self._idle[worker]
                self._tenants[self._keys.pop(worker).tenant] -= 1
                return worker
        return None

    async def _start(self, key: WorkerKey, permit: _Permit, start: StartWorker) -> Worker:
        try:
            if permit.evicted is not None:
                await asyncio.shield(self._tasks.spawn(permit.evicted.end()))
            worker = await start()
        except BaseException:
            self._release_permit(key.tenant)
            raise
        self._keys[worker] = key
        worker.ended.add_done_callback(lambda _: self._on_ended(worker))
        return worker

    def _on_ended(self, worker: Worker) -> None:
        """Remove an idle worker that ended. A worker in use is discarded by its user."""
        if self._idle.pop(worker, None) is not None:
            self._tasks.spawn(self._remove(worker))

    async def _remove(self, worker: Worker) -> None:
        self._idle.pop(worker, None)
        try:
            await worker.end()
        finally:
            key = self._keys.pop(worker, None)
            if key is not None:
                self._release_permit(key.tenant)

    def _release_permit(self, tenant: str) -> None:
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]
        self._serve_waiters()

    def _serve_waiters(self) -> None:
        """Grant workers and permits to the waiters in order, skipping those that cannot be served yet."""
        remaining: deque[tuple[WorkerKey, asyncio.Future[_Grant]]] = deque()
        for key, waiter in self._waiting:
            if waiter.done():
                continue
            grant = self._grant(key)
            if grant is None:
                remaining.append((key, waiter))
            else:
                waiter.set_result(grant)
        self._waiting = remaining

    def _schedule_reaper(self) -> None:
        if self._reaper is None and self._idle:
            due = next(iter(self._idle.values())) + self._limits.idle_seconds
            self._reaper = asyncio.get_running_loop().call_at(due, self._reap)

    def _reap(self) -> None:
        self._reaper = None
        overdue = asyncio.get_running_loop().time() - self._limits.idle_seconds
        for worker in [idle for idle, since in self._idle.items() if since <= overdue]:
            del self._idle[worker]
            self._tasks.spawn(self._remove(worker))
        self._schedule_reaper()
