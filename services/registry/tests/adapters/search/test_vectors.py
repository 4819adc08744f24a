"""Vectors in a real database: each is computed once, by one replica, also after another was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.audit_client.act import ActEncoder
from libs.audit_client.outbox import ActRecorder
from services.registry.adapters.postgres.catalogue import PostgresCatalogue
from services.registry.adapters.postgres.change_feed import PolledChangeFeed
from services.registry.adapters.postgres.change_log import PostgresChangeLog
from services.registry.adapters.search.vector_writer import BATCH, VectorWriter
from services.registry.adapters.search.vectors import PostgresVectors
from services.registry.domain.discovery.ports import LanguageUnavailableError
from services.registry.tests.calls import PATIENCE
from services.registry.tests.conftest import QUIET, Replica
from services.registry.tests.domain.catalog.test_list_tools import register
from services.registry.tests.manifests import reader
from services.registry.tests.polling import until

MANY = 20


class Numbered:
    """A Language that records the texts it embeds and can fail first."""

    model, tokenizers = "numbered", ("none",)

    def __init__(self, failures: int = 0) -> None:
        self.texts: list[str] = []
        self._failures = failures

    async def embed(self, texts: Sequence[str], *, background: bool = False) -> Sequence[bytes]:
        if self._failures:
            self._failures -= 1
            raise LanguageUnavailableError("embed")
        assert background
        self.texts += texts
        return [bytes(768) for _ in texts]

    async def count(self, texts: Sequence[str], tokenizer: str) -> Sequence[int]:
        return [0 for _ in texts]


@pytest.fixture
async def many(registry: Replica) -> list[str]:
    await register(registry.stub(), *(reader(f"acme.tool_{n}", title=f"Tool number {n}") for n in range(MANY)))
    return [f"Tool number {n}" for n in range(MANY)]


def vectors(engine: AsyncEngine, lease_seconds: float = 60.0) -> PostgresVectors:
    return PostgresVectors(engine, "model/1", lease_seconds=lease_seconds)


@pytest.mark.usefixtures("many")
async def test_a_claimed_manifest_is_not_claimed_twice(engine: AsyncEngine) -> None:
    claims = await asyncio.gather(*(vectors(engine).claim(7) for _ in range(6)))
    digests = [each.digest for claim in claims for each in claim]
    assert len(digests) == len(set(digests)) > 0
    rest = [each.digest for each in await vectors(engine).claim(100)]
    assert len({*digests, *rest}) == MANY == len(digests) + len(rest)
    assert await vectors(engine).claim(100) == []
    # Another model needs its own vectors.
    assert len(await PostgresVectors(engine, "model/2").claim(100)) == MANY


@pytest.mark.usefixtures("many")
async def test_an_expired_claim_is_taken_over_and_finished_work_is_not(engine: AsyncEngine) -> None:
    dead = await vectors(engine, lease_seconds=-1.0).claim(100)
    await vectors(engine).put({dead[0].digest: b"\1" * 768})
    taken = await vectors(engine).claim(100)
    assert {each.digest for each in taken} == {each.digest for each in dead[1:]}
    found = await vectors(engine).load([each.digest for each in dead])
    assert found == {dead[0].digest: b"\1" * 768}


async def test_equal_content_is_worked_out_once(registry: Replica, engine: AsyncEngine) -> None:
    await register(registry.stub(), reader("acme.one_tool"), reader("acme.one_tool", "1.0.1"))
    assert len(await vectors(engine).claim(100)) == 2
    assert await vectors(engine).claim(100) == []


async def test_writers_share_the_work_and_go_on_after_a_failure(
    registry: Replica, engine: AsyncEngine, many: list[str]
) -> None:
    log = PostgresChangeLog(engine)
    feed = PolledChangeFeed(log, QUIET, interval=0.02)
    await feed.start()
    languages = [Numbered(), Numbered(failures=1)]
    writers = [
        VectorWriter(
            log=log,
            feed=feed,
            vectors=vectors(engine),
            language=language,
            journal=QUIET,
            settle=0.0,
            idle=0.1,
        )
        for language in languages
    ]
    for writer in writers:
        await writer.start()
    heads = await PostgresCatalogue(engine, ActRecorder(ActEncoder("registry"))).tools(
        namespace="", tags=(), after="", limit=100
    )
    assert len(heads) == MANY

    async def done() -> list[str]:
        return sorted(text for language in languages for text in language.texts)

    first = await until(done, lambda texts: len(texts) >= MANY, PATIENCE)
    assert len(first) == MANY
    await register(registry.stub(), reader("acme.later_tool", title="Later"))
    await until(done, lambda texts: any(text.startswith("Later") for text in texts), PATIENCE)
    for writer in writers:
        await writer.stop()
    await feed.stop()
    assert len(await done()) == MANY + 1
    assert MANY > BATCH


class Endless(Numbered):
    """A Language that never answers and signals when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def embed(self, texts: Sequence[str], *, background: bool = False) -> Sequence[bytes]:
        self.asked.set()
        return await asyncio.get_running_loop().create_future()


@pytest.mark.usefixtures("many")
async def test_a_stopped_writer_releases_its_claims(engine: AsyncEngine) -> None:
    log, language = PostgresChangeLog(engine), Endless()
    feed = PolledChangeFeed(log, QUIET, interval=0.02)
    await feed.start()
    writer = VectorWriter(
        log=log, feed=feed, vectors=vectors(engine), language=language, journal=QUIET, settle=0.0, idle=0.1
    )
    await writer.start()
    await language.asked.wait()
    await writer.stop()
    await feed.stop()
    assert len(await vectors(engine).claim(100)) == MANY
