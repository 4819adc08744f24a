"""A backup holds the database and the keys, and shows neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from localmesh.cluster_backup.backup_folder import MANIFEST, SECRETS, BackupReader
from localmesh.cluster_backup.create_backup import create_backup
from localmesh.cluster_backup.errors import BackupError
from localmesh.cluster_backup.kept_secrets import parse_contents, read_kept
from localmesh.deploy.init_secrets import SEALING_KEYS
from localmesh.tests.cluster_backup.conftest import LOG_SIZE, NAMESPACES, PASSPHRASE, Cluster


def test_it_holds_the_keys_and_the_end_of_the_log(mesh: Cluster, tmp_path: Path) -> None:
    made = create_backup(tmp_path / "one", PASSPHRASE, mesh.store, NAMESPACES, mesh.postgres)
    reader = BackupReader(tmp_path / "one", PASSPHRASE)
    reader.verify()
    assert reader.manifest == made
    assert made.log.size == LOG_SIZE
    assert parse_contents(reader.read(SECRETS)) == read_kept(mesh.store, NAMESPACES)


def test_no_key_is_readable_in_its_files(mesh: Cluster, tmp_path: Path) -> None:
    create_backup(tmp_path / "one", PASSPHRASE, mesh.store, NAMESPACES, mesh.postgres)
    written = b"".join(path.read_bytes() for path in (tmp_path / "one").iterdir())
    [sealing_key] = mesh.store.content["toolmesh", SEALING_KEYS].values()
    assert [word for word in (sealing_key, b"PRIVATE KEY", b"PGDMP", b"tickets") if word in written] == []


def test_a_mesh_that_lacks_a_key_leaves_no_complete_backup(mesh: Cluster, tmp_path: Path) -> None:
    without = Cluster(type(mesh.store)(), mesh.url)
    without.store.content = {place: it for place, it in mesh.store.content.items() if place[1] != SEALING_KEYS}
    with pytest.raises(BackupError):
        create_backup(tmp_path / "one", PASSPHRASE, without.store, NAMESPACES, mesh.postgres)
    assert not (tmp_path / "one" / MANIFEST).exists()
