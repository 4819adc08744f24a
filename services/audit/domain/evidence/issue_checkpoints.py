"""Checkpoints in the background: by count, by time, and the last one of every shard."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.audit.domain.evidence.checkpoints import Checkpoints
from services.audit.domain.evidence.ports import Anchor, EvidenceWatch, Shards
from services.audit.domain.log.tail import Tail
from services.audit.domain.model import SignedCheckpoint

WAITING_ANCHORS = 1000
GRACE_SECONDS = 3.0
# Between two attempts where one failed, however much the log has grown meanwhile: a log that cannot be signed, because its history was
# changed or its database is away, would otherwise be asked again and again without a rest.
MOST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CheckpointRhythm:
    """How much the log may grow, and how long it may take, before the next checkpoint."""

    records: int
    seconds: float


class IssueCheckpoints:
    """Signs the log's state whenever it has grown enough or for long enough. What fails is reported and tried again at the
    next turn; nothing here is on the way of an append."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        shards: Shards,
        tail: Tail,
        watch: EvidenceWatch,
        rhythm: CheckpointRhythm,
        anchor: Anchor | None = None,
        *,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._checkpoints, self._shards, self._pause = checkpoints, shards, pause
        self._tail, self._watch, self._rhythm, self._anchor = tail, watch, rhythm, anchor
        self._waiting: deque[SignedCheckpoint] = deque(maxlen=WAITING_ANCHORS)
        self._covered = -1
        self._finished = self._sealed = 0
        self._turn = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; returns at once."""
        self._running = asyncio.create_task(self._run(), name="checkpoints")

    async def stop(self) -> None:
        """End. What was signed but not anchored is anchored by the next process, or covered by what it signs."""
        if self._running is None:
            return
        # A turn that is cut off may leave a connection half open; the database would wait a minute for the rest of it.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._turn.acquire()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            if await self.turn():
                await self._tail.beyond(max(self._covered, 0) + self._rhythm.records - 1, self._rhythm.seconds)
            else:
                await self._pause(min(self._rhythm.seconds, MOST_PAUSE_SECONDS))

    async def turn(self) -> bool:
        """Sign the log as it is, finish the shards that were closed, and anchor what is not anchored yet. Say whether all of it
        could be signed."""
        async with self._turn:
            signed = await self._reported("sign", self._sign)
            await self._reported("anchor", self._anchor_waiting)
            return signed

    async def _reported(self, what: str, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except Exception as error:
            self._watch.failed(what, error)
            return False
        return True

    async def _sign(self) -> None:
        current = await self._checkpoints.current()
        while self._finished < current.shard:
            self._issued(await self._checkpoints.of(self._finished))
            self._finished += 1
        if current.first_sequence + current.size > self._covered:
            self._covered = current.first_sequence + current.size
            self._issued(current)
        while self._sealed < current.shard and await self._shards.seal(self._sealed):
            self._sealed += 1

    def _issued(self, checkpoint: SignedCheckpoint) -> None:
        self._watch.issued(checkpoint)
        if self._anchor is not None:
            self._waiting.append(checkpoint)

    async def _anchor_waiting(self) -> None:
        while self._anchor is not None and self._waiting:
            await self._anchor.put(self._waiting[0])
            self._waiting.popleft()
