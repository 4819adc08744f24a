"""The sweeper: one replica at a time, and independent tasks."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from services.registry.adapters.sweeper import Sweeper
from services.registry.tests.conftest import QUIET


async def test_while_one_replica_sweeps_no_other_does(engine: AsyncEngine) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    runs: list[str] = []

    async def slow() -> None:
        runs.append("one")
        begun.set()
        await may_end.wait()

    async def other() -> None:
        runs.append("other")

    first = asyncio.create_task(Sweeper(engine, QUIET, {"slow": slow}).sweep())
    await begun.wait()
    second = Sweeper(engine, QUIET, {"other": other})
    assert not await second.sweep()
    may_end.set()
    assert await first
    assert await second.sweep()
    assert runs == ["one", "other"]


async def test_a_sweep_that_is_cancelled_leaves_the_turn_to_others(engine: AsyncEngine) -> None:
    begun = asyncio.Event()

    async def stuck() -> None:
        begun.set()
        await asyncio.Event().wait()

    sweeper = Sweeper(engine, QUIET, {"stuck": stuck})
    await sweeper.start()
    await begun.wait()
    await sweeper.stop()
    assert await Sweeper(engine, QUIET, {}).sweep()


@pytest.mark.parametrize("failure", [RuntimeError("broken"), MeshError(Reason.SERVICE_UNAVAILABLE)])
async def test_a_task_that_fails_stops_neither_the_others_nor_the_next_sweep(
    engine: AsyncEngine, failure: Exception
) -> None:
    runs: list[str] = []

    async def failing() -> None:
        runs.append("failing")
        raise failure

    async def working() -> None:
        runs.append("working")

    sweeper = Sweeper(engine, QUIET, {"failing": failing, "working": working})
    assert await sweeper.sweep()
    assert await sweeper.sweep()
    assert runs == ["failing", "working"] * 2
