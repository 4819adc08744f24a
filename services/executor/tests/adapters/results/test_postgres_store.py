"""Large results in a real PostgreSQL: atomic, encrypted, bound to their position, and expiring."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest_bytes
from libs.common.sealing import Seal
from libs.common.sql.engine import engine_for
from services.executor.adapters.results.postgres_store import PostgresResultStore
from services.executor.adapters.tables import result_pieces, results
from services.executor.domain.model import StoredResult
from services.executor.domain.results.fetch_result import FetchResult
from services.executor.domain.results.store import PIECE_BYTES, LargeResults
from services.executor.tests.samples import a_caller, a_tool

KEY = bytes(range(32))
CONTENT = b'["' + b"secret words " * 400_000 + b'"]'


@pytest.fixture
def engine(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncEngine:
    return engines[0]


@pytest.fixture
def here(engines: tuple[AsyncEngine, AsyncEngine]) -> PostgresResultStore:
    return PostgresResultStore(engines[0], Seal([KEY]))


@pytest.fixture
def there(engines: tuple[AsyncEngine, AsyncEngine]) -> PostgresResultStore:
    return PostgresResultStore(engines[1], Seal([KEY]))


async def keep(store: PostgresResultStore, content: bytes = CONTENT) -> StoredResult:
    return await LargeResults(store, 600.0, 1 << 30).save(
        a_tool(), a_caller(), content, digest_bytes(content), keyed=False
    )


async def read(store: PostgresResultStore, stored: StoredResult, **how: Any) -> bytes:
    pieces = FetchResult(store).stream(a_caller(), stored.ref, stored.token, **how)
    return b"".join([piece.content async for piece in pieces])


async def rows(engine: AsyncEngine, table: Any) -> list[Any]:
    async with engine.begin() as connection:
        return list(await connection.execute(select(table)))


async def expire(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(update(results).values(expire_time=func.now() - timedelta(seconds=1)))


async def test_a_stored_result_is_readable_by_every_process(
    here: PostgresResultStore, there: PostgresResultStore, engine: AsyncEngine
) -> None:
    stored = await keep(here)
    assert await read(there, stored) == CONTENT
    assert await read(there, stored, offset=PIECE_BYTES - 3, max_bytes=7) == CONTENT[PIECE_BYTES - 3 : PIECE_BYTES + 4]
    [row] = await rows(engine, results)
    assert (row.expire_time - row.create_time).total_seconds() == 600.0
    assert row.expire_time == stored.expires
    assert len(await rows(engine, result_pieces)) == -(-len(CONTENT) // PIECE_BYTES)


async def test_the_database_sees_neither_the_result_nor_its_token(
    here: PostgresResultStore, engine: AsyncEngine
) -> None:
    stored = await keep(here)
    seen = b"".join(str(row).encode() + bytes(row.token_hash) for row in await rows(engine, results))
    seen += b"".join(row.content for row in await rows(engine, result_pieces))
    assert b"secret words" not in seen
    assert stored.token.encode() not in seen


@pytest.mark.parametrize(
    "tamper",
    [
        "update result_pieces set number = 1 - number where number < 2",
        "update result_pieces set content = (select content from result_pieces where number = 1) where number = 0",
        "update results set size_bytes = size_bytes - 1",
        "delete from result_pieces where number = 0",
    ],
)
async def test_a_moved_exchanged_or_missing_piece_is_detected(
    here: PostgresResultStore, engine: AsyncEngine, tamper: str
) -> None:
    stored = await keep(here)
    async with engine.begin() as connection:
        await connection.execute(text("alter table result_pieces drop constraint result_pieces_pkey"))
        await connection.execute(text(tamper))
    with pytest.raises(MeshError) as caught:
        await read(here, stored)
    assert caught.value.reason is Reason.NOT_FOUND


async def test_a_result_whose_sealing_key_is_gone_is_unavailable(
    here: PostgresResultStore, engine: AsyncEngine
) -> None:
    stored = await keep(here)
    with pytest.raises(MeshError) as caught:
        await read(PostgresResultStore(engine, Seal([b"k" * 32])), stored)
    assert caught.value.reason is Reason.NOT_FOUND


async def test_an_expired_result_is_not_found_and_is_swept_with_its_pieces(
    here: PostgresResultStore, there: PostgresResultStore, engine: AsyncEngine
) -> None:
    stored = await keep(here)
    assert await here.sweep() == 0
    await expire(engine)
    assert await there.find(stored.ref.removeprefix("results/")) is None
    lasting = await keep(here, b"1")
    assert await there.sweep() == 1
    assert await there.sweep() == 0
    assert [row.result_id for row in await rows(engine, results)] == [lasting.ref.removeprefix("results/")]
    assert len(await rows(engine, result_pieces)) == 1


async def test_a_result_is_stored_whole_or_not_at_all(here: PostgresResultStore, engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("alter table result_pieces add constraint few check (number < 9)"))
    with pytest.raises(Exception):  # noqa: B017  (the driver's own error)
        await keep(here)
    assert await rows(engine, results) == []
    assert await rows(engine, result_pieces) == []


async def test_a_failing_database_is_service_unavailable() -> None:
    engine = engine_for("postgresql://executor:x@127.0.0.1:1/toolmesh", schema="executor")
    with pytest.raises(MeshError) as caught:
        await keep(PostgresResultStore(engine, Seal([KEY])))
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    await engine.dispose()
