"""Ownership of the log: the service works with a role that cannot rewrite it, and refuses any other."""

from __future__ import annotations

import gc
from typing import Any

import psycopg
import pytest

from libs.common.runtime.settings import load
from libs.common.sql.schema import SchemaError, SchemaProblem
from libs.common.telemetry.spans import Tracing
from services.audit.config import Settings
from services.audit.tests.conftest import QUIET
from services.audit.wiring import build
from tests.fixtures import owners_url


@pytest.mark.parametrize("grant", ["", "grant audit_owner to {role}", "alter role {role} superuser"])
async def test_a_role_that_could_rewrite_the_log_is_refused(
    audit_environment: dict[str, str], superuser: Any, grant: str
) -> None:
    url = audit_environment["TOOLMESH_DATABASE_URL"]
    role = f"member_{url.rpartition('/')[2]}"
    superuser(url, f"create role {role} login password 'test'")
    try:
        superuser(url, f"grant usage on schema audit to {role}; grant select on audit.schema_version to {role}")
        superuser(url, grant.format(role=role) or "select 1")
        other = url.replace("//audit:", f"//{role}:") if grant else owners_url(url)
        application = await build(
            load(Settings, audit_environment | {"TOOLMESH_DATABASE_URL": other}), QUIET, Tracing()
        )
        with pytest.raises(SchemaError) as caught:
            await application.start()
        await application.stop()
        assert caught.value.problem is SchemaProblem.ROLE_OWNS_TABLES
    finally:
        superuser(url, f"drop owned by {role}; drop role {role}")


async def test_the_service_works_with_its_own_role_only(audit_environment: dict[str, str]) -> None:
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
