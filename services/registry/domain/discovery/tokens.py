"""Counting tokens, each text once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from libs.common.errors import MeshError, Reason, Violation
from services.registry.domain.discovery.ports import Language, LanguageUnavailableError

_KEPT = 50_000


class TokenCounter:
    """Counts through the language process and remembers the numbers, not the texts."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._known: OrderedDict[bytes, int] = OrderedDict()

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
        missing = [at for at, key in enumerate(keys) if key not in self._known]
        if missing:
            try:
                counted = await self._language.count([texts[at] for at in missing], tokenizer)
            except LanguageUnavailableError as error:
                raise MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=1.0) from error
            self._known.update(zip((keys[at] for at in missing), counted, strict=True))
        found = [self._known[key] for key in keys]
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return found
