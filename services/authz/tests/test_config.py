"""The settings of the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from libs.common.runtime.settings import SettingsError, describe, load
from services.authz.config import Settings


@pytest.fixture
def environment(process_environment: Callable[[str], dict[str, str]], folder: Path) -> dict[str, str]:
    own = {"TOOLMESH_DATABASE_URL": "postgresql://authz:hidden@db/toolmesh", "TOOLMESH_SIGNING_KEYS": str(folder)}
    return process_environment("authz") | own


def test_the_defaults(environment: dict[str, str]) -> None:
    settings = load(Settings, environment)
    assert (settings.max_token_lifetime, settings.decision_ttl) == (86_400, 60)


def test_the_database_password_is_not_shown(environment: dict[str, str]) -> None:
    assert "hidden" not in str(describe(load(Settings, environment)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOOLMESH_DATABASE_URL", "mysql://x"),
        ("TOOLMESH_SIGNING_KEYS", "/nowhere/at/all"),
        ("TOOLMESH_MAX_TOKEN_LIFETIME", "0"),
        ("TOOLMESH_DECISION_TTL", "1h"),
        ("TOOLMESH_TRUSTED_ISSUERS", "/nowhere/issuers.json"),
        ("TOOLMESH_DID_RESOLVER", "http://resolver.example"),
        ("TOOLMESH_DID_RESOLVER", "/nowhere/at/all"),
        ("TOOLMESH_AUTHZ_ADDRESS", "127.0.0.1:1"),
    ],
)
def test_a_wrong_value_is_named(environment: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(Settings, environment | {name: value})
    assert [problem.split()[0].rstrip(":") for problem in caught.value.problems] == [name]
