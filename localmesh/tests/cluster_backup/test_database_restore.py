"""A restored database is the one that was dumped, with the same rights. What fails or is interrupted leaves none."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from localmesh.cluster_backup.backup_folder import DATABASE, BackupReader, LogHead, Manifest
from localmesh.cluster_backup.create_backup import create_backup
from localmesh.cluster_backup.database_restore import DRAFT, TargetState, inspect_target, restore_database
from localmesh.cluster_backup.errors import BackupError, TargetError
from localmesh.cluster_backup.postgres_address import PostgresAddress
from localmesh.deploy.init_db import read_passwords
from localmesh.deploy.layout import OWNERS, database_secret
from localmesh.migrate import migrate_all
from localmesh.state.secrets import DATABASE_ROLES
from localmesh.tests.cluster_backup.conftest import LOG_SIZE, NAMESPACES, PASSPHRASE, Cluster
from tests.harness.stores import wait_until


@pytest.fixture(scope="module")
def folder(mesh: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("backups") / "one"
    create_backup(made, PASSPHRASE, mesh.store, NAMESPACES, mesh.postgres)
    return made


@pytest.fixture(scope="module")
def backup(folder: Path) -> BackupReader:
    return BackupReader(folder, PASSPHRASE)


def restore(cluster: Cluster, backup: BackupReader, dump: Iterator[bytes] | None = None) -> None:
    passwords = read_passwords(cluster.store, NAMESPACES)
    restore_database(cluster.postgres, backup.manifest, passwords, dump or backup.read(DATABASE))


def as_service(cluster: Cluster, service: str) -> psycopg.Connection[tuple[object, ...]]:
    url = cluster.store.content[NAMESPACES.of(service), database_secret(service)]["url"].decode()
    return psycopg.connect(url, autocommit=True)


def test_services_find_their_rows_with_the_passwords_of_the_new_cluster(lost: Cluster, backup: BackupReader) -> None:
    restore(lost, backup)
    for service in DATABASE_ROLES:
        with as_service(lost, service) as connection:
            # By the role's search path.
            revision = connection.execute("select version_num from schema_version").fetchone()
            assert revision == (backup.manifest.revisions[service],)
    with as_service(lost, "audit") as connection:
        assert connection.execute("select size from tree_head").fetchone() == (LOG_SIZE,)


def test_rights_are_those_of_the_lost_database(lost: Cluster, backup: BackupReader) -> None:
    restore(lost, backup)
    with as_service(lost, "audit") as audit:
        for statement in ("update checkpoints set note = ''", "delete from records", "select * from registry.tools"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                audit.execute(statement.encode())
    with psycopg.connect(lost.owner_urls()["registry"], autocommit=True) as owner:
        owner.execute("create table things (name text)")
    with as_service(lost, "registry") as registry:
        registry.execute("insert into things values ('one')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            registry.execute("drop table things")
    assert OWNERS.keys() == lost.owner_urls().keys()
    assert migrate_all(lost.owner_urls()) == {}


def test_open_approvals_end_and_executors_begin_with_a_snapshot(
    mesh: Cluster, lost: Cluster, backup: BackupReader
) -> None:
    restore(lost, backup)
    query = "select epoch from registry.change_counter"
    with psycopg.connect(f"{lost.url}/toolmesh") as restored, psycopg.connect(f"{mesh.url}/toolmesh") as original:
        open_tickets = restored.execute(
            "select count(*) from approval.tickets where next_time > now() or state = 'pending' and expire_time > now()"
            " or state = 'approved' and approval_expire_time > now()"
        ).fetchone()
        assert open_tickets == (0,)
        assert restored.execute(query).fetchone() != original.execute(query).fetchone()


def test_a_restore_that_is_interrupted_leaves_the_place_empty_and_may_run_again(
    lost: Cluster, backup: BackupReader
) -> None:
    def interrupted() -> Iterator[bytes]:
        yield next(backup.read(DATABASE))[:-1]
        raise BackupError("the disk went away")

    with pytest.raises(BackupError):
        restore(lost, backup, interrupted())
    assert inspect_target(lost.postgres, backup.manifest) is TargetState.EMPTY
    restore(lost, backup)
    assert inspect_target(lost.postgres, backup.manifest) is TargetState.RESTORED


def half_a_restore(postgres: PostgresAddress, folder: Path, passwords: dict[str, str]) -> None:
    """Begins a restore and waits forever for the end of the dump."""
    backup = BackupReader(folder, PASSPHRASE)

    def half() -> Iterator[bytes]:
        yield next(backup.read(DATABASE))[:-1]
        threading.Event().wait()

    restore_database(postgres, backup.manifest, passwords, half())


def sessions(server: psycopg.Connection[tuple[object, ...]], name: str) -> int:
    row = server.execute("select count(*) from pg_stat_activity where application_name = %s", (name,)).fetchone()
    assert row is not None
    return int(str(row[0]))


def test_what_a_killed_run_left_is_replaced_by_the_next(lost: Cluster, folder: Path, backup: BackupReader) -> None:
    arguments = (lost.postgres, folder, read_passwords(lost.store, NAMESPACES))
    killed = multiprocessing.get_context("spawn").Process(target=half_a_restore, args=arguments)
    killed.start()
    try:
        with psycopg.connect(f"{lost.url}/postgres", autocommit=True) as server:
            wait_until(lambda: sessions(server, "pg_restore"), "the dump is being loaded")
            # Two at once would replace each other's draft.
            with pytest.raises(TargetError):
                restore(lost, backup)
            killed.kill()
            wait_until(lambda: not sessions(server, "toolmesh-backup"), "the server released the lock")
    finally:
        killed.kill()
        killed.join()
    # A program that it had started may outlive it.
    with psycopg.connect(f"{lost.url}/{DRAFT}"):
        restore(lost, backup)
    assert inspect_target(lost.postgres, backup.manifest) is TargetState.RESTORED


def test_lost_connections_end_a_restore_with_an_error_of_its_own(lost: Cluster, backup: BackupReader) -> None:
    def interrupted() -> Iterator[bytes]:
        with psycopg.connect(f"{lost.url}/postgres", autocommit=True) as server:
            server.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
        yield from backup.read(DATABASE)

    with pytest.raises(BackupError):
        restore(lost, backup, interrupted())
    restore(lost, backup)


def test_a_dump_that_cannot_be_loaded_is_not_put_in_place(lost: Cluster, backup: BackupReader) -> None:
    with pytest.raises(BackupError):
        restore(lost, backup, iter([b"no dump"]))
    assert inspect_target(lost.postgres, backup.manifest) is TargetState.EMPTY


def test_a_database_that_is_not_the_manifests_is_not_put_in_place(lost: Cluster, backup: BackupReader) -> None:
    kept = backup.manifest
    other = Manifest(1, kept.version, kept.create_time, kept.salt, kept.revisions, LogHead(kept.log.log_id, 7, 0, 0))
    passwords = read_passwords(lost.store, NAMESPACES)
    with pytest.raises(BackupError):
        restore_database(lost.postgres, other, passwords, backup.read(DATABASE))
    assert inspect_target(lost.postgres, kept) is TargetState.EMPTY


def test_what_is_in_the_place_is_told_apart(mesh: Cluster, lost: Cluster, backup: BackupReader) -> None:
    assert inspect_target(mesh.postgres, backup.manifest) is TargetState.OCCUPIED
    assert inspect_target(lost.postgres, backup.manifest) is TargetState.EMPTY
    with psycopg.connect(f"{lost.url}/postgres", autocommit=True) as connection:
        connection.execute("create database toolmesh")
    assert inspect_target(lost.postgres, backup.manifest) is TargetState.EMPTY
    with psycopg.connect(f"{lost.url}/toolmesh"), pytest.raises(TargetError):
        restore(lost, backup)
    restore(lost, backup)
    assert inspect_target(lost.postgres, backup.manifest) is TargetState.RESTORED
