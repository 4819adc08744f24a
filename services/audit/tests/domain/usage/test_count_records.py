"""Counting by segments, on an in-memory store."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.common.testing.clock import ManualClock
from services.audit.domain.usage.call import OTHER, DecodedRecord, Outcome, call_of
from services.audit.domain.usage.cells import LIMITS, Cell, Rollup, cells_of, rollup_for
from services.audit.domain.usage.count_records import CountRecords
from services.audit.domain.usage.tally import Tally
from services.audit.tests.usage_sample import NOON, InMemoryUsageStore, a_form, decoded_records

# No deadline: a loaded machine is slow, not wrong.
UNHURRIED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FORMS = st.lists(
    st.builds(
        a_form,
        st.sampled_from(["invocation_succeeded", "invocation_failed", "permission_decided", "hook_pre_started"]),
        at=st.integers(0, 2).map(lambda days: NOON + timedelta(days=days)),
        tool_version=st.sampled_from([f"tools/core.tool_{n}/versions/1.0.{n}" for n in range(4)] + ["unheard of"]),
        subject=st.sampled_from("abcdef"),
        tenant=st.sampled_from(["", "acme"]),
        task_id=st.sampled_from(["", "t1", "t2", "t3"]),
        latency_us=st.integers(0, 10**7),
    ),
    max_size=40,
)
SMALL = {Rollup.ALL: 1, Rollup.TOOL: 2, Rollup.TENANT: 2, Rollup.CALLER: 3, Rollup.TASK: 3}


async def count_all(store: InMemoryUsageStore, limits: Mapping[Rollup, int] = LIMITS) -> InMemoryUsageStore:
    counting = CountRecords(store, limits=limits)
    while store.position < len(store.log):
        await counting.run_once()
    return store


def count_from_scratch(log: list[DecodedRecord]) -> dict[Cell, Tally]:
    counts: dict[Cell, Tally] = {}
    for each in log:
        call = call_of(each)
        for cell in cells_of(call) if call else ():
            counts.setdefault(cell, Tally()).add(call)  # type: ignore[arg-type]
    return counts


def total(store: InMemoryUsageStore, rollup: Rollup) -> Tally:
    whole = Tally()
    for cell, tally in store.cells.items():
        if cell.rollup is rollup:
            whole.merge(tally)
    return whole


@UNHURRIED
@given(FORMS, st.integers(1, 50))
async def test_counting_by_segments_is_the_same_as_counting_from_scratch(forms: list[Any], segment_size: int) -> None:
    log = decoded_records(*forms)
    assert (await count_all(InMemoryUsageStore(log, segment_size=segment_size))).cells == count_from_scratch(log)


@UNHURRIED
@given(FORMS, st.integers(1, 50))
async def test_a_crowded_day_is_bounded_and_its_totals_stay_exact(forms: list[Any], segment_size: int) -> None:
    log = decoded_records(*forms)
    store = await count_all(InMemoryUsageStore(log, segment_size=segment_size), SMALL)
    exact = await count_all(InMemoryUsageStore(log))
    for rollup in Rollup:
        assert total(store, rollup) == total(exact, rollup)
    assert total(exact, Rollup.CALLER) == total(exact, Rollup.ALL)
    own = [cell for cell in store.cells if OTHER not in cell]
    for rollup_day in {cell.rollup_day for cell in own}:
        assert sum(cell.rollup_day == rollup_day for cell in own) <= SMALL[rollup_day[0]]
    # The size of the segments makes no difference.
    assert (await count_all(InMemoryUsageStore(log, segment_size=1), SMALL)).cells == store.cells


async def test_the_first_callers_of_a_day_keep_their_own_cells() -> None:
    forms = [a_form(subject=subject) for subject in ("a", "b", "c", "d", "a", "e", "c")]
    store = await count_all(InMemoryUsageStore(decoded_records(*forms), segment_size=2), {**LIMITS, Rollup.CALLER: 3})
    calls = {cell.subject: tally.calls for cell, tally in store.cells.items() if cell.rollup is Rollup.CALLER}
    assert calls == {"a": 2, "b": 1, "c": 2, OTHER: 2}
    tools = {cell.tool: tally.calls for cell, tally in store.cells.items() if cell.rollup is Rollup.TOOL}
    assert tools == {"core.echo": 7}


async def test_tools_over_the_limit_are_folded_in_every_rollup() -> None:
    forms = [
        a_form(tool_version=f"tools/core.tool_{n % 6}/versions/1.0.0", subject=str(n), task_id="t") for n in range(12)
    ]
    store = await count_all(InMemoryUsageStore(decoded_records(*forms), segment_size=5), {**LIMITS, Rollup.TOOL: 2})
    for rollup in Rollup:
        if rollup is not Rollup.ALL:
            assert {cell.tool for cell in store.cells if cell.rollup is rollup} == {"core.tool_0", "core.tool_1", OTHER}


async def test_a_failed_transaction_counts_nothing_and_is_repeated() -> None:
    log = decoded_records(*[a_form(latency_us=n) for n in range(20)])
    store, failures = InMemoryUsageStore(log, segment_size=4), []  # type: ignore[var-annotated]
    store.cuts = [8, 8, 16]
    counting = CountRecords(store, failed=failures.append, poll=0)
    await counting.start()
    await asyncio.wait_for(store.done.wait(), 60)
    await counting.stop()
    assert [type(error) for error in failures] == [ConnectionError] * 3
    assert store.cells == count_from_scratch(log)


class SlowUsageStore(InMemoryUsageStore):
    """Takes some seconds for each transaction."""

    def __init__(self, log: list[DecodedRecord], seconds: float, behind: float) -> None:
        super().__init__(log, segment_size=2)
        self.clock, self._seconds = ManualClock(log[0].log_time + timedelta(seconds=behind)), seconds

    def begin(self) -> Any:
        self.clock.advance(self._seconds)
        return super().begin()


@pytest.mark.parametrize(
    ("seconds", "behind", "expected"),
    [
        (0.0625, 0, [1.1875, 1.1875, 1.1875, 1.1875]),
        (0.03125, 0, [0.59375, 0.59375, 1, 1]),
        (0.0625, 100, [0.5625, 0.5625, 1, 1.1875]),
        (0.0625, 3600, [0.0625, 0.0625, 1, 1.1875]),
        (1, 0, [10, 10, 10, 10]),
    ],
    ids=["quick", "quicker", "behind", "far behind", "slow"],
)
async def test_counting_leaves_most_of_the_time_to_others(seconds: float, behind: float, expected: list[float]) -> None:
    store, enough = SlowUsageStore(decoded_records(*[a_form() for _ in range(6)]), seconds, behind), asyncio.Event()
    rests: list[float] = []

    async def pause(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 4:
            enough.set()
            await asyncio.Event().wait()

    counting = CountRecords(store, clock=store.clock, pause=pause, poll=1)
    await counting.start()
    await asyncio.wait_for(enough.wait(), 60)
    await counting.stop()
    # The lag grows while it works.
    assert rests == pytest.approx(expected, abs=0.01)


async def test_nothing_is_counted_while_another_replica_counts() -> None:
    store = InMemoryUsageStore(decoded_records(a_form()))
    store.taken = True
    assert await CountRecords(store).run_once() is False
    assert store.position == 0
    store.taken = False
    await CountRecords(store).run_once()
    assert store.position == 1


async def test_a_segment_without_calls_still_moves_the_position() -> None:
    store = InMemoryUsageStore(decoded_records(a_form("hook_pre_started"), None, a_form("hook_pre_started")))
    await CountRecords(store).run_once()
    assert (store.position, store.cells) == (3, {})


async def test_counting_an_unchanged_log_changes_nothing() -> None:
    store = await count_all(InMemoryUsageStore(decoded_records(a_form())))
    before = copy.deepcopy(store.cells)
    assert await CountRecords(store).run_once() is False
    assert store.cells == before


def test_a_day_has_the_documented_number_of_cells() -> None:
    assert LIMITS == {"all": 1, "tool": 5_000, "tenant": 10_000, "caller": 20_000, "task": 20_000}


@pytest.mark.parametrize(
    ("dimensions", "rollup"),
    [
        (set(), Rollup.ALL),
        ({"tool"}, Rollup.TOOL),
        ({"tool", "version"}, Rollup.TOOL),
        ({"tenant"}, Rollup.TENANT),
        ({"subject", "tool"}, Rollup.CALLER),
        ({"task"}, Rollup.TASK),
    ],
)
def test_a_query_reads_the_coarsest_rollup_that_has_its_dimensions(dimensions: set[str], rollup: Rollup) -> None:
    assert rollup_for(frozenset(dimensions)) is rollup


def test_outcomes_are_counted_apart() -> None:
    tally = Tally()
    for each in decoded_records(a_form(), a_form("invocation_failed")):
        tally.add(call_of(each))  # type: ignore[arg-type]
    assert (tally.outcomes[Outcome.SUCCEEDED], tally.outcomes[Outcome.FAILED]) == (1, 1)
