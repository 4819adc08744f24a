"""The database of a cluster: roles that own schemas, and services that only work with what is in them."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from localmesh.deploy.init_db import InitDatabaseError, init_database
from localmesh.deploy.init_secrets import ADMIN, init_database_urls
from localmesh.deploy.layout import OWNERS, Namespaces, database_secret, owner_secret
from localmesh.tests.deploy.memory_secrets import MemorySecrets
from tests.harness.stores import run_postgres

NAMESPACES = Namespaces()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> object:
    """The secrets of a server of its own: roles belong to a server, not to a database."""
    folder: Path = tmp_path_factory.mktemp("init-db")
    with run_postgres(folder) as url:
        secrets = MemorySecrets()
        secrets.create("toolmesh", ADMIN, {"url": f"{url}/postgres".encode()})
        init_database_urls(secrets, NAMESPACES, url.rpartition("@")[2])
        init_database(secrets, NAMESPACES)
        init_database(secrets, NAMESPACES)
        yield secrets


def url_of(store: MemorySecrets, service: str, name: str) -> str:
    return store.content[NAMESPACES.of(service), name]["url"].decode()


@pytest.mark.parametrize("service", sorted(OWNERS.keys() - {"audit"}))
def test_a_service_works_with_tables_that_its_owner_made(store: MemorySecrets, service: str) -> None:
    with psycopg.connect(url_of(store, service, owner_secret(service)), autocommit=True) as owner:
        owner.execute("create table things (id serial primary key, name text)")
    with psycopg.connect(url_of(store, service, database_secret(service)), autocommit=True) as connection:
        connection.execute("insert into things (name) values ('one')")
        connection.execute("update things set name = 'two'")
        assert connection.execute("select name from things").fetchone() == ("two",)
        for statement in ("drop table things", "alter table things add extra int", "create table more (id int)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


def test_a_service_cannot_read_anothers_schema(store: MemorySecrets) -> None:
    with psycopg.connect(url_of(store, "registry", database_secret("registry")), autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select * from authz.anything")


def test_the_log_grants_nothing_that_its_migrations_do_not(store: MemorySecrets) -> None:
    with psycopg.connect(url_of(store, "audit", owner_secret("audit")), autocommit=True) as owner:
        owner.execute("create table things (id int)")
    with psycopg.connect(url_of(store, "audit", database_secret("audit")), autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select * from audit.things")


def test_a_missing_or_unsafe_url_is_refused_before_anything_changes(store: MemorySecrets) -> None:
    broken = MemorySecrets()
    broken.content = {name: dict(content) for name, content in store.content.items()}
    broken.content["toolmesh", "audit-database"] = {"url": b"postgresql://audit:a'b@127.0.0.1:1/toolmesh"}
    with pytest.raises(InitDatabaseError):
        init_database(broken, NAMESPACES)
    del broken.content["toolmesh", "audit-database"]
    with pytest.raises(InitDatabaseError):
        init_database(broken, NAMESPACES)
