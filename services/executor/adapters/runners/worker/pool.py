"""Pools warm workers. A worker is reused only for the same tenant, subject, tool version, code and sandbox.

Workers are started on demand. A start continues after its caller left, so that the next call finds the worker: on a
busy machine a start may take longer than any one call waits. A worker ends when it was idle too long, has served its
number of calls, has code that was replaced, or is evicted to make room for another key. Workers are bounded in total
and per tenant, starting ones also per key. Further calls wait in FIFO order; a call that cannot be served yet does not
block those behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from prometheus_client import Histogram

from libs.common.errors import MeshError
from libs.common.runtime.tasks import BackgroundTasks
from libs.common.telemetry.log import Log
from libs.common.telemetry.metrics import SECONDS
from services.executor.adapters.sandbox.port import ExitReport
from services.executor.domain.run_errors import sandbox_failed, sandbox_not_ready

_MAX_LOAD_FAILURES = 64

start_seconds = Histogram(
    "toolmesh_sandbox_start_seconds",
    "Duration of worker starts, until the worker can take a call, by outcome.",
    ["outcome"],
    buckets=SECONDS,
)


class PooledProcess(Protocol):
    """What the pool needs of a worker."""

    calls: int

    @property
    def ended(self) -> asyncio.Task[ExitReport]:
        """The task that completes when the process has ended."""
        ...

    async def end(self) -> ExitReport:
        """Kill the process and its children."""
        ...


W = TypeVar("W", bound=PooledProcess)
StartWorker = Callable[[], Awaitable[W]]
"""Starts a worker and waits until it is ready. Ends it when canceled."""


@dataclass(frozen=True, slots=True)
class WorkerKey:
    """Tool version, tenant, sandbox, subject and code of a worker. Calls share one only if their keys are equal."""

    digest: str
    tenant: str
    """Limits count per tenant."""
    sandbox: str
    subject: str = ""
    """Empty if the tool lets all subjects of a tenant share a worker."""
    code: str = ""
    """The digest of its pack."""
    secrets: str = ""
    """The fingerprint of the credentials that its calls had: a worker that had others serves no call with these."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The size of the pool and the lifetime of its workers."""

    max_workers: int = 16
    max_per_tenant: int = 8
    max_starting_per_tenant: int = 4
    max_starting_per_key: int = 2
    start_seconds: float = 30.0
    """The longest start, with or without a caller that waits."""
    idle_seconds: float = 60.0
    unused_seconds: float = 10.0
    """How long a worker without a call is not evicted: its caller left, and is expected again."""
    max_calls: int = 1000


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter(Generic[W]):
    """A call that waits for a worker."""

    key: WorkerKey
    start: StartWorker[W]
    worker: asyncio.Future[W]


