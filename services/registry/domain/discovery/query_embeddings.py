"""What questions mean, as vectors."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice

from services.registry.domain.discovery.ports import Language, LanguageUnavailableError

_KEPT = 1000
# Hardly cheaper each if there were more, and while these are looked up among the tools, the next are worked out.
TOGETHER = 4


class Meanings:
    """The vectors of questions, remembered: agents ask the same thing often. Questions that come while others are being worked out
    wait for each other and are worked out together, which costs less than one after the other."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._wanted: dict[str, tuple[str, asyncio.Future[bytes | None]]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def of(self, text: str) -> bytes | None:
        """Return the meaning of a text; None when the language process does not answer."""
        key = " ".join(text.split()).lower()
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        _, meaning = self._wanted.setdefault(key, (text, asyncio.get_running_loop().create_future()))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask(), name="meanings")
        # Others may wait for the same, and go on if this one leaves.
        return await asyncio.shield(meaning)

    async def _ask(self) -> None:
        """Work out what is wanted until nothing is."""
        try:
            while batch := dict(islice(self._wanted.items(), TOGETHER)):
                try:
                    vectors: Sequence[bytes | None] = await self._language.embed([text for text, _ in batch.values()])
                except LanguageUnavailableError:
                    vectors = [None] * len(batch)
                for (key, (_, meaning)), vector in zip(batch.items(), vectors, strict=True):
                    del self._wanted[key]
                    self._keep(key, vector)
                    meaning.set_result(vector)
        finally:
            self._asking = None
            # Only if this ends before its time; nobody is left to wait for ever.
            left, self._wanted = self._wanted, {}
            for _, meaning in left.values():
                meaning.set_result(None)

    def _keep(self, key: str, vector: bytes | None) -> None:
        if vector is not None:
            self._known[key] = vector
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
