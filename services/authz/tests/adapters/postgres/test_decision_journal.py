"""The journal of decisions with a real database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from msgspec.structs import replace
from sqlalchemy import event, select, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.sealing import Seal
from libs.common.sql.engine import engine_for, transaction
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.authz.adapters.postgres import decision_journal
from services.authz.adapters.postgres.decision_journal import DecisionJournal
from services.authz.adapters.postgres.tables import decisions
from services.authz.domain.model import (
    Allow,
    CallFacts,
    ContextField,
    Decision,
    DecisionRequest,
    Deny,
    NeedsApproval,
    Obligation,
    SuggestedUpdate,
    Verdict,
)
from services.authz.tests.adapters.cedar.test_engine import make_request

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
QUIET = Log("authz", level="error")
SEAL = Seal([b"k" * 32])
CLOCK = ManualClock()
ARGUMENTS = frozenset({ContextField.ARGUMENTS})


@pytest.fixture
async def engine(database: Callable[[str], str]) -> AsyncIterator[AsyncEngine]:
    engine = engine_for(database("authz"), schema="authz")
    yield engine
    await engine.dispose()


def decided(outcome: Any = Allow(), **changes: Any) -> Decision:  # noqa: B008  a frozen value
    verdict = Verdict(
        outcome,
        ("because",),
        ("p",),
        suggested_updates=(SuggestedUpdate("scope", "a:b"),),
        obligations=(Obligation("cap_rows", ("5",)),),
        labels=("l",),
    )
    given = {"cacheable": True, "decide_time": NOW, "expire_time": NOW + timedelta(seconds=60), **changes}
    return Decision(f"decisions/{new_id()}", verdict, "sha256:1", **given)


def asked(**changes: Any) -> DecisionRequest:
    found = make_request(scopes=frozenset({"a:b"}), groups=("g",), tenant="t", tags=("x",), **changes)
    return replace(found, time=NOW, labels=frozenset({"confidential"}), granted_by_name=False)


@pytest.mark.parametrize(
    "outcome", [Allow(), Deny(Reason.PERMISSION_DENIED), NeedsApproval(("security", "legal"), 2, "two-keys")]
)
async def test_the_journal_returns_a_decision_unchanged(engine: AsyncEngine, outcome: Any) -> None:
    journal = DecisionJournal(engine, QUIET, seal=None, clock=CLOCK)
    decision, put = decided(outcome, added_labels=("l",)), asked()
    journal.record(decision, put, frozenset({ContextField.LABELS}))
    found = await journal.find(decision.name.removeprefix("decisions/"))
    assert found is not None
    assert (found.decision, found.request, found.context_fields) == (decision, put, frozenset({ContextField.LABELS}))
    assert await journal.find("unknown") is None


def with_arguments(arguments: bytes) -> DecisionRequest:
    put = asked()
    return replace(put, call=replace(put.call, arguments=arguments, resources=("file:/secret",)))


async def stored(journal: DecisionJournal, decision: Decision) -> CallFacts:
    found = await journal.find(decision.name.removeprefix("decisions/"))
    assert found is not None
    return found.request.call


async def test_arguments_are_kept_sealed_and_unread_ones_up_to_a_size(engine: AsyncEngine) -> None:
    card, large = b'{"card": "4111-secret"}', b'{"card": "%s"}' % (b"4" * decision_journal.UNREAD_BYTES)
    journal = DecisionJournal(engine, QUIET, seal=SEAL, clock=CLOCK)
    kept = [(decided(), card, ARGUMENTS), (decided(), card, frozenset()), (decided(), large, ARGUMENTS)]
    left_out: list[tuple[Decision, bytes, frozenset[ContextField] | None]] = [
        (decided(), large, frozenset()),
        (decided(), card, None),
    ]
    for decision, arguments, fields in [*kept, *left_out]:
        journal.record(decision, with_arguments(arguments), fields)
    for decision, arguments, _ in kept:
        call = await stored(journal, decision)
        assert (call.arguments, call.resources) == (arguments, ("file:/secret",))
    for decision, _, _ in left_out:
        call = await stored(journal, decision)
        assert (call.arguments, call.resources) == (b"", ())
    async with transaction(engine) as connection:
        rows = (await connection.execute(select(decisions))).all()
    assert not any("secret" in str(row.question) + str(row.answer) + repr(bytes(row.sealed or b"")) for row in rows)


async def test_arguments_are_deleted_after_the_retention_and_decisions_are_not(engine: AsyncEngine) -> None:
    journal = DecisionJournal(engine, QUIET, seal=SEAL, clock=CLOCK, retention=timedelta(days=30))
    now = CLOCK.now()
    old, fresh = decided(decide_time=now - timedelta(days=31)), decided(decide_time=now - timedelta(days=29))
    for decision in (old, fresh):
        journal.record(decision, with_arguments(b"{}"), ARGUMENTS)
    await journal.flush()
    await journal.forget()
    assert (await stored(journal, old)).arguments == b""
    assert (await stored(journal, fresh)).arguments == b"{}"


async def test_without_a_key_or_with_another_one_there_are_no_arguments(engine: AsyncEngine) -> None:
    put = asked()
    put = replace(put, call=replace(put.call, arguments=b"{}"))
    decision = decided()
    DecisionJournal(engine, QUIET, seal=None, clock=CLOCK).record(decision, put, ARGUMENTS)
    first = DecisionJournal(engine, QUIET, seal=SEAL, clock=CLOCK)
    first.record(decision, put, ARGUMENTS)
    await first.flush()
    other = await DecisionJournal(engine, QUIET, seal=Seal([b"x" * 32]), clock=CLOCK).find(
        decision.name.removeprefix("decisions/")
    )
    assert other is not None
    assert other.request.call.arguments == b""


async def test_the_last_decisions_come_newest_first_in_pages(engine: AsyncEngine, monkeypatch: Any) -> None:
    monkeypatch.setattr(decision_journal, "_PAGE", 3)
    journal, made = DecisionJournal(engine, QUIET, seal=None, clock=CLOCK), [decided() for _ in range(8)]
    for decision in made:
        journal.record(decision, asked(), frozenset())
    assert [await journal.count(most) for most in (5, 100)] == [5, 8]
    pages = [[each.decision.name for each in page] async for page in journal.last(7)]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [name for page in pages for name in page] == [decision.name for decision in reversed(made)][:7]


async def test_decisions_beyond_the_queue_size_are_counted_and_dropped(engine: AsyncEngine) -> None:
    journal = DecisionJournal(engine, QUIET, seal=None, clock=CLOCK, queue_size=2)
    before = decision_journal.dropped_total._value.get()
    for _ in range(5):
        journal.record(decided(), asked(), frozenset())
    assert decision_journal.dropped_total._value.get() - before == 3
    assert await journal.count(10) == 2


async def test_arguments_that_wait_have_a_bound_together(engine: AsyncEngine, monkeypatch: Any) -> None:
    monkeypatch.setattr(decision_journal, "_QUEUE_BYTES", 25)
    put = asked()
    put = replace(put, call=replace(put.call, arguments=b'{"a": 1234}'))
    journal = DecisionJournal(engine, QUIET, seal=SEAL, clock=CLOCK)
    for _ in range(5):
        journal.record(decided(), put, ARGUMENTS)
        # Arguments that no policy read displace no decision: it is stored without them.
        journal.record(decided(), put, frozenset())
    assert await journal.count(20) == 2 + 5
    journal.record(decided(), put, ARGUMENTS)
    assert await journal.count(20) == 2 + 5 + 1


async def test_old_decisions_are_let_go(engine: AsyncEngine, monkeypatch: Any) -> None:
    monkeypatch.setattr(decision_journal, "_BATCH", 1)
    journal, made = (
        DecisionJournal(engine, QUIET, seal=None, clock=CLOCK, max_decisions=3),
        [decided() for _ in range(10)],
    )
    for decision in made:
        journal.record(decision, asked(), frozenset())
    await journal.flush()
    pages = [page async for page in journal.last(100)]
    assert [each.decision.name for page in pages for each in page] == [each.name for each in reversed(made)][:3]


async def test_the_journal_is_written_in_the_background_and_on_stop(engine: AsyncEngine) -> None:
    journal = DecisionJournal(engine, QUIET, seal=None, clock=CLOCK)
    await journal.start()
    decision = decided()
    journal.record(decision, asked(), frozenset())
    await journal.stop()
    assert await DecisionJournal(engine, QUIET, seal=None, clock=CLOCK).count(10) == 1


async def test_a_database_that_is_away_loses_nothing_that_fits(engine: AsyncEngine, monkeypatch: Any) -> None:
    journal = DecisionJournal(engine, QUIET, seal=None, clock=CLOCK)
    journal.record(decided(), asked(), frozenset())
    with monkeypatch.context() as broken:
        broken.setattr(decision_journal, "_WRITE", text("select no_such_column from decisions"))
        with pytest.raises(ProgrammingError):
            await journal.flush()
    assert await journal.count(10) == 1


async def test_one_that_the_database_cannot_hold_is_let_go_and_counted_and_all_others_are_kept(
    engine: AsyncEngine,
) -> None:
    journal, before = (
        DecisionJournal(engine, QUIET, seal=None, clock=CLOCK),
        decision_journal.dropped_total._value.get(),
    )
    made, odd = [decided() for _ in range(4)], asked()
    odd = replace(odd, call=replace(odd.call, session_id="a\0b"))
    for place, decision in enumerate(made):
        journal.record(decision, odd if place == 1 else asked(), frozenset())
    found = [await journal.find(each.name.removeprefix("decisions/")) for each in made]
    assert [each is not None for each in found] == [True, False, True, True]
    assert decision_journal.dropped_total._value.get() - before == 1
    await journal.stop()


async def test_a_statement_carries_only_so_much_however_much_waits(engine: AsyncEngine) -> None:
    """What the database takes at once has an end, and what is beyond it would be tried again for ever."""
    journal, sizes = DecisionJournal(engine, QUIET, seal=SEAL, clock=CLOCK), []

    def measured(connection: Any, cursor: Any, statement: str, given: Any, *rest: Any) -> None:
        sizes.append(sum(len(value) for value in given.values() if isinstance(value, str)))

    # Text that is as much longer when it is sealed as can be.
    arguments = orjson.dumps({"a": "\\" * (512 * 1024 - 8)})
    made = [decided() for _ in range(12)]
    for decision in made:
        journal.record(decision, asked(arguments=arguments), ARGUMENTS)
    event.listen(engine.sync_engine, "before_cursor_execute", measured)
    await journal.flush()
    event.remove(engine.sync_engine, "before_cursor_execute", measured)
    assert 0 < max(sizes) < 24 * 1024 * 1024
    assert await journal.count(100) == len(made)
    found = await journal.find(made[-1].name.removeprefix("decisions/"))
    assert found is not None
    assert found.request.call.arguments == arguments
