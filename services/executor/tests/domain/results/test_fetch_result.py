"""FetchResult: whole or in part, for its owner, and NOT_FOUND for others."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest_bytes
from services.executor.domain.model import StoredResult
from services.executor.domain.results.fetch_result import FetchResult
from services.executor.domain.results.store import PIECE_BYTES, LargeResults
from services.executor.tests.memory_results import MemoryResults
from services.executor.tests.samples import a_caller, a_tool

CONTENT = bytes(range(256)) * (PIECE_BYTES // 128) + b"end"


async def stored(store: MemoryResults, **caller: Any) -> StoredResult:
    return await LargeResults(store, 600.0, 1 << 30).save(
        a_tool(), a_caller(**caller), CONTENT, digest_bytes(CONTENT), keyed=False
    )


async def fetched(
    store: MemoryResults, found: StoredResult, caller: dict[str, Any] | None = None, **how: Any
) -> list[tuple[int, bytes]]:
    token = how.pop("token", found.token)
    ref = how.pop("ref", found.ref)
    pieces = FetchResult(store).stream(a_caller(**(caller or {})), ref, token, **how)
    return [(piece.offset, piece.content) async for piece in pieces]


async def test_a_result_is_read_piece_by_piece() -> None:
    store = MemoryResults()
    pieces = await fetched(store, await stored(store))
    assert [len(content) for _, content in pieces] == [PIECE_BYTES, PIECE_BYTES, 3]
    assert [offset for offset, _ in pieces] == [0, PIECE_BYTES, 2 * PIECE_BYTES]
    assert b"".join(content for _, content in pieces) == CONTENT


@pytest.mark.parametrize(
    ("offset", "most"),
    [
        (0, 1),
        (5, 0),
        (PIECE_BYTES - 1, 2),
        (PIECE_BYTES, PIECE_BYTES),
        (1, 2 * PIECE_BYTES),
        (2 * PIECE_BYTES + 2, 100),
        (len(CONTENT), 0),
        (len(CONTENT), 5),
    ],
)
async def test_any_part_of_it_is_that_part(offset: int, most: int) -> None:
    store = MemoryResults()
    pieces = await fetched(store, await stored(store), offset=offset, max_bytes=most)
    assert b"".join(content for _, content in pieces) == CONTENT[offset : offset + most if most else None]
    assert pieces[0][0] == offset
    assert all(len(content) <= PIECE_BYTES for _, content in pieces)


async def reason(call: Any) -> Reason:
    with pytest.raises(MeshError) as caught:
        await call
    return caught.value.reason


async def test_every_piece_says_what_the_whole_is() -> None:
    store = MemoryResults()
    found = await stored(store)
    pieces = [piece async for piece in FetchResult(store).stream(a_caller(), found.ref, found.token)]
    assert {(piece.head.size, piece.head.digest) for piece in pieces} == {(found.size, found.digest)}


async def test_every_wrong_reference_gets_the_same_answer() -> None:
    store = MemoryResults()
    found, other = await stored(store, tenant="acme"), await stored(store, tenant="acme")
    acme = {"tenant": "acme", "subject": "did:web:toolmesh.local:users:bob"}
    assert await fetched(store, found, acme)
    for attempt in (
        fetched(store, found, acme, token="x"),
        fetched(store, found, acme, token=other.token),
        fetched(store, found, acme, ref=other.ref),
        fetched(store, found, acme, ref="results/00000000-0000-0000-0000-000000000000"),
        fetched(store, found, {"tenant": "evil"}),
        fetched(store, found, {"tenant": ""}),
    ):
        assert await reason(attempt) is Reason.NOT_FOUND


async def test_without_a_tenant_only_whose_it_is_reads_it() -> None:
    store = MemoryResults()
    found = await stored(store)
    assert await fetched(store, found)
    assert await reason(fetched(store, found, {"subject": "did:web:toolmesh.local:users:bob"})) is Reason.NOT_FOUND
    assert await reason(fetched(store, found, {"tenant": "acme"})) is Reason.NOT_FOUND


async def test_what_expires_while_it_is_read_ends_so() -> None:
    store = MemoryResults()
    found = await stored(store)
    store.lost.add(1)
    assert await reason(fetched(store, found)) is Reason.NOT_FOUND


async def test_nothing_is_beyond_the_end() -> None:
    store = MemoryResults()
    found = await stored(store)
    assert await reason(fetched(store, found, offset=len(CONTENT) + 1)) is Reason.INVALID_REQUEST
