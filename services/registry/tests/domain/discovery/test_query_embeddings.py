from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from services.registry.domain.discovery.ports import LanguageUnavailableError
from services.registry.domain.discovery.query_embeddings import BATCH_SIZE, QueryEmbeddings
from services.registry.domain.discovery.spelling import Spelling


class Slow:
    """A Language that answers when released, and records its calls."""

    model, tokenizers = "none", ()

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.away = False
        self.called, self.release = asyncio.Event(), asyncio.Event()

    async def embed(self, texts: Sequence[str], *, background: bool = False) -> list[bytes]:
        self.asked.append(list(texts))
        self.called.set()
        await self.release.wait()
        if self.away:
            raise LanguageUnavailableError("embed")
        return [text.encode() for text in texts]

    async def count(self, texts: Sequence[str], tokenizer: str) -> list[int]:
        return [0 for _ in texts]


async def test_concurrent_queries_are_embedded_in_one_batch_and_equal_ones_once() -> None:
    language = Slow()
    embeddings = QueryEmbeddings(language, Spelling({}, bool))
    first = asyncio.create_task(embeddings.vector_of("a"))
    await language.called.wait()
    others = [asyncio.create_task(embeddings.vector_of(text)) for text in ("b", "c", "B ", "a")]
    await asyncio.sleep(0)
    language.release.set()
    assert [await task for task in (first, *others)] == [b"a", b"b", b"c", b"b", b"a"]
    assert language.asked == [["a"], ["b", "c"]]
    assert await embeddings.vector_of("c") == b"c"
    assert len(language.asked) == 2


async def test_no_more_than_so_many_at_once() -> None:
    language = Slow()
    embeddings, texts = QueryEmbeddings(language, Spelling({}, bool)), [str(number) for number in range(BATCH_SIZE + 3)]
    tasks = [asyncio.create_task(embeddings.vector_of(text)) for text in texts]
    language.release.set()
    assert [await task for task in tasks] == [text.encode() for text in texts]
    assert max(map(len, language.asked)) <= BATCH_SIZE
    assert sum(map(len, language.asked)) == len(texts)


async def test_one_who_leaves_takes_nothing_from_the_others() -> None:
    language = Slow()
    embeddings = QueryEmbeddings(language, Spelling({}, bool))
    leaving, staying = (asyncio.create_task(embeddings.vector_of("a")) for _ in range(2))
    await language.called.wait()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    language.release.set()
    assert await staying == b"a"


async def test_without_the_language_process_there_is_no_vector_and_the_next_query_retries() -> None:
    language = Slow()
    embeddings = QueryEmbeddings(language, Spelling({}, bool))
    language.away = True
    language.release.set()
    assert await embeddings.vector_of("a") is None
    language.away = False
    assert await embeddings.vector_of("a") == b"a"
