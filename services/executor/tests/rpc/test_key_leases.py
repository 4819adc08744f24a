"""Keys of calls that wait for their turn and then run for long, in a real PostgreSQL: one effect, and one answer for
everybody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.runtime.clock import SystemClock
from libs.common.sealing import Seal
from services.executor.adapters.idempotency.claims import LEASE_SECONDS, PostgresClaims
from services.executor.domain.invoke.invoke import Invoke
from services.executor.domain.phases.pipeline import Pipeline
from services.executor.domain.scheduling.scheduler import Scheduler
from services.executor.domain.scheduling.slots import SlotPool
from services.executor.domain.tool import Placement, UncertainOutcome
from services.executor.tests.fakes import World
from services.executor.tests.keys import KEY, age, encode_record
from services.executor.tests.samples import a_request, a_write_tool
from services.executor.tests.waiting import until

LIMIT = 30.0


class Shifted:
    """The clock that goes on by itself, which a test puts forward."""

    shift = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.shift


class Replica(World):
    """An executor whose keys are in a real table, and whose tool has one place and ends when the test says so."""

    def __init__(self, engine: AsyncEngine, owner: str) -> None:
        super().__init__()
        self.engine, self.shifted, self.scheduler = engine, Shifted(), Scheduler(SystemClock())
        self.table = PostgresClaims(engine, owner, Seal([KEY]), encode_record)
        self.table._leases._monotonic = self.shifted
        ports = replace(self.ports, claims=self.table, slots=SlotPool(self.scheduler, SystemClock()))
        self.pipeline = Pipeline(ports, in_flight=self.in_flight, audit_wait=5.0)
        self.invoke = Invoke(self.pipeline)
        self.table.listen(self.pipeline.supervisor.active.cancel_lost_claim, self.watcher.unexpected)
        self.ends: list[asyncio.Event] = []
        self.runner.behave = self._until_told

    def knows(self, rule: UncertainOutcome) -> None:
        placement = Placement(concurrency_safe=True, max_concurrency=1)
        repeatable = rule is UncertainOutcome.REPEAT
        self.tools.tools["say"] = a_write_tool(
            own_limit=LIMIT, placement=placement, uncertain=rule, status_tool="status", repeatable=repeatable
        )

    async def later(self, seconds: float) -> None:
        """Let time pass, with a lease that runs out unless it is renewed at every beat."""
        for _ in range(int(seconds / LEASE_SECONDS * 2)):
            self.shifted.shift += LEASE_SECONDS / 2
            await age(self.engine, "lease_until")
            await self.table._leases._renew()

    async def _until_told(self, arguments: dict[str, Any]) -> Any:
        self.ends.append(asyncio.Event())
        await self.ends[-1].wait()
        return {"said": arguments["text"]}


@pytest.fixture
async def replicas(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncIterator[list[Replica]]:
    made = [Replica(engine, f"executor-{number}") for number, engine in enumerate(engines)]
    yield made
    for replica in made:
        await replica.table.stop()


@pytest.mark.parametrize("rule", list(UncertainOutcome))
async def test_a_call_that_was_queued_and_then_runs_for_long_has_one_effect(
    replicas: list[Replica], rule: UncertainOutcome
) -> None:
    here, there = replicas
    for replica in replicas:
        replica.knows(rule)
    before = asyncio.ensure_future(here.invoke.execute(a_request(idempotency_key="before", deadline=None)))
    await until(lambda: here.ends)
    first = asyncio.ensure_future(here.invoke.execute(a_request(idempotency_key="k", deadline=None)))
    await until(lambda: here.scheduler.length)
    await here.later(LIMIT)
    here.ends[0].set()
    await before
    await until(lambda: len(here.ends) == 2)
    await here.later(LIMIT)
    again = asyncio.ensure_future(there.invoke.execute(a_request(idempotency_key="k", deadline=None)))
    await until(lambda: there.table._waiters.scopes or there.ends or again.done())
    here.ends[1].set()
    results = await asyncio.wait_for(asyncio.gather(first, again), 20)
    assert [result.replayed for result in results] == [False, True]
    assert results[0].result_id == results[1].result_id
    assert (len(here.ends), len(there.ends)) == (2, 0)
