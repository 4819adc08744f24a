"""LargeResults: which results may be, for how long, and what their caller gets instead."""

from __future__ import annotations

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest_bytes
from services.executor.domain.results.store import PREVIEW_BYTES, LargeResults, preview_of, token_hash
from services.executor.tests.memory_results import MemoryResults
from services.executor.tests.samples import a_caller, a_tool, a_write_tool

ID = "0198a0c4-7c3e-7b6a-9d2e-1f0a2b3c4d5e"


def storing(store: MemoryResults | None = None) -> LargeResults:
    return LargeResults(store or MemoryResults(), seconds=600.0, cap=1000)


async def test_the_caller_gets_a_reference_a_preview_and_a_token_of_which_only_the_hash_is_kept() -> None:
    store, content = MemoryResults(), b'"' + b"x" * 2000 + b'"'
    caller = a_caller(tenant="acme")
    found = await storing(store).save(a_tool(), caller, content, digest_bytes(content), keyed=False)
    [(head, kept, seconds)] = store.kept.values()
    assert found.ref == f"results/{head.result_id}"
    assert (found.size, found.digest, found.preview) == (2002, digest_bytes(content), content[:PREVIEW_BYTES])
    assert (head.tenant, head.subject, kept, seconds) == ("acme", caller.subject, content, 600.0)
    assert head.token_hash == token_hash(found.token)
    assert found.token.encode() not in head.token_hash
    assert len(found.token) >= 43
    assert found.token not in repr(found)
    again = await storing(store).save(a_tool(), caller, content, digest_bytes(content), keyed=False)
    assert (again.ref, again.token) != (found.ref, found.token)


async def test_what_a_key_remembers_lives_as_long_as_the_key() -> None:
    store = MemoryResults()
    await storing(store).save(a_tool(window=7200.0), a_caller(), b"1", digest_bytes(b"1"), keyed=True)
    await storing(store).save(a_tool(window=60.0), a_caller(), b"1", digest_bytes(b"1"), keyed=True)
    long, short = (seconds for _, _, seconds in store.kept.values())
    # Longer than the key's window, which begins when its call has ended.
    assert (long > 7200.0, short) == (True, 600.0)


@pytest.mark.parametrize(
    ("changes", "arguments", "size", "why"),
    [
        ({}, {}, 1000, ""),
        ({}, {"text": "results/none"}, 900, ""),
        ({"persists": False}, {}, 900, "opt_out"),
        ({}, {}, 1001, "cap"),
        ({}, {"ref": f"results/{ID}"}, 900, "circular"),
        ({}, {"deep": [{"at": f"read results/{ID} please"}]}, 900, "circular"),
    ],
)
def test_a_result_is_stored_unless_that_is_forbidden(
    changes: dict[str, bool], arguments: dict[str, object], size: int, why: str
) -> None:
    refused = storing().refusal(a_tool(**changes), arguments, size)
    assert (refused.metadata["not_stored"] if refused else "") == why
    assert refused is None or refused.reason is Reason.RESULT_TOO_LARGE


@pytest.mark.parametrize("before", [PREVIEW_BYTES - 1, PREVIEW_BYTES - 2, PREVIEW_BYTES - 3])
def test_a_preview_ends_with_a_character(before: int) -> None:
    preview = preview_of(b"x" * before + "€".encode() * 2)
    assert preview.decode().rstrip("€") == "x" * before
    assert PREVIEW_BYTES - 3 <= len(preview) <= PREVIEW_BYTES


async def test_what_is_stored_is_read_whole_or_not_at_all() -> None:
    store, content = MemoryResults(), b"x" * 700_000
    found = await storing(store).save(a_tool(), a_caller(), content, digest_bytes(content), keyed=False)
    assert await storing(store).read(found) == content
    store.lost.add(1)
    assert await storing(store).read(found) is None
    store.kept.clear()
    assert await storing(store).read(found) is None


async def test_a_result_that_cannot_be_stored_now_invites_a_retry_only_where_that_is_harmless() -> None:
    store = MemoryResults()
    store.failure = MeshError(Reason.SERVICE_UNAVAILABLE)
    reasons = []
    for tool in (a_tool(), a_write_tool()):
        with pytest.raises(MeshError) as caught:
            await storing(store).save(tool, a_caller(), b"1", digest_bytes(b"1"), keyed=True)
        reasons.append((caught.value.reason, caught.value.row.retryable))
    assert reasons == [(Reason.SERVICE_UNAVAILABLE, True), (Reason.RESULT_TOO_LARGE, False)]