class WorkerPool(Generic[W]):
    """All workers of one executor."""

    def __init__(self, limits: PoolLimits, log: Log) -> None:
        self._limits = limits
        self._keys: dict[W, WorkerKey] = {}
        self._idle: OrderedDict[W, float] = OrderedDict()
        """Idle workers with the start of their idle time, the longest idle first."""
        self._tenants: Counter[str] = Counter()
        """Workers per tenant, including those that are starting."""
        self._starts: dict[asyncio.Task[W], WorkerKey] = {}
        self._load_failures: OrderedDict[WorkerKey, tuple[float, Exception]] = OrderedDict()
        """Failures of starts without a waiting call, each for the next call of its key."""
        self._waiting: deque[_Waiter[W]] = deque()
        self._tasks = BackgroundTasks(log, "worker not ended cleanly")
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False
        self._current_code: Set[str] | None = None
        """The digests of the packs that are loaded; None while all are."""

    def __len__(self) -> int:
        return self._tenants.total()

    @property
    def idle(self) -> int:
        """The number of idle workers."""
        return len(self._idle)

    @property
    def starting(self) -> int:
        """The number of workers that are starting."""
        return len(self._starts)

    async def take(self, key: WorkerKey, start: StartWorker[W]) -> W:
        """Return an idle or a new worker. The caller must give it back or discard it.

        Raises the failure of the start, SANDBOX_NOT_READY if it took too long.
        """
        if self._closed:
            raise sandbox_failed("the executor is stopping")
        if not self._waiting and (worker := self._take_idle(key)) is not None:
            return worker
        if (failure := self._take_failure(key)) is not None:
            raise failure
        waiter: _Waiter[W] = _Waiter(key, start, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._serve_waiters()
        try:
            return await waiter.worker
        except asyncio.CancelledError:
            if waiter.worker.done() and not waiter.worker.cancelled() and waiter.worker.exception() is None:
                # The worker was granted, but the caller left before it received it.
                self.give_back(waiter.worker.result())
            raise

    def give_back(self, worker: W) -> None:
        """Keep a worker for the next call, unless it has served its number of calls."""
        if self._closed or worker.calls >= self._limits.max_calls or worker.ended.done():
            self._tasks.spawn(self._remove(worker))
            return
        self._idle[worker] = asyncio.get_running_loop().time()
        self._schedule_reaper()
        self._serve_waiters()
        self._end_retired()

    def retire_except(self, current: Set[str]) -> None:
        """End workers of other code: idle ones now, others after their call. Calls that wait for such code get it."""
        self._current_code = current
        self._end_retired()

    async def discard(self, worker: W) -> None:
        """End a worker and wait for it. It ends even if the caller is canceled."""
        await asyncio.shield(self._tasks.spawn(self._remove(worker)))

    async def close(self) -> None:
        """End every worker, also those that are starting, and fail the waiting calls."""
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        for waiter in self._waiting:
            if not waiter.worker.done():
                waiter.worker.set_exception(sandbox_failed("the executor is stopping"))
        self._waiting.clear()
        starts = set(self._starts)
        for task in starts:
            task.cancel()
        if starts:
            await asyncio.wait(starts)
        self._idle.clear()
        for worker in tuple(self._keys):
            self._tasks.spawn(self._remove(worker))
        await self._tasks.drain()

    def _end_retired(self) -> None:
        """End idle workers of code that was replaced. Waiting calls have got those that they need."""
        current = self._current_code
        if current is None:
            return
        for worker in [each for each in self._idle if (code := self._keys[each].code) and code not in current]:
            del self._idle[worker]
            self._tasks.spawn(self._remove(worker))

    def _take_idle(self, key: WorkerKey) -> W | None:
        """Reserve an idle worker of this key, the last used first."""
        for worker in reversed(self._idle):
            if self._keys[worker] == key and not worker.ended.done():
                del self._idle[worker]
                return worker
        return None

    def _take_failure(self, key: WorkerKey) -> Exception | None:
        """Return the failure of a start whose caller left, unless it is too old."""
        since, failure = self._load_failures.pop(key, (0.0, None))
        return failure if asyncio.get_running_loop().time() - since < self._limits.idle_seconds else None

    def _serve_waiters(self) -> None:
        """Grant idle workers to the waiters in order, and start one for each that no start is under way for."""
        remaining: deque[_Waiter[W]] = deque()
        waiting, starting = Counter[WorkerKey](), Counter(self._starts.values())
        for waiter in self._waiting:
            if waiter.worker.done():
                continue
            if (worker := self._take_idle(waiter.key)) is not None:
                waiter.worker.set_result(worker)
                continue
            remaining.append(waiter)
            waiting[waiter.key] += 1
            if waiting[waiter.key] > starting[waiter.key] and self._start(waiter):
                starting[waiter.key] += 1
        self._waiting = remaining

    def _start(self, waiter: _Waiter[W]) -> bool:
        """Begin to start a worker for a waiter, and return True if the limits allow it."""
        key, limits = waiter.key, self._limits
        same_tenant = [starting for starting in self._starts.values() if starting.tenant == key.tenant]
        if len(same_tenant) >= limits.max_starting_per_tenant or same_tenant.count(key) >= limits.max_starting_per_key:
            return False
        evicted: W | None = None
        full = self._tenants[key.tenant] >= limits.max_per_tenant
        if full or len(self) >= limits.max_workers:
            evicted = self._evict(key.tenant if full else None)
            if evicted is None:
                return False
        self._tenants[key.tenant] += 1
        task = asyncio.create_task(self._run_start(waiter.start, evicted), name="worker-start")
        self._starts[task] = key
        task.add_done_callback(partial(self._finish_start, key))
        return True

    def _evict(self, tenant: str | None) -> W | None:
        """Remove and return the longest idle worker, of this tenant or of any, and free its place."""
        unused_since = asyncio.get_running_loop().time() - self._limits.unused_seconds
        for worker, since in self._idle.items():
            if worker.calls == 0 and since > unused_since:
                continue
            if tenant is None or self._keys[worker].tenant == tenant:
                del self._idle[worker]
                self._tenants[self._keys.pop(worker).tenant] -= 1
                return worker
        return None

    async def _run_start(self, start: StartWorker[W], evicted: W | None) -> W:
        if evicted is not None:
            await asyncio.shield(self._tasks.spawn(evicted.end()))
        began, outcome = time.monotonic(), "failed"
        try:
            async with asyncio.timeout(self._limits.start_seconds):
                worker = await start()
            outcome = "ready"
            return worker
        except TimeoutError:
            outcome = "timed_out"
            raise sandbox_not_ready() from None
        finally:
            start_seconds.labels(outcome).observe(time.monotonic() - began)

    def _finish_start(self, key: WorkerKey, start: asyncio.Task[W]) -> None:
        """Grant a started worker to the first call that waits for one of its key, or keep it idle."""
        del self._starts[start]
        if start.cancelled():
            self._release_place(key.tenant)
        elif isinstance(failure := start.exception(), Exception):
            self._report_failure(key, failure)
            self._release_place(key.tenant)
        else:
            self._add(start.result(), key)

    def _report_failure(self, key: WorkerKey, failure: Exception) -> None:
        """Raise the failure of a start in the first call that waits for it, or keep it for the next call."""
        waiter = next((each for each in self._waiting if each.key == key and not each.worker.done()), None)
        if waiter is not None:
            waiter.worker.set_exception(failure)
        elif not isinstance(failure, MeshError):
            # The tool's own code failed to load. The same failure of the sandbox need not repeat.
            self._load_failures[key] = (asyncio.get_running_loop().time(), failure)
            if len(self._load_failures) > _MAX_LOAD_FAILURES:
                self._load_failures.popitem(last=False)

    def _add(self, worker: W, key: WorkerKey) -> None:
        self._keys[worker] = key
        worker.ended.add_done_callback(lambda _: self._on_ended(worker))
        self.give_back(worker)
        if worker in self._idle:
            # It may be evicted from then on.
            asyncio.get_running_loop().call_later(self._limits.unused_seconds, self._serve_waiters)

    def _on_ended(self, worker: W) -> None:
        """Remove an idle worker that ended. A worker in use is discarded by its user."""
        if self._idle.pop(worker, None) is not None:
            self._tasks.spawn(self._remove(worker))

    async def _remove(self, worker: W) -> None:
        self._idle.pop(worker, None)
        try:
            await worker.end()
        finally:
            key = self._keys.pop(worker, None)
            if key is not None:
                self._release_place(key.tenant)

    def _release_place(self, tenant: str) -> None:
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]
        self._serve_waiters()

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
