"""Keys as operators see and settle them, in a real PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import SystemClock
from libs.common.sealing import Seal
from services.executor.adapters.idempotency.claims import PostgresClaims
from services.executor.adapters.idempotency.key_administration import PostgresKeys
from services.executor.adapters.tables import outbox
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.idempotency.list_keys import ListKeys, get_key
from services.executor.domain.idempotency.settle_key import SettleKey, Settlement
from services.executor.domain.idempotency.stored_key import KeyFilter, KeyState
from services.executor.domain.model import Claim, ClaimOutcome
from services.executor.tests.fakes import KnownTools
from services.executor.tests.keys import KEY, a_claim, age, encode_record, refusal, rows
from services.executor.tests.samples import a_caller, a_record, a_result, a_write_tool

ALL = KeyFilter(states=tuple(KeyState))


@pytest.fixture
def engine(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncEngine:
    return engines[0]


@pytest.fixture
def keys(engine: AsyncEngine) -> PostgresKeys:
    return PostgresKeys(engine, Seal([KEY]), encode_record)


@pytest.fixture
def settle(keys: PostgresKeys) -> SettleKey:
    return SettleKey(keys, KnownTools(a_write_tool()), TenantScanners(), SystemClock())


def finding(claim: Claim, result: bytes | None = None, **changes: Any) -> Settlement:
    fields = {"reason": "seen in the ledger", "caller": a_caller(), "tenant": None, **changes}
    return Settlement(claim.name, result, **fields)


async def unknown(claims: PostgresClaims, **changes: Any) -> Claim:
    """Return a claim whose outcome is unknown."""
    claim = a_claim(**changes)
    await claims.acquire(claim)
    await claims.settle(claim, ClaimOutcome(claim.invocation_id, key_errors.outcome_unknown(claim.invocation_id, "k")))
    return claim


async def fragments(engine: AsyncEngine) -> list[bytes]:
    async with engine.begin() as connection:
        return [row.fragment for row in await connection.execute(select(outbox))]


async def test_keys_are_listed_by_state_tool_subject_key_and_tenant(
    here: PostgresClaims, keys: PostgresKeys, engine: AsyncEngine
) -> None:
    lost = a_claim(key="lost", tenant="other")
    await here.acquire(lost)
    # As if its process had died: no lease is renewed any more.
    await here.stop()
    await age(engine, "lease_until")
    held, ended, doubtful = a_claim(key="held"), a_claim(key="ended", tool="core.b"), await unknown(here, key="doubt")
    for claim in (held, ended):
        await here.acquire(claim)
    await here.settle(ended, ClaimOutcome(ended.invocation_id, a_result()))
    listing = ListKeys(keys)

    async def named(wanted: KeyFilter) -> set[str]:
        page, token = await listing.execute(wanted, 0, "")
        assert token == ""
        return {key.key for key in page}

    assert await named(KeyFilter()) == {"lost", "doubt"}
    assert await named(ALL) == {"lost", "doubt", "held", "ended"}
    assert await named(KeyFilter(states=(KeyState.RUNNING,))) == {"held"}
    assert await named(KeyFilter(states=(KeyState.SUCCEEDED,), tool="core.b", subject=ended.subject)) == {"ended"}
    assert await named(KeyFilter(tenant="other")) == {"lost"}
    assert await named(KeyFilter(key="doubt")) == {"doubt"}
    shown = await get_key(keys, doubtful.name, "acme")
    assert (shown.state, shown.unresolved) == (KeyState.UNKNOWN, (doubtful.invocation_id,))
    assert (await get_key(keys, lost.name, None)).unresolved == (lost.invocation_id,)
    assert (await refusal(get_key(keys, lost.name, "acme"))).reason is Reason.NOT_FOUND
    await age(engine, "expire_time")
    assert await named(ALL) == set()
    assert (await refusal(get_key(keys, lost.name, None))).reason is Reason.NOT_FOUND


async def test_pages_follow_each_other_and_refuse_the_tokens_of_others(
    here: PostgresClaims, keys: PostgresKeys
) -> None:
    for number in range(5):
        await unknown(here, key=str(number))
    listing, seen, token = ListKeys(keys), [], ""
    while True:
        page, token = await listing.execute(KeyFilter(), 2, token)
        seen += [key.key for key in page]
        if not token:
            break
    assert seen == ["4", "3", "2", "1", "0"]
    _, token = await listing.execute(KeyFilter(), 2, "")
    for wanted, forged in ((ALL, token), (KeyFilter(), "x"), (KeyFilter(tenant="acme"), token)):
        assert (await refusal(listing.execute(wanted, 2, forged))).reason is Reason.PAGE_TOKEN_INVALID


async def test_an_effect_that_happened_is_answered_and_on_record(
    here: PostgresClaims, settle: SettleKey, engine: AsyncEngine
) -> None:
    claim = await unknown(here)
    key, record_id = await settle.execute(finding(claim, b'{"said": "hello"}'))
    assert key.state is KeyState.SUCCEEDED
    answered = await here.acquire(a_claim())
    assert answered is not None
    assert not isinstance(answered.outcome, MeshError)
    assert (answered.outcome.content, answered.outcome.evidence) == (b'{"said":"hello"}', (f"records/{record_id}",))
    [fragment] = await fragments(engine)
    for text in (
        b"key_settled",
        b'"act":{"reason":"',
        b"seen in the ledger",
        b"happened",
        record_id.encode(),
        claim.name.encode(),
    ):
        assert text in fragment
    assert (await refusal(settle.execute(finding(claim)))).reason is Reason.FAILED_PRECONDITION


async def test_an_effect_that_did_not_happen_frees_the_key(
    here: PostgresClaims, settle: SettleKey, engine: AsyncEngine
) -> None:
    claim = await unknown(here)
    await settle.execute(finding(claim))
    assert await rows(engine) == []
    assert await here.acquire(a_claim()) is None
    assert len(await fragments(engine)) == 1


async def test_what_cannot_be_settled_is_neither_changed_nor_recorded(
    here: PostgresClaims, settle: SettleKey, keys: PostgresKeys, engine: AsyncEngine
) -> None:
    held, doubtful = a_claim(key="held"), await unknown(here)
    await here.acquire(held)
    refusals = [
        (finding(held), Reason.FAILED_PRECONDITION),
        (finding(doubtful, tenant="other"), Reason.NOT_FOUND),
        (finding(doubtful, b'{"said": 1}'), Reason.RESULT_INVALID),
        (finding(doubtful, b"{"), Reason.INVALID_JSON),
        (finding(a_claim(key="none")), Reason.NOT_FOUND),
    ]
    for settlement, reason in refusals:
        assert (await refusal(settle.execute(settlement))).reason is reason
    stale = await get_key(keys, doubtful.name, None)
    await settle.execute(finding(doubtful))
    again = await unknown(here)
    assert again.name == doubtful.name
    recorded = await fragments(engine)
    assert not await keys.settle(stale, None, a_record())
    assert await fragments(engine) == recorded
