"""Backs up a mesh: its database at one moment, then its keys."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from localmesh.cluster_backup.backup_folder import DATABASE, SECRETS, BackupWriter, Manifest
from localmesh.cluster_backup.database_dump import open_dump
from localmesh.cluster_backup.kept_secrets import read_kept, write_contents
from localmesh.cluster_backup.postgres_address import PostgresAddress
from localmesh.deploy.layout import Namespaces
from localmesh.deploy.secret_store import SecretStore


def create_backup(
    folder: Path, passphrase: bytes, store: SecretStore, namespaces: Namespaces, postgres: PostgresAddress
) -> Manifest:
    """Write a backup and return its manifest. Raises BackupError; then the folder holds no complete backup."""
    writer = BackupWriter(folder, passphrase)
    with open_dump(postgres) as (facts, dump):
        time = datetime.now(UTC).isoformat(timespec="seconds")
        writer.write(DATABASE, dump)
    # Afterwards: a key that came meanwhile is then in it, and none goes while values of the dump need it.
    writer.write(SECRETS, [write_contents(read_kept(store, namespaces))])
    return writer.finish(version("toolmesh"), time, facts.revisions, facts.log)
