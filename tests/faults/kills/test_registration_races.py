"""Registrations raced by three processes and cut short by kills, many times over."""

from __future__ import annotations

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from services.registry.tests.conftest import authz_address, database_url, engine  # noqa: F401
from services.registry.tests.rpc.test_registration_races import Launch, killed_while_registering, launch, race  # noqa: F401

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


async def test_of_three_processes_exactly_one_wins_every_time(launch: Launch) -> None:  # noqa: F811
    await race([await launch() for _ in range(3)], 300)


@pytest.mark.parametrize("seed", range(4))
async def test_kills_at_random_moments_leave_nothing_by_half(launch: Launch, engine: AsyncEngine, seed: int) -> None:  # noqa: F811
    assert await killed_while_registering(launch, engine, 10, seed=100 + seed) >= 10
