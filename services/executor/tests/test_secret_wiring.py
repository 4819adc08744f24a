"""Which stores of credentials an executor has, by its settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from libs.common.secret_store.folders import MountedFolder
from libs.common.telemetry.log import Log
from services.executor.adapters.secrets.vault.vault_folder import VaultFolder
from services.executor.config import Settings
from services.executor.secret_wiring import build_secret_folders
from services.executor.tests.adapters.secrets.vault.stand_in import running_stand_in

BOUND = {"hosts": ["api.example.com"], "namespaces": ["acme"]}


def settings_with(**chosen: Any) -> Settings:
    return Settings.model_construct(secret_store=None, **chosen)


def test_without_settings_there_is_no_store() -> None:
    assert build_secret_folders(settings_with(), Log("test")) == []


def test_vault_is_asked_after_the_mounted_files_with_the_login_of_the_settings(tmp_path: Path) -> None:
    credential = tmp_path / "secret-id"
    credential.write_text("proof")
    with running_stand_in() as server:
        server.credentials["mesh/login"] = ("role_id secret_id", "executor", "proof")
        server.put("tools/crm_key", {"value": "of vault", **BOUND})
        vault = {"vault_login": "approle", "vault_role": "executor", "vault_mount": "mesh/login"}
        settings = settings_with(
            secret_files=tmp_path,
            vault_address=server.url,
            vault_credential=credential,
            vault_path="secret/tools",
            **vault,
        )
        mounted, stored = build_secret_folders(settings, Log("test"))
        assert (type(mounted), type(stored)) == (MountedFolder, VaultFolder)
        assert mounted.find("crm_key", "") is None
        found = stored.find("crm_key", "")
        assert found is not None
        assert found.value == "of vault"
        (tmp_path / "crm_key").write_text("of a file")
        (tmp_path / "crm_key.json").write_text(json.dumps(BOUND))
        assert mounted.find("crm_key", "") is not None
