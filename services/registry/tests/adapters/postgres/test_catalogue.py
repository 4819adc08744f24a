"""The catalogue in PostgreSQL: one writer at a time, and change numbers without gaps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.audit_client.act import ActEncoder
from libs.audit_client.outbox import ActRecorder, act_outbox
from libs.common.runtime.clock import SystemClock
from libs.common.sql.engine import engine_for
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.adapters.postgres.catalogue import PostgresCatalogue
from services.registry.adapters.postgres.change_log import PostgresChangeLog
from services.registry.adapters.postgres.tables import metadata, tool_versions
from services.registry.convert.manifest import manifest_of
from services.registry.domain.catalog.changes import Position
from services.registry.domain.model import Actor
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.register_tool import Registration, register_tool
from services.registry.tests.manifests import reader
from services.registry.tests.rpc.announcing import ABLE, FixedAnnouncements


class Silence:
    """A wakeup without listeners."""

    def notify(self) -> None:
        """Do nothing."""


def register(engine: AsyncEngine, manifest: Manifest, **options: Any) -> Any:
    return register_tool(
        manifest,
        Actor("edge", "did:web:acme.example:users:bob"),
        catalogue=PostgresCatalogue(engine, ActRecorder(ActEncoder("registry")), **options),
        schemas=JsonSchemaChecker(),
        runners=FixedAnnouncements(ABLE),
        wakeup=Silence(),
        clock=SystemClock(),
    )


async def test_a_change_that_is_not_committed_hides_no_later_one(engine: AsyncEngine) -> None:
    """An uncommitted writer blocks all later numbers: a watcher that saw a later one would miss the earlier one."""
    await register(engine, manifest_of(reader()))
    log, catalogue = PostgresChangeLog(engine), PostgresCatalogue(engine, ActRecorder(ActEncoder("registry")))
    async with catalogue.writing() as ledger:
        assert await ledger.next_sequence() == 2
        other = asyncio.ensure_future(register(engine, manifest_of(reader(version="2.0.0"))))
        assert await _waits_for_a_lock(other, engine)
        assert (await log.horizon()).last == 1
    registered: Registration = await other
    # The first writer rolled back, so its number was free.
    assert registered.version.head.standing.sequence == 2


async def test_numbers_have_no_gap_and_times_their_order(engine: AsyncEngine, database_url: str) -> None:
    other = engine_for(database_url, schema="registry")
    manifests = [manifest_of(reader(version=f"1.{n}.0")) for n in range(20)]
    await asyncio.gather(*(register((engine, other)[n % 2], m) for n, m in enumerate(manifests)))
    await other.dispose()
    batch = await PostgresChangeLog(engine).since(0, 100)
    assert [change.sequence for change in batch.changes] == list(range(1, 21))
    times = [change.version.head.create_time for change in batch.changes if change.version]
    assert times == sorted(times)


async def test_a_failed_registration_uses_no_number(engine: AsyncEngine) -> None:
    await register(engine, manifest_of(reader()))
    catalogue = PostgresCatalogue(engine, ActRecorder(ActEncoder("registry")))
    with pytest.raises(ZeroDivisionError):
        async with catalogue.writing() as ledger:
            await ledger.next_sequence()
            raise ZeroDivisionError
    again = await register(engine, manifest_of(reader(version="1.1.0")))
    assert again.version.head.standing.sequence == 2


async def test_old_changes_are_dropped_and_the_horizon_says_so(engine: AsyncEngine) -> None:
    for number in range(8):
        await register(engine, manifest_of(reader(version=f"1.{number}.0")), kept_changes=3)
    horizon = await PostgresChangeLog(engine).horizon()
    assert (horizon.oldest, horizon.last) == (6, 8)
    assert horizon.reaches(Position(horizon.epoch, 5))
    assert not horizon.reaches(Position(horizon.epoch, 4))


async def test_what_is_stored_is_what_was_registered(engine: AsyncEngine) -> None:
    manifest = manifest_of(reader(annotations={"ключ": "\u2028 ü \U0001f600"}))
    registered = await register(engine, manifest)
    [head] = await PostgresCatalogue(engine, ActRecorder(ActEncoder("registry"))).heads([manifest.name])
    [version] = await PostgresCatalogue(engine, ActRecorder(ActEncoder("registry"))).with_manifests([head])
    assert version == registered.version
    assert version.manifest is not None
    assert version.manifest.digest == head.digest == manifest.digest
    # Properties keep the author's order, although the JSONB copy does not.
    assert list(version.manifest.document["input"]["schema"]) == ["type", "properties", "required"]
    async with engine.connect() as connection:
        row = (await connection.execute(select(tool_versions))).one()
    assert row.manifest == manifest.document
    assert (row.registered_by, row.registered_through) == ("did:web:acme.example:users:bob", "edge")


async def test_the_migrations_make_the_tables_that_queries_expect(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        rows = await connection.execute(
            text("select table_name, column_name from information_schema.columns where table_schema = 'registry'")
        )
        made = {(row.table_name, row.column_name) for row in rows} - {("schema_version", "version_num")}
    tables = [*metadata.sorted_tables, act_outbox]
    assert made == {(table.name, column.name) for table in tables for column in table.columns}


async def _waits_for_a_lock(writer: asyncio.Future[Any], engine: AsyncEngine) -> bool:
    """Return True once a writer waits for a lock, or False if the writer ends without waiting."""
    waiting = text(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    )
    while not writer.done():
        async with engine.connect() as connection:
            if await connection.scalar(waiting):
                return True
    return False
