"""The relay lease in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from services.audit.adapters.relay.lease import APPLICATION_NAME, PostgresRelayLease
from services.audit.domain.errors import LeaseLostError
from services.audit.tests.database import sql

SESSIONS = f"from pg_stat_activity where application_name = '{APPLICATION_NAME}' and datname = current_database()"


@pytest.fixture
async def lease(log_url: str) -> AsyncIterator[Callable[..., PostgresRelayLease]]:
    """Return a factory of leases, one per replica."""
    made: list[PostgresRelayLease] = []

    def make(sink: str = "redis", holder: str = "audit-0") -> PostgresRelayLease:
        made.append(PostgresRelayLease(log_url, sink, holder=holder))
        return made[-1]

    yield make
    for one in made:
        await one.release()


Leases = Callable[..., PostgresRelayLease]


async def test_one_replica_holds_the_lease_and_the_other_waits(lease: Leases) -> None:
    one, other = lease(), lease()
    assert await one.acquire() == 0
    assert await other.acquire() is None
    await one.advance(12)
    assert await other.position() == 12
    await one.release()
    assert await other.acquire() == 12


async def test_sinks_have_leases_and_positions_of_their_own(lease: Leases) -> None:
    one, other = lease("redis"), lease("kafka/topic")
    assert await one.acquire() == 0
    await one.advance(5)
    assert await other.acquire() == 0


async def test_a_position_never_goes_back(lease: Leases) -> None:
    one = lease()
    await one.acquire()
    await one.advance(10)
    await one.advance(4)
    assert await one.position() == 10


async def test_a_replica_that_lost_its_session_cannot_move_the_position(lease: Leases, log_url: str) -> None:
    one, other = lease(), lease()
    await one.acquire()
    await one.advance(3)
    assert sql(log_url, f"select pg_terminate_backend(pid, 5000) {SESSIONS}")
    assert await other.acquire() == 3
    with pytest.raises(LeaseLostError):
        await one.advance(9)
    with pytest.raises(LeaseLostError):
        await one.renew()
    assert await other.position() == 3
    assert await one.acquire() is None


async def test_a_renewed_lease_is_kept(lease: Leases) -> None:
    one = lease()
    await one.acquire()
    await one.renew()
    assert await lease().acquire() is None


async def test_the_row_says_who_moved_it(lease: Leases, log_url: str) -> None:
    one = lease(holder="audit-7")
    await one.acquire()
    await one.advance(1)
    assert sql(log_url, "select holder, position from relay_positions") == [("audit-7", 1)]


async def test_a_database_that_is_away_is_found_again(lease: Leases, log_url: str) -> None:
    one = lease()
    await one.acquire()
    await one.advance(2)
    sql(log_url, f"select pg_terminate_backend(pid, 5000) {SESSIONS}")
    with pytest.raises(psycopg.Error):
        await one.acquire()
    assert await one.acquire() == 2


async def test_a_frozen_process_loses_its_lease(lease: Leases, log_url: str) -> None:
    """The server ends idle sessions; the timeout is set per session."""
    one = lease()
    await one.acquire()
    row = await one._fetch_one("show idle_session_timeout")
    assert row == ("30s",)
