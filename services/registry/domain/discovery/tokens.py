"""Counts tokens and caches the counts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from libs.common.errors import MeshError, Reason, Violation
from libs.common.runtime.bounded_cache import BoundedCache
from services.registry.domain.discovery.ports import Language, LanguageUnavailableError

MAX_CACHED = 50_000


class TokenCounter:
    """Counts tokens with the language process and caches the counts by a digest of the text."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._cache: BoundedCache[bytes, int] = BoundedCache(MAX_CACHED)

    def tokenizer(self, name: str) -> str:
        """Return the tokenizer of that name, or the default for an empty name. Raises INVALID_REQUEST for an unknown
        one."""
        known = self._language.tokenizers
        if name and name not in known:
            violation = Violation("tokenizer", "tokenizer.known", f"is not one of {', '.join(known)}")
            raise MeshError(Reason.INVALID_REQUEST, violations=[violation])
        return name or known[0]

    async def count(self, texts: Sequence[str], tokenizer: str) -> list[int]:
        """Return the token count of each text. Raises SERVICE_UNAVAILABLE when the language process does not answer."""
        keys = [hashlib.blake2b(f"{tokenizer} {text}".encode(), digest_size=16).digest() for text in texts]
        # Read before the await, because other calls may evict these entries in the meantime.
        counts = [self._cache.get(key) for key in keys]
        missing = [position for position, count in enumerate(counts) if count is None]
        if missing:
            try:
                counted = await self._language.count([texts[position] for position in missing], tokenizer)
            except LanguageUnavailableError as error:
                raise MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=1.0) from error
            for position, count in zip(missing, counted, strict=True):
                counts[position] = self._cache.put(keys[position], count)
        return [count for count in counts if count is not None]
