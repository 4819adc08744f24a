"""A replay of ten thousand decisions with a thousand policies reports progress and exactly the expected flips, also by
rules about what the set of that time did not read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.audit_client.act import ActEncoder
from libs.audit_client.outbox import ActRecorder
from libs.common.ids import new_id
from libs.common.runtime.clock import SystemClock
from libs.common.sealing import Seal
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from services.authz.adapters.cedar.active_sets import ActivePolicySets
from services.authz.adapters.cedar.compiler import compiler_for
from services.authz.adapters.postgres.decision_journal import DecisionJournal
from services.authz.adapters.postgres.policy_sets import PostgresPolicySets
from services.authz.adapters.postgres.session_labels import PostgresSessionLabels
from services.authz.domain.model import Decision
from services.authz.domain.policies.model import NewPolicySet, ReplayProgress
from services.authz.domain.policies.replay_policy_set import ReplayPolicySet
from services.authz.tests.adapters.cedar.test_engine import make_request
from services.authz.tests.policy_texts import ask, forbid, permit
from services.authz.wiring import POLICIES

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUIET = Log("authz", level="error")
COMPILER = compiler_for(POLICIES)
DECISIONS = 10_000
SEAL = Seal([b"k" * 32])


@pytest.fixture
async def engine(database: Callable[[str], str]) -> AsyncIterator[AsyncEngine]:
    engine = engine_for(database("authz"), schema="authz")
    yield engine
    await engine.dispose()


def set_of(*policies: str) -> NewPolicySet:
    documents = {"a.cedar": "\n".join(policies)}
    return NewPolicySet(COMPILER.version(documents), documents, len(policies), "", "operator", NOW)


@pytest.mark.timeout(180)
async def test_ten_thousand_decisions_flip_exactly_where_planted(engine: AsyncEngine) -> None:
    many = [forbid(f"tenant-{index}", f'principal.tenant == "t{index}"') for index in range(1_000)]
    before = set_of(permit("open"), forbid("old", 'resource.tags.contains("old")'))
    after = set_of(
        permit("open"),
        forbid("planted", 'resource.tags.contains("planted")'),
        ask("asked", 'resource.tags.contains("asked")'),
        forbid("treasury", 'context.arguments.facts.contains("/to=treasury")'),
        forbid("confidential", 'context.session_labels.contains("confidential")'),
        *many,
    )
    sets = PostgresPolicySets(engine, ActRecorder(ActEncoder("authz")))
    active, journal = (
        ActivePolicySets(sets, COMPILER, QUIET),
        DecisionJournal(engine, QUIET, seal=SEAL, clock=SystemClock()),
    )
    labels = PostgresSessionLabels(engine)
    await active.start(before)
    await sets.put(after)
    # Labels come after the decisions about the sessions `late`, and before those about the sessions `early`.
    times = {"": NOW, "late": NOW, "early": datetime.now(UTC) + timedelta(days=1)}
    expected = {}
    chosen = random.Random(7)
    for index in range(DECISIONS):
        tag = chosen.choices(["old", "planted", "asked", "plain"], [1, 1, 1, 97])[0]
        to, session = chosen.choices(["finance", "treasury"], [98, 2])[0], chosen.choices(list(times), [96, 2, 2])[0]
        put = make_request(tags=(tag,), tenant=f"t{index % 5_000 + 990}", session_id=session)
        if session:
            await labels.add(
                make_request(tenant=put.caller.tenant, session_id=session, token_id=""), ["confidential"], "decisions/1"
            )
        call = replace(put.call, arguments=f'{{"to": "{to}"}}'.encode())
        put = replace(put, call=call, time=times[session])
        verdict = active.current.decide(put)
        decision = Decision(f"decisions/{new_id()}", verdict, before.version, True, NOW, NOW + timedelta(seconds=60))
        journal.record(decision, put, frozenset())
        denied = tag == "planted" or index % 5_000 + 990 < 1_000 or to == "treasury" or session == "early"
        was, would = (
            ("deny" if tag == "old" else "allow"),
            "deny" if denied else "needs_approval" if tag == "asked" else "allow",
        )
        if was != would:
            expected[decision.name] = (was, would)
        if index % 500 == 0:
            await asyncio.sleep(0)
    messages: list[ReplayProgress] = [
        message async for message in ReplayPolicySet(sets, active, journal, labels).execute(2, DECISIONS)
    ]
    flips = {flip.decision: (flip.before, flip.after) for message in messages for flip in message.flips}
    assert flips == expected
    assert sum(len(message.flips) for message in messages) == len(expected) > 500
    counts = [message.replayed for message in messages]
    assert counts == sorted(counts)
    assert len(messages) > 10
    assert (messages[0].replayed, messages[0].total, messages[-1].replayed) == (0, DECISIONS, DECISIONS)
    assert messages[-1].undecidable == 0
