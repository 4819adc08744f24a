"""Credentials from folders, as a call gets them."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.sealing import Seal
from libs.common.secret_store.folders import MountedFolder, SealedFolder
from libs.common.secret_store.secret import Binding, Secret
from libs.common.testing.clock import ManualClock
from services.executor.adapters.secrets.folder_secrets import FolderSecrets

BINDING = Binding(("api.example.com",), ("acme",))


@pytest.fixture
def sealed(tmp_path: Path) -> SealedFolder:
    (tmp_path / "sealed").mkdir()
    return SealedFolder(tmp_path / "sealed", Seal([os.urandom(32)]))


async def reason_of(secrets: FolderSecrets, name: str = "crm_key") -> Reason:
    with pytest.raises(MeshError) as caught:
        await secrets.get(name, "acme")
    return caught.value.reason


async def test_a_tenants_own_secret_comes_before_the_shared_one(sealed: SealedFolder) -> None:
    secrets = FolderSecrets([sealed], ManualClock())
    sealed.put(Secret("crm_key", "shared", BINDING))
    assert (await secrets.get("crm_key", "acme")).value == "shared"
    sealed.put(Secret("crm_key", "acmes-own", BINDING, "acme"))
    assert (await secrets.get("crm_key", "acme")).value == "acmes-own"
    assert (await secrets.get("crm_key", "other")).value == "shared"
    assert (await secrets.get("crm_key", "")).value == "shared"


async def test_a_rotated_secret_holds_for_the_next_call(sealed: SealedFolder) -> None:
    secrets = FolderSecrets([sealed], ManualClock())
    for value in ("first", "second"):
        sealed.put(Secret("crm_key", value, BINDING))
        assert (await secrets.get("crm_key", "acme")).value == value


async def test_each_failure_has_its_own_reason(sealed: SealedFolder, tmp_path: Path) -> None:
    clock = ManualClock()
    secrets = FolderSecrets([sealed, MountedFolder(tmp_path)], clock)
    assert await reason_of(secrets) is Reason.CREDENTIAL_NOT_FOUND
    ended = Binding(BINDING.hosts, BINDING.namespaces, clock.now() - timedelta(seconds=1))
    sealed.put(Secret("crm_key", "old-value", ended))
    assert await reason_of(secrets) is Reason.CREDENTIAL_EXPIRED
    (tmp_path / "plain").write_text("value without a binding")
    assert await reason_of(secrets, "plain") is Reason.CREDENTIAL_UNREADABLE
    gone = FolderSecrets([MountedFolder(tmp_path / "gone")], clock)
    assert await reason_of(gone) is Reason.SECRET_STORE_UNAVAILABLE
