"""What a service checks of its schema before it starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from libs.common.sql.engine import engine_for
from libs.common.sql.schema import SchemaError, SchemaProblem, ServiceSchema, check_schema

CHANGES = {
    "revoke usage on schema approval from approval": SchemaProblem.ROLE_WITHOUT_ACCESS,
    "grant usage on schema approval to approval; revoke select on approval.schema_version from approval": (
        SchemaProblem.ROLE_WITHOUT_ACCESS
    ),
    "grant select on approval.schema_version to approval; update approval.schema_version set version_num = '0001'": (
        SchemaProblem.NOT_MIGRATED
    ),
    "delete from approval.schema_version": SchemaProblem.NOT_MIGRATED,
    "insert into approval.schema_version values ('0004')": SchemaProblem.NEWER_THAN_BUILD,
    "comment on table approval.schema_version is '0003'": SchemaProblem.NEWER_THAN_BUILD,
    "comment on table approval.schema_version is '0002'": None,
    "comment on table approval.schema_version is '0001'": None,
    "update approval.schema_version set version_num = '0001'": SchemaProblem.NOT_MIGRATED,
    "drop table approval.schema_version": SchemaProblem.NOT_MIGRATED,
    "drop schema approval cascade": SchemaProblem.SCHEMA_MISSING,
}
"""Changes of one database, one after the other, and what a build with the revisions 0001 and 0002 says of each."""


@pytest.fixture
def schema(tmp_path: Path) -> ServiceSchema:
    """A build of two revisions."""
    (tmp_path / "versions").mkdir()
    for name in ("0001_first.py", "0002_second.py"):
        (tmp_path / "versions" / name).touch()
    return ServiceSchema("approval", tmp_path)


async def problem_of(url: str, schema: ServiceSchema) -> SchemaProblem | None:
    engine = engine_for(url, schema="approval")
    try:
        await check_schema(engine, schema)
    except SchemaError as error:
        return error.problem if ":test@" not in str(error) else None
    finally:
        await engine.dispose()
    return None


async def test_a_service_starts_on_the_schema_of_its_build_or_a_newer_one_that_names_it(
    database: Callable[..., str], postgres_server: str, schema: ServiceSchema
) -> None:
    url = database("approval", empty=True)
    with psycopg.connect(f"{postgres_server}/{url.rpartition('/')[2]}", autocommit=True) as superuser:
        superuser.execute("create table approval.schema_version (version_num text)")
        superuser.execute("insert into approval.schema_version values ('0002')")
        # The superuser owns both: the role has what it is granted.
        superuser.execute("alter schema approval owner to current_user")
        superuser.execute("grant usage on schema approval to approval")
        superuser.execute("grant select on approval.schema_version to approval")
        assert await problem_of(url, schema) is None
        for change, problem in CHANGES.items():
            superuser.execute(change)
            assert (change, await problem_of(url, schema)) == (change, problem)


async def test_a_role_that_cannot_connect_is_a_problem_of_its_own(
    database: Callable[..., str], schema: ServiceSchema
) -> None:
    url = database("approval")
    places = (url.replace(":test@", ":wrong@"), url.replace("//approval:", "//nobody:"), url + "none")
    for place in (*places, "postgresql://approval:wrong@127.0.0.1:1/none"):
        assert await problem_of(place, schema) is SchemaProblem.UNREACHABLE
