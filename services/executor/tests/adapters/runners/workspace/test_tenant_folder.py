"""The folder of a tenant in a volume on disk."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from services.executor.adapters.runners.workspace.tenant_folder import open_tenant_folder
from services.executor.domain.volumes import Volume


def test_a_folder_is_created_once_and_not_for_other_users(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = open_tenant_folder(Volume(tmp_path), "acme")
    (folder / "a").touch()
    assert open_tenant_folder(Volume(tmp_path), "acme") == folder
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    assert folder.stat().st_uid == tmp_path.stat().st_uid


def test_a_shared_volume_gets_no_folders(tmp_path: Path) -> None:
    assert open_tenant_folder(Volume(tmp_path, shared=True), "acme") == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_tenant_stays_in_the_volume(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    assert open_tenant_folder(Volume(volume), "../../etc").parent == volume


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    volume, elsewhere = tmp_path / "volume", tmp_path / "elsewhere"
    volume.mkdir()
    elsewhere.mkdir()
    (volume / "tenant-acme").symlink_to(elsewhere)
    with pytest.raises(NotADirectoryError):
        open_tenant_folder(Volume(volume), "acme")
