"""The relay's one seat among replicas, in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from services.audit.adapters.relay.lease import APPLICATION_NAME, PostgresSeat
from services.audit.domain.errors import SeatLostError
from services.audit.tests.database import sql

SESSIONS = f"from pg_stat_activity where application_name = '{APPLICATION_NAME}' and datname = current_database()"


@pytest.fixture
async def seat(log_url: str) -> AsyncIterator[Callable[..., PostgresSeat]]:
    """Return a factory of seats, as replicas have them."""
    made: list[PostgresSeat] = []

    def make(sink: str = "redis", holder: str = "audit-0") -> PostgresSeat:
        made.append(PostgresSeat(log_url, sink, holder=holder))
        return made[-1]

    yield make
    for one in made:
        await one.release()


Seats = Callable[..., PostgresSeat]


async def test_one_replica_sits_and_the_other_waits(seat: Seats) -> None:
    one, other = seat(), seat()
    assert await one.take() == 0
    assert await other.take() is None
    await one.advance(12)
    assert await other.position() == 12
    await one.release()
    assert await other.take() == 12


async def test_sinks_have_seats_and_positions_of_their_own(seat: Seats) -> None:
    one, other = seat("redis"), seat("kafka/topic")
    assert await one.take() == 0
    await one.advance(5)
    assert await other.take() == 0


async def test_a_position_never_goes_back(seat: Seats) -> None:
    one = seat()
    await one.take()
    await one.advance(10)
    await one.advance(4)
    assert await one.position() == 10


async def test_whoever_lost_the_session_cannot_move_the_position(seat: Seats, log_url: str) -> None:
    one, other = seat(), seat()
    await one.take()
    await one.advance(3)
    assert sql(log_url, f"select pg_terminate_backend(pid, 5000) {SESSIONS}")
    assert await other.take() == 3
    with pytest.raises(SeatLostError):
        await one.advance(9)
    with pytest.raises(SeatLostError):
        await one.hold()
    assert await other.position() == 3
    assert await one.take() is None


async def test_whoever_holds_on_keeps_the_seat(seat: Seats) -> None:
    one = seat()
    await one.take()
    await one.hold()
    assert await seat().take() is None


async def test_the_row_says_who_moved_it(seat: Seats, log_url: str) -> None:
    one = seat(holder="audit-7")
    await one.take()
    await one.advance(1)
    assert sql(log_url, "select holder, position from relay_positions") == [("audit-7", 1)]


async def test_a_database_that_is_away_is_found_again(seat: Seats, log_url: str) -> None:
    one = seat()
    await one.take()
    await one.advance(2)
    sql(log_url, f"select pg_terminate_backend(pid, 5000) {SESSIONS}")
    with pytest.raises(psycopg.Error):
        await one.take()
    assert await one.take() == 2


async def test_a_frozen_process_loses_its_seat_in_the_end(seat: Seats, log_url: str) -> None:
    """The server ends the session of a process that says nothing; the limit is the session's own."""
    one = seat()
    await one.take()
    row = await one._one("show idle_session_timeout")
    assert row == ("30s",)
