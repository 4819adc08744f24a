"""Restores a backup: checks everything, then restores keys, then the database. It may be interrupted and run again."""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from localmesh.cluster_backup.backup_folder import DATABASE, SECRETS, BackupReader
from localmesh.cluster_backup.database_restore import TargetState, inspect_target, restore_database
from localmesh.cluster_backup.errors import TargetError
from localmesh.cluster_backup.kept_secrets import (
    create_secrets,
    new_signing_keys,
    parse_contents,
    plan_secrets,
    replace_signing_keys,
)
from localmesh.cluster_backup.postgres_address import open_postgres
from localmesh.deploy.init_db import InitDatabaseError, read_passwords
from localmesh.deploy.init_secrets import SIGNING_KEYS
from localmesh.deploy.layout import Namespaces
from localmesh.deploy.secret_store import SecretStore


class Part(enum.Enum):
    """What a backup holds."""

    SECRETS = "secrets"
    DATABASE = "database"


ALL_PARTS = frozenset(Part)


@dataclass(frozen=True)
class RestoreOutcome:
    """What a restore did."""

    secrets: tuple[str, ...]
    """The secrets that it created."""
    database: bool
    """Whether it restored the database; False if an earlier run did, or if only secrets were asked for."""
    tokens_refused: bool
    """Whether tokens from before are refused from now on."""


def restore_backup(
    backup: BackupReader,
    store: SecretStore,
    namespaces: Namespaces,
    *,
    parts: AbstractSet[Part] = ALL_PARTS,
    server: str = "",
    keep_signing_keys: bool = False,
) -> RestoreOutcome:
    """Restore parts of a backup. Raises TargetError where something is in the way, BackupError otherwise.

    Revocations that came after the backup are not in it. So the keys that signed tokens are not restored, unless
    `keep_signing_keys`: a new key takes their place, and every token from before is refused.
    """
    backup.verify()
    kept = parse_contents(backup.read(SECRETS))
    missing = plan_secrets(store, namespaces, kept)
    if Part.SECRETS not in parts and missing:
        raise TargetError(f"secret {min(missing)} is missing: restore the secrets first")
    wanted = Part.DATABASE in parts and _needs_database(backup, store, namespaces, server)
    present = store.read(namespaces.mesh, SIGNING_KEYS) is not None
    create_secrets(store, namespaces, missing)
    refused = not keep_signing_keys and (wanted or Part.DATABASE not in parts or not present)
    if refused:
        # Before the database: a token from before must not be good for a moment.
        replace_signing_keys(store, namespaces, new_signing_keys())
    elif not present:
        replace_signing_keys(store, namespaces, kept[SIGNING_KEYS])
    if wanted:
        _restore_database(backup, store, namespaces, server)
    return RestoreOutcome(tuple(sorted(missing)), wanted, refused)


def _needs_database(backup: BackupReader, store: SecretStore, namespaces: Namespaces, server: str) -> bool:
    """Return whether the database is still to be restored. Raises TargetError if there is another one."""
    try:
        read_passwords(store, namespaces)
    except InitDatabaseError as error:
        raise TargetError(str(error)) from None
    with open_postgres(store, namespaces, server) as postgres:
        state = inspect_target(postgres, backup.manifest)
    if state is TargetState.OCCUPIED:
        raise TargetError("the database is not empty: a restore replaces nothing")
    return state is TargetState.EMPTY


def _restore_database(backup: BackupReader, store: SecretStore, namespaces: Namespaces, server: str) -> None:
    passwords = read_passwords(store, namespaces)
    with open_postgres(store, namespaces, server) as postgres:
        restore_database(postgres, backup.manifest, passwords, backup.read(DATABASE))
