"""A migrated mesh in a PostgreSQL, and an empty PostgreSQL to restore it to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from localmesh.cluster_backup.postgres_address import PostgresAddress
from localmesh.deploy.init_certs import AUTHORITY
from localmesh.deploy.init_db import init_database
from localmesh.deploy.init_secrets import ADMIN, init_database_urls, init_keys
from localmesh.deploy.layout import OWNERS, Namespaces, owner_secret
from localmesh.migrate import migrate_all
from localmesh.tests.deploy.memory_secrets import MemorySecrets
from tests.harness.stores import run_postgres

NAMESPACES = Namespaces()
PASSPHRASE = b"correct horse battery staple"
LOG_SIZE = 300
_TICKET = """
    insert into approval.tickets (ticket_id, request_id, state, revision, tool_version, tool_digest, arguments_digest,
        redacted_arguments, preview, requester, invocation, decision, policy_set_version, reason, escalation_chain,
        escalation_index, quorum, verdicts, create_time, expire_time, resolve_time, approval_expire_time, next_time)
    values (%(id)s, %(id)s, %(state)s, 1, '', '', '', '', '', '{}', '', '', '', '', '{}', 0, 1, '[]', now(),
        now() + interval '1 day', %(resolved)s, %(resolved)s::timestamptz + interval '1 day', now() + interval '1 day')
"""


@dataclass(frozen=True)
class Cluster:
    """The secrets of a cluster, and its PostgreSQL."""

    store: MemorySecrets
    url: str

    @property
    def postgres(self) -> PostgresAddress:
        return PostgresAddress(f"{self.url}/postgres")

    def init_passwords(self) -> None:
        """Make the passwords that a backup does not hold."""
        self.store.create("toolmesh", ADMIN, {"url": f"{self.url}/postgres".encode()})
        init_database_urls(self.store, NAMESPACES, self.url.rpartition("@")[2])

    def owner_urls(self) -> dict[str, str]:
        secrets = {service: (NAMESPACES.of(service), owner_secret(service)) for service in OWNERS}
        return {service: self.store.content[place]["url"].decode() for service, place in secrets.items()}

    def drop(self) -> None:
        """Lose the database."""
        with psycopg.connect(f"{self.url}/postgres", autocommit=True) as connection:
            for name in ("toolmesh", "toolmesh_restoring"):
                connection.execute(f"drop database if exists {name} with (force)".encode())


@pytest.fixture(scope="package")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A mesh with keys, a log, and tickets that are open."""
    with run_postgres(tmp_path_factory.mktemp("mesh")) as url:
        cluster = Cluster(MemorySecrets(), url)
        init_keys(cluster.store, NAMESPACES)
        cluster.store.create("toolmesh", AUTHORITY, {"tls.crt": b"certificate", "tls.key": b"key"})
        cluster.init_passwords()
        init_database(cluster.store, NAMESPACES)
        assert migrate_all(cluster.owner_urls()) == {}
        with psycopg.connect(f"{url}/toolmesh") as connection:
            _fill(connection)
        yield cluster


def _fill(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    connection.execute("update audit.tree_head set size = %s", (LOG_SIZE,))
    connection.execute("insert into audit.checkpoints values (0, 256, 'root', 'note', 'key', now())")
    connection.execute(_TICKET, {"id": "waiting", "state": "pending", "resolved": None})
    connection.execute(_TICKET, {"id": "agreed", "state": "approved", "resolved": "2026-01-01"})


@pytest.fixture(scope="package")
def other_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_postgres(tmp_path_factory.mktemp("other")) as url:
        yield url


@pytest.fixture
def lost(other_server: str) -> Iterator[Cluster]:
    """A cluster that has lost everything: new passwords, no keys and no database."""
    cluster = Cluster(MemorySecrets(), other_server)
    cluster.init_passwords()
    cluster.drop()
    yield cluster
    cluster.drop()


@pytest.fixture
def passphrase_file(tmp_path: Path) -> Path:
    (tmp_path / "passphrase").write_bytes(PASSPHRASE + b"\n")
    return tmp_path / "passphrase"
