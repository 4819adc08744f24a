"""Heavy work runs beside the event loop, in turn for tenants."""

from __future__ import annotations

import asyncio
import threading

import pytest

from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.validation_cost import INLINE_BYTES
from services.executor.tests.held_thread import Gate
from services.executor.tests.samples import a_caller

ACME, UMBRELLA = a_caller(tenant="acme"), a_caller(tenant="umbrella")


async def test_work_runs_in_another_thread_and_returns() -> None:
    assert await HeavyWork().run(ACME, threading.get_ident) != threading.get_ident()


async def test_only_small_input_is_handled_on_the_event_loop() -> None:
    share, here = HeavyWork().share_of(ACME), threading.get_ident()
    assert await share.run_if_large(INLINE_BYTES, threading.get_ident) == here
    assert await share.run_if_large(INLINE_BYTES + 1, threading.get_ident) != here


async def test_a_failure_is_the_callers() -> None:
    work = HeavyWork()
    with pytest.raises(ZeroDivisionError):
        await work.run(ACME, lambda: 1 // 0)
    assert await work.run(ACME, lambda: 7) == 7


async def test_tenants_take_turns() -> None:
    work, gate, order = HeavyWork(threads=1), Gate(), list[str]()
    tasks = [asyncio.create_task(work.run(ACME, gate))]
    await asyncio.to_thread(gate.began.wait, 120)
    for name, caller in (("acme 1", ACME), ("acme 2", ACME), ("umbrella", UMBRELLA)):
        tasks.append(asyncio.create_task(work.run(caller, lambda name=name: order.append(name))))  # type: ignore[misc]
        await asyncio.sleep(0)
    gate.open()
    await asyncio.gather(*tasks)
    assert order == ["umbrella", "acme 1", "acme 2"]


async def test_a_caller_that_leaves_the_queue_or_its_work_blocks_no_other() -> None:
    work, gate = HeavyWork(threads=1), Gate()
    running = asyncio.create_task(work.run(ACME, gate))
    await asyncio.to_thread(gate.began.wait, 120)
    waiting = asyncio.create_task(work.run(ACME, lambda: None))
    await asyncio.sleep(0)
    for task in (waiting, running):
        task.cancel()
    await asyncio.wait({waiting, running})
    following = asyncio.create_task(work.run(UMBRELLA, lambda: "done"))
    await asyncio.sleep(0)
    assert not following.done()
    gate.open()
    assert await following == "done"
