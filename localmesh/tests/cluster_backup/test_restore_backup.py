"""A restore checks everything before it changes anything, and lets no token from before come back."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from localmesh.cluster_backup.backup_folder import DATABASE, BackupReader
from localmesh.cluster_backup.create_backup import create_backup
from localmesh.cluster_backup.errors import BackupError, TargetError
from localmesh.cluster_backup.restore_backup import Part, RestoreOutcome, restore_backup
from localmesh.deploy.init_secrets import CHECKPOINT_KEY, SEALING_KEYS, SIGNING_KEYS, init_keys
from localmesh.tests.cluster_backup.conftest import NAMESPACES, PASSPHRASE, Cluster

SIGNING = ("toolmesh", SIGNING_KEYS)
SECRETS_ALONE, DATABASE_ALONE = frozenset({Part.SECRETS}), frozenset({Part.DATABASE})


@pytest.fixture
def folder(mesh: Cluster, tmp_path: Path) -> Path:
    create_backup(tmp_path / "one", PASSPHRASE, mesh.store, NAMESPACES, mesh.postgres)
    return tmp_path / "one"


def restore(cluster: Cluster, folder: Path, **options: object) -> RestoreOutcome:
    return restore_backup(BackupReader(folder, PASSPHRASE), cluster.store, NAMESPACES, **options)  # type: ignore[arg-type]


def databases(cluster: Cluster) -> set[str]:
    with psycopg.connect(f"{cluster.url}/postgres") as connection:
        rows = connection.execute("select datname from pg_database where datname like 'toolmesh%'").fetchall()
    return {str(name) for (name,) in rows}


def test_keys_come_back_but_those_that_signed_tokens(mesh: Cluster, lost: Cluster, folder: Path) -> None:
    outcome = restore(lost, folder)
    assert (outcome.database, outcome.tokens_refused) == (True, True)
    for name in (SEALING_KEYS, CHECKPOINT_KEY):
        assert lost.store.content["toolmesh", name] == mesh.store.content["toolmesh", name]
    signed, signs = mesh.store.content[SIGNING], lost.store.content[SIGNING]
    assert len(signs) == 1
    assert set(signs.values()).isdisjoint(signed.values())


def test_tokens_from_before_are_accepted_on_demand_alone(mesh: Cluster, lost: Cluster, folder: Path) -> None:
    assert not restore(lost, folder, keep_signing_keys=True).tokens_refused
    assert lost.store.content[SIGNING] == mesh.store.content[SIGNING]


def test_a_second_run_changes_nothing(lost: Cluster, folder: Path) -> None:
    restore(lost, folder)
    with psycopg.connect(f"{lost.url}/toolmesh") as connection:
        connection.execute("update audit.tree_head set size = size + 1")
    before = {place: dict(content) for place, content in lost.store.content.items()}
    assert restore(lost, folder) == RestoreOutcome((), database=False, tokens_refused=False)
    assert lost.store.content == before


def test_a_database_that_was_lost_alone_makes_its_tokens_void(mesh: Cluster, lost: Cluster, folder: Path) -> None:
    lost.store.content.update({place: dict(it) for place, it in mesh.store.content.items() if "keys" in place[1]})
    with pytest.raises(TargetError):
        restore(lost, folder, parts=DATABASE_ALONE)
    restore(lost, folder, parts=SECRETS_ALONE, keep_signing_keys=True)
    assert lost.store.content[SIGNING] == mesh.store.content[SIGNING]
    assert restore(lost, folder, parts=DATABASE_ALONE).tokens_refused
    assert lost.store.content[SIGNING] != mesh.store.content[SIGNING]


def test_secrets_alone_need_no_database(lost: Cluster, folder: Path) -> None:
    outcome = restore(lost, folder, parts=SECRETS_ALONE, server="127.0.0.1:1")
    assert (outcome.database, outcome.tokens_refused, databases(lost)) == (False, True, set())


def test_another_mesh_is_not_touched(mesh: Cluster, lost: Cluster, folder: Path) -> None:
    init_keys(lost.store, NAMESPACES)
    before = {place: dict(content) for place, content in lost.store.content.items()}
    with pytest.raises(TargetError):
        restore(lost, folder)
    with pytest.raises(TargetError):
        restore(Cluster(lost.store, mesh.url), folder)
    assert (lost.store.content, databases(lost)) == (before, set())


def test_a_database_that_is_not_empty_is_not_touched(lost: Cluster, folder: Path) -> None:
    with psycopg.connect(f"{lost.url}/postgres", autocommit=True) as connection:
        connection.execute("create database toolmesh")
    with psycopg.connect(f"{lost.url}/toolmesh") as connection:
        connection.execute("create table letters (word text)")
    before = set(lost.store.content)
    with pytest.raises(TargetError):
        restore(lost, folder)
    assert set(lost.store.content) == before


def test_a_damaged_backup_changes_nothing(lost: Cluster, folder: Path) -> None:
    content = bytearray((folder / DATABASE).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / DATABASE).write_bytes(content)
    before = set(lost.store.content)
    with pytest.raises(BackupError):
        restore(lost, folder)
    assert (set(lost.store.content), databases(lost)) == (before, set())
