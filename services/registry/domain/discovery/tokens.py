"""Counting tokens, each text once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from libs.common.errors import MeshError, Reason, Violation
from services.registry.domain.discovery.ports import Language, LanguageUnavailableError

MAX_CACHED = 50_000


class TokenCounter:
    """Counts through the language process and remembers the numbers, not the texts."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._cache: OrderedDict[bytes, int] = OrderedDict()

    def tokenizer(self, name: str) -> str:
        """Return the tokenizer of that name, the default for none. Raises INVALID_REQUEST for an unknown one."""
        known = self._language.tokenizers
        if name and name not in known:
            violation = Violation("tokenizer", "tokenizer.known", f"is not one of {', '.join(known)}")
            raise MeshError(Reason.INVALID_REQUEST, violations=[violation])
        return name or known[0]

    async def count(self, texts: Sequence[str], tokenizer: str) -> list[int]:
        """Return how many tokens each text has. Raises SERVICE_UNAVAILABLE: a budget is never kept by guessing."""
        keys = [hashlib.blake2b(f"{tokenizer} {text}".encode(), digest_size=16).digest() for text in texts]
        # Taken out now: while the others are counted, somebody else's texts may take their places.
        found = [self._cache.get(key) for key in keys]
        missing = [position for position, count in enumerate(found) if count is None]
        if missing:
            try:
                counted = await self._language.count([texts[position] for position in missing], tokenizer)
            except LanguageUnavailableError as error:
                raise MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=1.0) from error
            for position, count in zip(missing, counted, strict=True):
                found[position] = self._cache[keys[position]] = count
            while len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
        return [count for count in found if count is not None]
