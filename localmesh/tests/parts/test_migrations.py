"""The schemas of all services are migrated by one process, as their owners; each failure is its service's."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from localmesh.parts.migrations import Migrations
from localmesh.process.part import PartError
from tests.fixtures import owners_url

NOWHERE = "postgresql://registry:secret-word@127.0.0.1:1/toolmesh"


async def test_one_schema_that_cannot_be_migrated_keeps_no_other_back(database: Callable[..., str]) -> None:
    url = owners_url(database("authz", empty=True))
    migrations = Migrations({"registry": NOWHERE, "authz": url})
    with pytest.raises(PartError) as caught:
        await migrations.finish("registry")
    assert caught.value.part == "registry"
    # The line that the migration prints, not a traceback's last, and without the password.
    assert caught.value.reason.startswith("registry migrations: ")
    assert "secret-word" not in caught.value.reason
    await migrations.finish("authz")
    with psycopg.connect(url) as connection:
        assert connection.execute("select version_num from authz.schema_version").fetchone()


async def test_all_services_wait_for_one_run(database: Callable[..., str]) -> None:
    url = owners_url(database("authz", empty=True))
    migrations = Migrations({"authz": url})
    await migrations.finish("authz")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop schema authz cascade")
    # A second run would find no schema.
    await migrations.finish("authz")


async def test_a_run_that_is_killed_fails_every_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localmesh.parts.migrations.SECONDS", 0.0)
    migrations = Migrations({"audit": NOWHERE, "authz": NOWHERE})
    for service in ("audit", "authz"):
        with pytest.raises(PartError) as caught:
            await migrations.finish(service)
        assert caught.value.part == service


async def test_a_service_without_a_schema_waits_for_nothing() -> None:
    await Migrations({"audit": NOWHERE}).finish("gateway")
