"""Replaying: the first result for the caller of the second call, whatever policy says by now."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest, digest_bytes
from libs.common.json.jsonio import dump, parse
from libs.common.redaction.scanner import Scanner
from libs.common.runtime.clock import SystemClock
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Obligation, RenderedResult, Result
from services.executor.domain.results.replay import adapt_result
from services.executor.domain.results.store import LargeResults
from services.executor.domain.tool import Rendering
from services.executor.tests.memory_results import MemoryResults
from services.executor.tests.samples import a_caller, a_decision, a_request, a_result, a_tool

ROWS = {"said": "hello", "rows": [{"id": n, "mail": f"a{n}@example.com"} for n in range(40)]}
TOOL = a_tool(max_result_bytes=500, rendering=Rendering(model="{/said} {/rows/0/mail}"))


def bound(*obligations: Obligation) -> Invocation:
    invocation = Invocation(a_request(), SystemClock(), None)
    invocation.decision = a_decision(obligations=obligations)
    return invocation


def storing(store: MemoryResults | None = None) -> LargeResults:
    return LargeResults(store or MemoryResults(), 600.0, 1 << 20)


async def first_stored(store: MemoryResults) -> Result:
    content = dump(ROWS)
    kept = await storing(store).save(TOOL, a_caller(), content, digest_bytes(content), keyed=True)
    return a_result(content=b"", stored=kept, rendered=RenderedResult(model="hello a0@example.com"))


async def again(first: Result, invocation: Invocation, store: MemoryResults | None = None) -> tuple[Result, Any]:
    return await adapt_result(first, invocation, TOOL, Scanner(), storing(store))


async def test_what_binds_no_result_leaves_it_as_it_is() -> None:
    first = a_result()
    for invocation in (bound(), bound(Obligation("sandbox_tier", ("1",)), Obligation("dry_run"))):
        result, shown = await again(first, invocation)
        assert result is first
        assert shown.digest == digest({"said": "hello"})


async def test_a_stored_result_is_answered_with_the_same_reference() -> None:
    store = MemoryResults()
    first = await first_stored(store)
    result, shown = await again(first, bound(), store)
    assert result.stored is first.stored
    assert first.stored is not None
    assert shown.digest == first.stored.digest == digest_bytes(dump(ROWS))
    assert parse(shown.summary) == {"truncated": True, "size_bytes": first.stored.size}


async def test_what_is_now_removed_is_removed_from_every_form() -> None:
    result, shown = await again(
        a_result(rendered=RenderedResult(model="hello"), changed=("/x",)),
        bound(Obligation("redact_fields", ("/said",))),
    )
    assert (parse(result.content), result.changed, result.rendered.model) == ({}, ("/x", "/said"), " ")
    assert shown.digest == digest({})


async def test_a_stored_result_that_must_change_is_stored_anew() -> None:
    store = MemoryResults()
    first = await first_stored(store)
    result, shown = await again(first, bound(Obligation("redact_pii")), store)
    assert result.stored is not None
    assert first.stored is not None
    assert (result.content, result.stored.ref != first.stored.ref) == (b"", True)
    content = await storing(store).read(result.stored)
    assert content is not None
    assert b"@example.com" not in content
    assert b"@example.com" not in result.stored.preview
    assert "@example.com" not in result.rendered.model
    assert shown.digest == result.stored.digest
    assert len(result.changed) == 40


async def test_a_stored_result_that_becomes_small_is_embedded() -> None:
    store = MemoryResults()
    result, _ = await again(await first_stored(store), bound(Obligation("cap_rows", ("1",))), store)
    assert result.stored is None
    assert parse(result.content) == {"said": "hello", "rows": ROWS["rows"][:1]}


async def test_what_binds_without_changing_anything_keeps_the_reference() -> None:
    store = MemoryResults()
    first = await first_stored(store)
    result, _ = await again(first, bound(Obligation("redact_fields", ("/absent",))), store)
    assert result is first
    assert len(store.kept) == 1


async def test_a_stored_result_that_is_gone_and_must_change_is_withheld() -> None:
    store = MemoryResults()
    first = await first_stored(store)
    store.kept.clear()
    with pytest.raises(MeshError) as caught:
        await again(first, bound(Obligation("redact_pii")), store)
    assert caught.value.reason is Reason.SANITIZATION_FAILED
