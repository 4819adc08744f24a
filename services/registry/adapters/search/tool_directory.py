"""Keeps the search index up to date with the change log, from the first search on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING

from libs.common.errors import MeshError
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from libs.common.tool_names import ToolName, split_version_name
from services.registry.domain.catalog.watch_tools import (
    Event,
    SnapshotComplete,
    VersionRemoved,
    VersionUpserted,
    watch_tools,
)
from services.registry.domain.discovery.listing import index_entry, listed_version
from services.registry.domain.discovery.ports import Vectors
from services.registry.domain.health.ports import VersionHealths
from services.registry.domain.model import ToolVersion, VersionHead
from services.registry.domain.ports import Catalogue, ChangeFeed, ChangeLog
from services.registry.domain.trust.ports import TrustScores

if TYPE_CHECKING:
    from services.registry.domain.discovery.index.engine import SearchEngine

# A registry with at least this many tools is indexed at start, so that the first search does not wait.
EAGER_TOOLS = 100
_LOAD_VECTORS = 500
_TRUST_SECONDS = 30.0
_PAUSE_SECONDS = 1.0
# The index is filled in batches of this many events, so that other calls can run.
_PIECE = 50


class ToolDirectory:
    """Creates the index on demand, follows all changes, and loads vectors and trust scores."""

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        log: ChangeLog,
        feed: ChangeFeed,
        vectors: Vectors,
        trust: TrustScores,
        health: VersionHealths,
        clock: Clock,
        journal: Log,
    ) -> None:
        self._catalogue, self._log, self._feed, self._vectors = catalogue, log, feed, vectors
        self._trust, self._health, self._clock, self._journal = trust, health, clock, journal
        self._heads: dict[ToolName, dict[str, VersionHead]] = {}
        self._mentioned: set[str] = set()
        self._index: SearchEngine | None = None
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._trusted_at = self._looked_at = float("-inf")

    async def start(self) -> None:
        """Index a large registry now; a small one on the first search."""
        tools = await self._catalogue.tools(namespace="", tags=(), after="", limit=EAGER_TOOLS)
        if len(tools) >= EAGER_TOOLS:
            self._open()

    async def stop(self) -> None:
        """Stop following changes."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def has_word(self, word: str) -> bool:
        """Return whether a tool has the word; False before the index is created."""
        return self._index is not None and self._index.has_word(word)

    async def index(self) -> SearchEngine:
        """Return the index, as fresh as the last poll of the change log."""
        self._open()
        await self._opened.wait()
        index = self._index
        if index is None:
            raise LookupError("the index is opened before it is announced")
        now = self._clock.monotonic()
        if now - self._trusted_at >= _TRUST_SECONDS:
            self._trusted_at = now
            index.trust(self._trust.scores_of(list(index.names())))
        await self._load_vectors(index)
        return index

    def _open(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="tool-directory")

    async def _follow(self) -> None:
        # Imported here, because numpy takes 15 MB that a registry without searches does not need; beside the event
        # loop, which it would hold for a third of a second.
        engine = await asyncio.to_thread(import_module, "services.registry.domain.discovery.index.engine")
        self._index = engine.SearchEngine()
        token = ""
        while True:
            try:
                applied = 0
                self._mentioned.clear()
                watch = watch_tools(token, log=self._log, feed=self._feed, trust=self._trust, health=self._health)
                async with aclosing(watch) as events:
                    async for event in events:
                        await self._apply(event)
                        token = event.at.token() if event.at else token
                        applied += 1
                        if applied % _PIECE == 0:
                            await asyncio.sleep(0)
            except MeshError as error:
                self._journal.info("tool directory reconnects", reason=error.reason.name)
                await asyncio.sleep(_PAUSE_SECONDS)
            except Exception as error:
                # After an unexpected error the index may be inconsistent, so everything is read again.
                self._journal.error("tool directory rebuilds its index", cause=error)
                token = ""
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _apply(self, event: Event) -> None:
        if isinstance(event, VersionUpserted):
            await self._upsert(event.version)
        elif isinstance(event, VersionRemoved):
            await self._remove(event.name)
        elif isinstance(event, SnapshotComplete):
            await self._remove_unmentioned()

    async def _upsert(self, version: ToolVersion) -> None:
        head = version.head
        self._heads.setdefault(head.tool, {})[str(head.version)] = head
        self._mentioned.add(head.name)
        await self._index_tool(head.tool, version)

    async def _remove(self, name: str) -> None:
        tool, number = split_version_name(name)
        self._mentioned.discard(name)
        heads = self._heads.get(tool, {})
        if heads.pop(number, None) is not None:
            await self._index_tool(tool, None)

    async def _index_tool(self, tool: ToolName, upserted: ToolVersion | None) -> None:
        """Index a tool by its default version. The manifest is read if it was not part of the event."""
        index, heads = self._index, list(self._heads.get(tool, {}).values())
        if index is None:
            return
        if not heads:
            self._heads.pop(tool, None)
            index.drop(tool)
            return
        listed = listed_version(heads, self._clock.now())
        if upserted is not None and upserted.head is listed:
            index.put(index_entry(upserted, heads))
            return
        [shown] = await self._catalogue.with_manifests([listed])
        index.put(index_entry(shown, heads))

    async def _remove_unmentioned(self) -> None:
        """Remove versions that the completed snapshot did not contain."""
        gone = [
            head.name for heads in self._heads.values() for head in heads.values() if head.name not in self._mentioned
        ]
        for name in gone:
            await self._remove(name)
        self._mentioned.clear()
        self._opened.set()

    async def _load_vectors(self, index: SearchEngine) -> None:
        """Load vectors that were computed in the meantime, at most once a second."""
        now = self._clock.monotonic()
        if now - self._looked_at < _PAUSE_SECONDS:
            return
        self._looked_at = now
        missing = index.tools_without_vector()
        for start in range(0, len(missing), _LOAD_VECTORS):
            batch = missing[start : start + _LOAD_VECTORS]
            vectors: Mapping[str, bytes] = await self._vectors.load([digest for _, digest in batch])
            for name, digest in batch:
                if digest in vectors:
                    index.embed(name, digest, vectors[digest])
