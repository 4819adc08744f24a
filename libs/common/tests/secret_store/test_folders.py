"""Folders of secrets: what is stored comes back, to its tenant, and nothing else does."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from libs.common.sealing import Seal
from libs.common.secret_store.folders import MountedFolder, SealedFolder, SecretUnreadableError
from libs.common.secret_store.secret import Binding, Secret, SecretFormError, check_name, check_value, secret_name

SEAL = Seal([os.urandom(32)])
BINDING = Binding(("api.example.com",), ("acme",))


def secret(value: str = "s3cr3t-value", **changes: object) -> Secret:
    return Secret(**{"name": "crm_key", "value": value, "binding": BINDING, **changes})  # type: ignore[arg-type]


def test_a_sealed_secret_comes_back_and_its_file_shows_nothing(tmp_path: Path) -> None:
    folder = SealedFolder(tmp_path, SEAL)
    folder.put(secret(set_time=datetime(2026, 1, 1, tzinfo=UTC)))
    assert folder.find("crm_key", "") == secret(set_time=datetime(2026, 1, 1, tzinfo=UTC))
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert b"s3cr3t" not in file.read_bytes()
    assert file.stat().st_mode & 0o077 == 0


def test_a_rotated_secret_replaces_the_former_at_once(tmp_path: Path) -> None:
    folder = SealedFolder(tmp_path, SEAL)
    folder.put(secret("old-value"))
    folder.put(secret("new-value"))
    found = folder.find("crm_key", "")
    assert found is not None
    assert found.value == "new-value"
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize("tenant", ["acme", "..", "../up", "did:web:a/b", "ü"])
def test_a_secret_of_a_tenant_is_no_other_tenants(tmp_path: Path, tenant: str) -> None:
    inside = tmp_path / "store"
    inside.mkdir()
    folder = SealedFolder(inside, SEAL)
    folder.put(secret(tenant=tenant))
    assert folder.find("crm_key", tenant) == secret(tenant=tenant)
    assert folder.find("crm_key", "") is None
    assert folder.find("crm_key", "other") is None
    assert [each.tenant for each in folder.entries()] == [tenant]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert folder.remove("crm_key", tenant)
    assert not folder.remove("crm_key", tenant)


def test_a_file_that_was_moved_changed_or_sealed_elsewhere_is_unreadable(tmp_path: Path) -> None:
    folder = SealedFolder(tmp_path, SEAL)
    folder.put(secret())
    shutil.copy(tmp_path / "crm_key.sealed", tmp_path / "other.sealed")
    with pytest.raises(SecretUnreadableError):
        folder.find("other", "")
    with pytest.raises(SecretUnreadableError):
        SealedFolder(tmp_path, Seal([os.urandom(32)])).find("crm_key", "")
    (tmp_path / "crm_key.sealed").write_bytes(b"x" * 100_000)
    with pytest.raises(SecretUnreadableError):
        folder.find("crm_key", "")


def test_a_mounted_secret_has_a_value_and_a_binding(tmp_path: Path) -> None:
    folder = MountedFolder(tmp_path)
    assert folder.find("crm_key", "") is None
    (tmp_path / "crm_key").write_text("s3cr3t-value\n")
    with pytest.raises(SecretUnreadableError):
        folder.find("crm_key", "")
    binding = {"hosts": ["API.example.com"], "namespaces": ["acme"], "expires": "2030-01-01T00:00:00Z"}
    (tmp_path / "crm_key.json").write_text(json.dumps(binding))
    found = folder.find("crm_key", "")
    assert found is not None
    assert (found.value, found.binding.hosts) == ("s3cr3t-value", ("api.example.com",))
    assert not found.is_expired(datetime(2029, 1, 1, tzinfo=UTC))
    assert found.is_expired(datetime(2030, 1, 1, tzinfo=UTC))
    (tmp_path / "crm_key.json").write_text('{"hosts": ["api.example.com"], "namespaces": []}')
    with pytest.raises(SecretUnreadableError):
        folder.find("crm_key", "")


@pytest.mark.parametrize("folder", [SealedFolder(Path("/nonexistent/x"), SEAL), MountedFolder(Path("/nonexistent/x"))])
def test_a_folder_that_is_not_there_is_a_failure_and_no_absence(folder: SealedFolder | MountedFolder) -> None:
    with pytest.raises(OSError, match="nonexistent"):
        folder.find("crm_key", "")


def test_a_secret_never_shows_its_value() -> None:
    assert "s3cr3t" not in f"{secret()!r} {secret()}"


@pytest.mark.parametrize("value", ["", "a\nb", "ä", "x" * 8193, "\x00"])
def test_a_value_that_no_header_can_carry_is_refused(value: str) -> None:
    with pytest.raises(SecretFormError):
        check_value(value)


@pytest.mark.parametrize("name", ["", "A", "../x", "a/b", "a.b", "1a", "x" * 64])
def test_a_name_that_could_be_a_path_is_refused(name: str) -> None:
    with pytest.raises(SecretFormError):
        check_name(name)
    assert secret_name(f"secret://{name}") is None


@pytest.mark.parametrize(
    "binding",
    [
        Binding(("api.example.com",), ()),
        Binding(("https://api.example.com",), ("acme",)),
        Binding(("*",), ("acme",)),
        Binding(("a.example",), ("Acme!",)),
        Binding(("a.example",), ("acme",), datetime(2026, 1, 1)),  # noqa: DTZ001
    ],
)
def test_a_binding_that_allows_nothing_or_anything_is_refused(binding: Binding) -> None:
    with pytest.raises(SecretFormError):
        binding.check()
