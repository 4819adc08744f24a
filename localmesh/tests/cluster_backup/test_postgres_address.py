"""The address of PostgreSQL: of the secret, or of a forwarded port."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from localmesh.cluster_backup.errors import BackupError
from localmesh.cluster_backup.postgres_address import open_postgres
from localmesh.deploy.init_secrets import ADMIN
from localmesh.deploy.layout import Namespaces
from localmesh.tests.cluster_backup.conftest import Cluster
from localmesh.tests.deploy.memory_secrets import MemorySecrets

NAMESPACES = Namespaces()


def test_a_forwarded_port_takes_the_place_of_the_server_alone() -> None:
    store = MemorySecrets()
    store.create("toolmesh", ADMIN, {"url": b"postgresql://admin:a%40b@db.internal:5432/postgres?sslmode=require\n"})
    with open_postgres(store, NAMESPACES, "localhost:15432") as found:
        assert found.url == "postgresql://admin:a%40b@localhost:15432/postgres?sslmode=require"
        assert "a%40b" not in repr(found)


def test_a_missing_secret_and_a_server_that_is_not_there_are_refused() -> None:
    store = MemorySecrets()
    with pytest.raises(BackupError), open_postgres(store, NAMESPACES):
        pass
    store.create("toolmesh", ADMIN, {"url": b"postgresql://admin:word@127.0.0.1:1/postgres"})
    with open_postgres(store, NAMESPACES) as address:
        with pytest.raises(BackupError) as refused, address.connect("postgres"):
            pass
    assert "word" not in str(refused.value)


def test_a_program_gets_the_password_and_does_not_show_it(mesh: Cluster) -> None:
    words = ("-Xqtc", "select current_database()")
    with mesh.postgres.start("psql", "toolmesh", *words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b":test@" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert process.stdout.read().strip() == b"toolmesh"
