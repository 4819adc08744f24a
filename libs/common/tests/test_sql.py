"""Migrations and transactions on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from libs.common.errors import MeshError, Reason
from libs.common.sql.engine import engine_for, transaction
from libs.common.sql.migrate import migrate

ENV = "from libs.common.sql.environment import run\n\nrun()\n"
FIRST = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "0001", None, None, None


def upgrade() -> None:
    op.execute("create table things (id int primary key)")
    op.execute("insert into things values (1)")
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(ENV)
    (tmp_path / "versions" / "0001_things.py").write_text(FIRST)
    return tmp_path


async def test_replicas_that_start_together_migrate_once(database: Callable[..., str], scripts: Path) -> None:
    url = database("approval", empty=True)
    engines = [engine_for(url, schema="approval") for _ in range(6)]
    await asyncio.gather(*(migrate(engine, scripts, schema="approval") for engine in engines))
    async with transaction(engines[0]) as connection:
        assert (await connection.execute(text("select count(*) from approval.things"))).scalar_one() == 1
    for engine in engines:
        await engine.dispose()


async def test_a_block_that_raises_leaves_nothing(database: Callable[..., str], scripts: Path) -> None:
    engine = engine_for(database("approval", empty=True), schema="approval")
    await migrate(engine, scripts, schema="approval")
    with pytest.raises(ZeroDivisionError):
        async with transaction(engine) as connection:
            await connection.execute(text("insert into things values (2)"))
            raise ZeroDivisionError
    async with transaction(engine) as connection:
        assert (await connection.execute(text("select count(*) from things"))).scalar_one() == 1
    await engine.dispose()


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
