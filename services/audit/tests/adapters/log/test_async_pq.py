"""Prepared statements on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import psycopg
import pytest
import uvloop
from psycopg import pq

from services.audit.adapters.log.async_pq import PreparedConnection
from services.audit.adapters.log.commit import Connection, connect


@pytest.fixture
async def prepared(connection: Connection) -> AsyncIterator[PreparedConnection]:
    opened = PreparedConnection(connection.pgconn)
    yield opened
    opened.stop_watching()


@pytest.fixture
def connection(log_url: str) -> Iterator[Connection]:
    with connect(log_url) as opened:
        opened.pgconn.prepare(b"length", b"select length($1::bytea)::int8")
        opened.pgconn.prepare(b"slow", b"select pg_sleep(60)")
        opened.pgconn.prepare(b"wrong", b"select 1 / length($1::bytea)")
        yield opened


async def test_a_statement_much_larger_than_a_socket_holds_arrives_whole(prepared: PreparedConnection) -> None:
    size = 32 * 1024 * 1024
    result = await prepared.execute_prepared(b"length", [bytes(size)])
    assert int.from_bytes(result.get_value(0, 0) or b"", "big") == size
    again = await prepared.execute_prepared(b"length", [b"abc"])
    assert int.from_bytes(again.get_value(0, 0) or b"", "big") == 3


async def test_an_error_is_a_result_and_the_connection_goes_on(prepared: PreparedConnection) -> None:
    result = await prepared.execute_prepared(b"wrong", [b""])
    assert result.status == pq.ExecStatus.FATAL_ERROR
    assert (await prepared.execute_prepared(b"length", [b""])).status == pq.ExecStatus.TUPLES_OK


async def test_a_connection_that_breaks_is_an_error(
    connection: Connection, prepared: PreparedConnection, log_url: str
) -> None:
    waiting = asyncio.ensure_future(prepared.execute_prepared(b"slow", []))
    await asyncio.sleep(0)
    with psycopg.connect(log_url, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", (connection.info.backend_pid,))
    # As a result or an exception, depending on what the server could still send.
    with pytest.raises(psycopg.Error):
        raise psycopg.errors.error_from_result(await asyncio.wait_for(waiting, 60))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_breaks_while_idle_fails_the_next_statement(
    connection: Connection, log_url: str, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """uvloop does not report a socket in error to its reader; without the recheck the statement would wait forever."""

    async def asked_after_it_broke() -> None:
        prepared = PreparedConnection(connection.pgconn)
        await prepared.execute_prepared(b"length", [b""])
        with psycopg.connect(log_url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))
        # The loop sees input on the socket and must not spin on it.
        async with asyncio.timeout(60):
            while prepared._watching:  # noqa: ASYNC110  (there is no event to wait for)
                await asyncio.sleep(0)
        try:
            result = await asyncio.wait_for(prepared.execute_prepared(b"length", [b""]), 60)
        finally:
            prepared.stop_watching()
        raise psycopg.errors.error_from_result(result)

    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(psycopg.Error):
        runner.run(asked_after_it_broke())


async def test_a_connection_can_be_used_by_others_after_stop_watching(
    connection: Connection, prepared: PreparedConnection
) -> None:
    await prepared.execute_prepared(b"length", [b""])
    prepared.stop_watching()
    assert await asyncio.to_thread(lambda: connection.execute("select 1").fetchone()) == (1,)
    assert (await prepared.execute_prepared(b"length", [b""])).status == pq.ExecStatus.TUPLES_OK
