"""Ownership of the log, and processes without a separate owner."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import psycopg

from libs.common.runtime.settings import load
from libs.common.sql.engine import engine_for
from libs.common.telemetry.spans import Tracing
from services.audit.adapters.evidence.ownership import role_owns_log
from services.audit.config import Settings
from services.audit.tests.conftest import QUIET
from services.audit.tests.database import sql
from services.audit.wiring import build
from tests.fixtures import owners_url


async def started_and_stopped(environment: dict[str, str]) -> None:
    """Start and stop a process."""
    application = await build(load(Settings, environment), QUIET, Tracing())
    await application.start()
    await application.stop()
    # Collect a connection that was still being opened: the database would wait for it.
    gc.collect()


async def owns(url: str) -> bool:
    engine = engine_for(url, schema="audit")
    try:
        return await role_owns_log(engine)
    finally:
        await engine.dispose()


async def test_the_services_role_does_not_own_the_log(log_url: str) -> None:
    assert not await owns(log_url)
    assert await owns(owners_url(log_url))


async def test_a_process_on_an_empty_database_migrates_as_the_owner(
    audit_environment: dict[str, str], database: Callable[..., str]
) -> None:
    url = database("audit", empty=True)
    given = {"TOOLMESH_DATABASE_URL": url, "TOOLMESH_MIGRATION_DATABASE_URL": owners_url(url)}
    await started_and_stopped(audit_environment | given)
    assert not await owns(url)
    assert sql(url, "select count(*) from tree_head") == [(1,)]


async def test_without_an_owner_the_services_role_migrates_and_could_undo_its_guards(
    audit_environment: dict[str, str], database: Callable[..., str], superuser: Any
) -> None:
    url = database("audit", empty=True)
    superuser(url, "alter schema audit owner to audit")
    given = {"TOOLMESH_DATABASE_URL": url, "TOOLMESH_MIGRATION_DATABASE_URL": ""}
    await started_and_stopped(audit_environment | given)
    assert await owns(url)


async def test_a_migrated_log_needs_no_owner_to_start(audit_environment: dict[str, str]) -> None:
    environment = audit_environment | {"TOOLMESH_MIGRATION_DATABASE_URL": ""}
    await started_and_stopped(environment)
    assert not await owns(environment["TOOLMESH_DATABASE_URL"])


async def test_the_service_works_with_its_own_role_only(audit_environment: dict[str, str]) -> None:
    """The owner's credentials are used for the migration, and no connection of the owner is left."""
    application = await build(load(Settings, audit_environment), QUIET, Tracing())
    await application.start()
    url = audit_environment["TOOLMESH_DATABASE_URL"]
    with psycopg.connect(owners_url(url)) as owner:
        roles = owner.execute(
            "select distinct usename from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        ).fetchall()
    await application.stop()
    gc.collect()
    assert roles == [("audit",)]
