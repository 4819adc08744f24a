"""Composes the stores of credentials."""

from __future__ import annotations

from libs.common.secret_store.folders import MountedFolder, SealedFolder, SecretFolder
from libs.common.telemetry.log import Log
from services.executor.adapters.secrets.vault.session import VaultAddress, VaultLogin, VaultSession
from services.executor.adapters.secrets.vault.vault_folder import VaultFolder
from services.executor.config import Settings


def build_secret_folders(settings: Settings, log: Log) -> list[SecretFolder]:
    """Return the stores in the order in which they are asked: encrypted files, mounted files, Vault."""
    folders: list[SecretFolder] = []
    if settings.secret_store is not None:
        folders.append(SealedFolder(settings.secret_store, settings.sealing_keys))
    if settings.secret_files is not None:
        folders.append(MountedFolder(settings.secret_files))
    if settings.vault_address is not None and settings.vault_credential is not None:
        address = VaultAddress(
            settings.vault_address,
            VaultLogin(settings.vault_login),
            settings.vault_credential,
            role=settings.vault_role,
            auth_mount=settings.vault_mount,
            namespace=settings.vault_namespace,
            ca_file=settings.vault_ca,
        )
        folders.append(VaultFolder(VaultSession(address), settings.vault_path, log))
    return folders
