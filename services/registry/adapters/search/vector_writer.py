"""Embeds new tools in the background, so that registration does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from prometheus_client import Counter

from libs.common.errors import MeshError
from libs.common.telemetry.log import Log
from services.registry.domain.catalog.changes import Position
from services.registry.domain.discovery.ports import Language, LanguageUnavailableError, VectorClaim, Vectors
from services.registry.domain.discovery.text import embedding_text
from services.registry.domain.ports import ChangeFeed, ChangeLog

# Small, so that a query waits only for a short batch.
BATCH = 8
# Finding manifests without a vector scans all of them, so each claim takes several batches.
CLAIM = 8 * BATCH
# Wait after a change before the model is loaded, because tools are often registered in groups.
SETTLE_SECONDS = 10.0
# The interval of checks without a change, for claims of processes that died.
IDLE_SECONDS = 30.0

embedded_total = Counter("toolmesh_registry_embedded_total", "Vectors computed by this process.")


class VectorWriter:
    """Follows the change log and embeds manifests without a vector. Replicas share the work by claims."""

    def __init__(
        self,
        *,
        log: ChangeLog,
        feed: ChangeFeed,
        vectors: Vectors,
        language: Language,
        journal: Log,
        settle: float = SETTLE_SECONDS,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._log, self._feed, self._vectors, self._language = log, feed, vectors, language
        self._journal, self._settle, self._idle = journal, settle, idle
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start in the background."""
        self._task = asyncio.create_task(self._run(), name="vector-writer")

    async def stop(self) -> None:
        """Stop and release claims. The lease covers a killed process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        position = Position("", 0)
        while True:
            try:
                # Read before the work, so that later registrations are seen as a change.
                horizon = await self._log.horizon()
                changed = (horizon.epoch, horizon.last) != (position.epoch, position.sequence)
                position = Position(horizon.epoch, horizon.last)
                if changed:
                    await asyncio.sleep(self._settle)
                await self._embed_all()
                await self._wait_for_change(position)
            except (MeshError, LanguageUnavailableError) as error:
                self._journal.warning("embedding of tools delayed", error=type(error).__name__)
                await asyncio.sleep(self._idle)
            except Exception as error:
                self._journal.error("embedding of tools delayed", cause=error)
                await asyncio.sleep(self._idle)

    async def _embed_all(self) -> None:
        while claimed := list(await self._vectors.claim(CLAIM)):
            try:
                while claimed:
                    await self._embed(claimed[:BATCH])
                    del claimed[:BATCH]
            except BaseException:
                with suppress(MeshError):
                    await self._vectors.release([claim.digest for claim in claimed])
                raise

    async def _embed(self, claims: Sequence[VectorClaim]) -> None:
        vectors = await self._language.embed([embedding_text(claim.manifest) for claim in claims], background=True)
        await self._vectors.put({claim.digest: vector for claim, vector in zip(claims, vectors, strict=True)})
        embedded_total.inc(len(claims))

    async def _wait_for_change(self, position: Position) -> None:
        try:
            async with asyncio.timeout(self._idle):
                while not await self._feed.changes_after(position):
                    pass
        except TimeoutError:
            return
