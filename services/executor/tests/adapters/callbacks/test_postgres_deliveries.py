"""Deliveries in PostgreSQL: claimed once, some of each tenant, and again after their lease."""

from __future__ import annotations

import asyncio

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sealing import Seal
from services.executor.adapters.callbacks.postgres_deliveries import PostgresDeliveries
from services.executor.domain.callbacks.delivery import DeliveryFilter, DeliveryStatus
from services.executor.domain.jobs.job import Callback, JobOwner
from services.executor.domain.states import State
from services.executor.tests.adapters.jobs.test_job_store import a_job, a_store
from services.executor.tests.keys import KEY
from services.executor.tests.samples import a_result

Engines = tuple[AsyncEngine, AsyncEngine]
CALLBACK = Callback("https://example.com/hook", "whsec_" + "A" * 32)


async def end_jobs(engine: AsyncEngine, tenant: str, count: int) -> list[str]:
    """End jobs with a callback."""
    jobs = a_store(engine, "executor-0", per_tenant=100, per_tool=1000)
    for _ in range(count):
        await jobs.add(a_job(tenant=tenant, callback=CALLBACK))
    claimed = await jobs.claim(count)
    for job in claimed:
        assert await jobs.finish(job, State.SUCCEEDED, a_result())
    return [job.invocation_id for job in claimed]


async def test_deliveries_are_written_with_the_end_and_claimed_once(engines: Engines) -> None:
    noisy, quiet = await end_jobs(engines[0], "noisy", 20), await end_jobs(engines[0], "quiet", 2)
    stores = [PostgresDeliveries(engine, Seal([KEY])) for engine in engines]
    claims = await asyncio.gather(*(store.claim(10) for store in stores * 2))
    claimed = [delivery for claim in claims for delivery in claim]
    ids = [delivery.invocation_id for delivery in claimed]
    assert len(ids) == len(set(ids))
    # A tenant with many has few of the places.
    assert set(quiet) <= set(ids)
    assert 4 <= len(set(ids) & set(noisy)) <= 8
    assert {(delivery.callback, delivery.tries, delivery.state) for delivery in claimed} == {
        (CALLBACK, 1, State.SUCCEEDED)
    }
    mine = next(delivery for delivery in claimed if delivery.invocation_id in quiet)
    await stores[0].failed(mine, "http_500", 0.0)
    [again] = [delivery for delivery in await stores[1].claim(10) if delivery.invocation_id == mine.invocation_id]
    assert again.tries == 2
    # The former try is over: it changes nothing.
    await stores[0].delivered(mine, "http_200")
    owner = JobOwner("quiet", a_job().request.caller.subject)
    wanted = DeliveryFilter(owner, mine.invocation_id)
    [found], _ = await stores[0].page(wanted, 10, None)
    assert (found.status, found.tries) == (DeliveryStatus.PENDING, 2)
    # Its replica died.
    async with engines[0].begin() as connection:
        await connection.execute(text("update callback_deliveries set next_time = now()"))
    assert {delivery.tries for delivery in await stores[1].claim(10)} >= {2, 3}
    await stores[0].redeliver(owner, mine.invocation_id)
    [found], _ = await stores[0].page(wanted, 10, None)
    assert (found.status, found.tries) == (DeliveryStatus.PENDING, 0)
    assert await stores[0].redeliver(JobOwner("noisy", owner.subject), mine.invocation_id) is None
    async with engines[0].begin() as connection:
        await connection.execute(text("update callback_deliveries set expire_time = now()"))
    assert await stores[0].sweep() == 22
