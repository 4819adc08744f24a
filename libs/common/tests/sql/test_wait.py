"""Waiting for a schema, as a pod does before its service starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from libs.common.sql.schema import SchemaError, SchemaProblem, ServiceSchema
from libs.common.sql.wait import wait_for_schema


def schema_at(folder: Path, *revisions: str) -> ServiceSchema:
    (folder / "versions").mkdir(parents=True)
    for revision in revisions:
        (folder / "versions" / f"{revision}_change.py").touch()
    return ServiceSchema("approval", folder)


def migrate(url: str, revision: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table approval.schema_version (version_num text)")
        connection.execute("insert into approval.schema_version values (%s)", (revision,))


async def test_the_wait_ends_when_the_schema_is_there(
    database: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = database("approval", empty=True)
    waiting = asyncio.ensure_future(wait_for_schema(url, schema_at(tmp_path / "one", "0001"), pause=0.01))
    async with asyncio.timeout(120):
        output = ""
        while "waiting" not in output:
            output += capsys.readouterr().out
            await asyncio.sleep(0.01)
        assert not waiting.done()
        await asyncio.to_thread(migrate, url, "0001")
        await waiting


async def test_a_database_that_is_newer_ends_the_wait(database: Callable[..., str], tmp_path: Path) -> None:
    url = database("approval", empty=True)
    await asyncio.to_thread(migrate, url, "0002")
    with pytest.raises(SchemaError) as failure:
        await wait_for_schema(url, schema_at(tmp_path / "one", "0001"), pause=0.01)
    assert failure.value.problem is SchemaProblem.NEWER_THAN_BUILD
