"""Pools, single statements and transactions on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from libs.common.sql.engine import engine_for, separately, transaction


@pytest.fixture
async def engine(database: Callable[..., str]) -> AsyncIterator[AsyncEngine]:
    """A pool of one connection on a database with one table of one row."""
    made = engine_for(database("approval", empty=True), schema="approval", size=1)
    async with transaction(made) as connection:
        await connection.execute(text("create table things (id int primary key)"))
        await connection.execute(text("insert into things values (1)"))
    yield made
    await made.dispose()


async def test_a_block_that_raises_leaves_nothing(engine: AsyncEngine) -> None:
    with pytest.raises(ZeroDivisionError):
        async with transaction(engine) as connection:
            await connection.execute(text("insert into things values (2)"))
            raise ZeroDivisionError
    async with transaction(engine) as connection:
        assert (await connection.execute(text("select count(*) from things"))).scalar_one() == 1


async def test_statements_that_stand_alone_stay_whatever_comes_after_them(engine: AsyncEngine) -> None:
    with pytest.raises(ZeroDivisionError):
        async with separately(engine) as connection:
            await connection.execute(text("insert into things values (2)"))
            raise ZeroDivisionError
    # On the same connection: neither way of using it leaves something behind for the other.
    with pytest.raises(ZeroDivisionError):
        async with transaction(engine) as connection:
            await connection.execute(text("insert into things values (3)"))
            raise ZeroDivisionError
    async with separately(engine) as connection:
        await connection.execute(text("insert into things values (4)"))
    async with separately(engine) as connection:
        assert list(await connection.scalars(text("select id from things order by id"))) == [1, 2, 4]


async def test_a_transaction_is_as_isolated_as_it_asks_to_be(database: Callable[..., str]) -> None:
    engine = engine_for(database("approval", empty=True), schema="approval", size=1)
    asked = text("select current_setting('transaction_isolation')")
    for wanted in ("repeatable read", "read committed"):
        async with transaction(engine, isolation=wanted.upper()) as connection:
            assert await connection.scalar(asked) == wanted
    async with transaction(engine) as connection:
        assert await connection.scalar(asked) == "read committed"
    await engine.dispose()


@pytest.mark.parametrize("using", [separately, transaction])
async def test_connections_that_the_server_ended_while_idle_are_made_anew_unnoticed(
    database: Callable[..., str], using: Callable[..., Any]
) -> None:
    url = database("approval", empty=True)
    engine, other = engine_for(url, schema="approval", size=2), engine_for(url, schema="approval", size=1)
    backend = text("select pg_backend_pid()")
    async with using(engine) as one, using(engine) as two:
        ended = {await one.scalar(backend), await two.scalar(backend)}
    async with separately(other) as connection:
        for each in ended:
            await connection.execute(text("select pg_terminate_backend(:each, 5000)"), {"each": each})
    async with using(engine) as one, using(engine) as two:
        assert ended.isdisjoint({await one.scalar(backend), await two.scalar(backend)})
    for each in (engine, other):
        await each.dispose()


async def test_a_used_up_pool_and_a_dead_server_are_unavailable(database: Callable[..., str]) -> None:
    engine = engine_for(database("approval", empty=True), schema="approval", size=1)
    engine.pool._timeout = 0.05  # type: ignore[attr-defined]
    async with transaction(engine):
        with pytest.raises(MeshError) as caught:
            async with transaction(engine):
                pass
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    await engine.dispose()
    dead = engine_for("postgresql://u:p@127.0.0.1:1/none", schema="approval")
    with pytest.raises(MeshError) as caught:
        async with transaction(dead):
            pass
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE


@pytest.mark.parametrize("using", [separately, transaction])
async def test_a_server_that_only_reads_is_unavailable_and_left(
    database: Callable[..., str], using: Callable[..., Any]
) -> None:
    engine = engine_for(database("approval", empty=True), schema="approval", size=1)
    async with separately(engine) as connection:
        # What every connection to a copy is like, also after another server has taken over.
        await connection.execute(text("set default_transaction_read_only = on"))
    with pytest.raises(MeshError) as caught:
        async with using(engine) as connection:
            await connection.execute(text("create table approval.things (id int)"))
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    async with using(engine) as connection:
        await connection.execute(text("create table approval.things (id int)"))
    await engine.dispose()


@pytest.mark.parametrize(("kind", "value"), [("text", "a\0b"), ("jsonb", '"a\\u0000b"')])
async def test_what_no_column_can_hold_is_the_callers_mistake(
    database: Callable[..., str], kind: str, value: str
) -> None:
    engine = engine_for(database("approval", empty=True), schema="approval")
    with pytest.raises(MeshError) as caught:
        async with separately(engine) as connection:
            await connection.execute(text(f"select cast(:value as {kind})"), {"value": value})
    assert caught.value.reason is Reason.INVALID_REQUEST
    await engine.dispose()
