"""Settings of the audit service."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from libs.common.runtime.settings import SettingsError, describe, load
from services.audit.config import Settings


def test_the_environment_is_enough_and_the_password_is_not_shown(audit_environment: dict[str, str]) -> None:
    settings = load(Settings, audit_environment)
    assert settings.database_url == audit_environment["TOOLMESH_DATABASE_URL"]
    assert describe(settings)["TOOLMESH_DATABASE_URL"] == "***"


@pytest.mark.parametrize("name", ["TOOLMESH_DATABASE_URL", "TOOLMESH_AUTHZ_ADDRESS", "TOOLMESH_CHECKPOINT_KEY"])
def test_required_settings_are_required(audit_environment: dict[str, str], name: str) -> None:
    del audit_environment[name]
    with pytest.raises(SettingsError) as caught:
        load(Settings, audit_environment)
    assert [problem.partition(" ")[0] for problem in caught.value.problems] == [name]


@pytest.mark.parametrize("suffix", ["", "_FILE"])
def test_the_service_refuses_the_credentials_of_the_logs_owner(audit_environment: dict[str, str], suffix: str) -> None:
    name = f"TOOLMESH_MIGRATION_DATABASE_URL{suffix}"
    with pytest.raises(SettingsError) as caught:
        load(Settings, audit_environment | {name: "postgresql://audit_owner:secret@db/toolmesh"})
    assert [problem.partition(" ")[0] for problem in caught.value.problems] == [name]
    assert "secret" not in str(caught.value)


def test_a_log_grows_and_is_kept_by_sensible_defaults(audit_environment: dict[str, str]) -> None:
    settings = load(Settings, audit_environment)
    assert settings.shard_records == 10_000_000
    assert (settings.checkpoint_records, settings.checkpoint_seconds) == (10_000, 60)
    assert (settings.retention_years, settings.witness_keys, settings.anchor_folder) == (7, None, None)


@pytest.mark.parametrize("name", ["TOOLMESH_CHECKPOINT_KEY", "TOOLMESH_WITNESS_KEYS"])
@pytest.mark.parametrize("content", [b"-----BEGIN PRIVATE KEY-----\nhunter2\n", b"\xff\x00", "rsa"])
def test_an_invalid_key_file_is_named_but_not_shown(
    audit_environment: dict[str, str], tmp_path: Path, name: str, content: bytes | str
) -> None:
    file = tmp_path / "key"
    file.write_bytes(_rsa_key() if isinstance(content, str) else content)
    with pytest.raises(SettingsError) as caught:
        load(Settings, {**audit_environment, name: str(file)})
    [problem] = caught.value.problems
    assert problem.startswith(f"{name}:")
    assert "hunter2" not in problem


def _rsa_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOOLMESH_RETENTION_YEARS", "0"),
        ("TOOLMESH_RETENTION_YEARS", "8"),
        ("TOOLMESH_SHARD_RECORDS", "0"),
        ("TOOLMESH_ANCHOR_FOLDER", "/nowhere/at/all"),
        ("TOOLMESH_WITNESS_KEYS", "/nowhere/at/all"),
    ],
)
def test_settings_out_of_range_are_refused(audit_environment: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(Settings, {**audit_environment, name: value})
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [name]


@pytest.mark.parametrize(("relay", "name"), [("redis", "TOOLMESH_REDIS_URL"), ("kafka", "TOOLMESH_KAFKA_BROKERS")])
def test_a_relay_needs_to_know_where_its_sink_is(audit_environment: dict[str, str], relay: str, name: str) -> None:
    audit_environment["TOOLMESH_RELAY"] = relay
    with pytest.raises(SettingsError) as caught:
        load(Settings, audit_environment)
    assert [problem.partition(" ")[0] for problem in caught.value.problems] == [name]
