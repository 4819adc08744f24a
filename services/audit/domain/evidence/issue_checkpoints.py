"""Issues checkpoints in the background: by count, by time, and a last one for every shard."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.audit.domain.evidence.checkpoints import CheckpointSigner
from services.audit.domain.evidence.ports import Anchor, CheckpointObserver, ShardStore
from services.audit.domain.log.tail import Tail
from services.audit.domain.model import SignedCheckpoint

WAITING_ANCHORS = 1000
GRACE_SECONDS = 3.0
# Pause after a failure, however much the log has grown: a log that cannot be signed would otherwise be tried in a tight
# loop.
MAX_RETRY_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CheckpointInterval:
    """How many records or seconds lie between two checkpoints."""

    records: int
    seconds: float


class CheckpointIssuer:
    """Signs the log when it has grown enough, or for long enough. Failures are reported and retried. Appends never wait
    for it."""

    def __init__(
        self,
        checkpoints: CheckpointSigner,
        shards: ShardStore,
        tail: Tail,
        observer: CheckpointObserver,
        interval: CheckpointInterval,
        anchor: Anchor | None = None,
        *,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._checkpoints, self._shards, self._pause = checkpoints, shards, pause
        self._tail, self._observer, self._interval, self._anchor = tail, observer, interval, anchor
        self._unanchored: deque[SignedCheckpoint] = deque(maxlen=WAITING_ANCHORS)
        self._covered_size = -1
        self._signed_shards = self._sealed_shards = 0
        self._lock = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start in the background."""
        self._running = asyncio.create_task(self._run(), name="checkpoints")

    async def stop(self) -> None:
        """Stop. Signed checkpoints that were not anchored are anchored, or covered by a newer one, by the next
        process."""
        if self._running is None:
            return
        # Canceling a running step may leave a connection half open, which the database keeps for a minute.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._lock.acquire()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            if await self.run_once():
                await self._tail.wait_beyond(
                    max(self._covered_size, 0) + self._interval.records - 1, self._interval.seconds
                )
            else:
                await self._pause(min(self._interval.seconds, MAX_RETRY_PAUSE_SECONDS))

    async def run_once(self) -> bool:
        """Sign the log, finish closed shards and anchor what is not anchored yet. Return whether signing succeeded."""
        async with self._lock:
            signed = await self._run_reported("sign", self._sign)
            await self._run_reported("anchor", self._anchor_waiting)
            return signed

    async def _run_reported(self, what: str, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except Exception as error:
            self._observer.report_failure(what, error)
            return False
        return True

    async def _sign(self) -> None:
        current = await self._checkpoints.current()
        while self._signed_shards < current.shard:
            self._enqueue(await self._checkpoints.for_shard(self._signed_shards))
            self._signed_shards += 1
        if current.first_sequence + current.size > self._covered_size:
            self._covered_size = current.first_sequence + current.size
            self._enqueue(current)
        while self._sealed_shards < current.shard and await self._shards.seal(self._sealed_shards):
            self._sealed_shards += 1

    def _enqueue(self, checkpoint: SignedCheckpoint) -> None:
        self._observer.report_issued(checkpoint)
        if self._anchor is not None:
            self._unanchored.append(checkpoint)

    async def _anchor_waiting(self) -> None:
        while self._anchor is not None and self._unanchored:
            await self._anchor.put(self._unanchored[0])
            self._unanchored.popleft()
