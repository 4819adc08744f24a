"""Caches and batches the embeddings of queries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

from cachetools import LRUCache

from services.registry.domain.discovery.ports import Language, LanguageUnavailableError
from services.registry.domain.discovery.query_language import is_english
from services.registry.domain.discovery.spelling import Spelling

MAX_CACHED = 1000
# Larger batches are hardly cheaper per query, and the next batch is embedded while this one is searched.
BATCH_SIZE = 4


class QueryEmbeddings:
    """Embeds queries and caches the vectors. Queries that arrive during an embedding are embedded together in the next
    batch, which is cheaper than one by one."""

    def __init__(self, language: Language, spelling: Spelling) -> None:
        self._language, self._spelling = language, spelling
        self._cache: LRUCache[str, bytes] = LRUCache(MAX_CACHED)
        self._pending: dict[str, tuple[str, asyncio.Future[bytes | None]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def vector_of(self, text: str) -> bytes | None:
        """Return the embedding of a text, misspelled words corrected; None when the language process does not answer,
        or the text is not English."""
        if not is_english(text):
            return None
        key = " ".join(text.split()).lower()
        if key in self._cache:
            return self._cache[key]
        corrected = self._spelling.correct(text)
        _, future = self._pending.setdefault(key, (corrected, asyncio.get_running_loop().create_future()))
        if self._task is None:
            self._task = asyncio.create_task(self._embed_pending(), name="query-embeddings")
        # Other callers may wait for the same future, so cancellation of this one must not cancel it.
        return await asyncio.shield(future)

    async def _embed_pending(self) -> None:
        """Embed pending queries until there are none."""
        try:
            while batch := dict(islice(self._pending.items(), BATCH_SIZE)):
                try:
                    vectors: Sequence[bytes | None] = await self._language.embed([text for text, _ in batch.values()])
                except LanguageUnavailableError:
                    vectors = [None] * len(batch)
                for (key, (_, future)), vector in zip(batch.items(), vectors, strict=True):
                    del self._pending[key]
                    self._store(key, vector)
                    future.set_result(vector)
        finally:
            self._task = None
            # Only after cancellation: resolve the pending futures, so that no caller waits forever.
            left, self._pending = self._pending, {}
            for _, future in left.values():
                future.set_result(None)

    def _store(self, key: str, vector: bytes | None) -> None:
        if vector is not None:
            self._cache[key] = vector
