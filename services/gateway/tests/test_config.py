"""The settings of the gateway process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from libs.common.runtime.settings import SettingsError, load
from services.gateway.config import Settings


@pytest.fixture
def environment(process_environment: Callable[[str], dict[str, str]]) -> dict[str, str]:
    return {
        **process_environment("gateway"),
        "TOOLMESH_APPROVAL_ADDRESS": "approval:7443",
        "TOOLMESH_AUDIT_ADDRESS": "audit:7443",
        "TOOLMESH_AUTHZ_ADDRESS": "authz:7443",
        "TOOLMESH_EXECUTOR_ADDRESS": "executor:7443",
        "TOOLMESH_REGISTRY_ADDRESS": "registry:7443",
        "TOOLMESH_REDIS_URL": "redis://valkey:6379",
    }


_PEERS = ("APPROVAL", "AUDIT", "AUTHZ", "EXECUTOR", "REGISTRY")
_REQUIRED = [*(f"TOOLMESH_{peer}_ADDRESS" for peer in _PEERS), "TOOLMESH_REDIS_URL"]


@pytest.mark.parametrize("name", _REQUIRED)
def test_each_own_setting_is_required_and_checked(environment: dict[str, str], name: str) -> None:
    for value in ("", "nonsense"):
        with pytest.raises(SettingsError) as caught:
            load(Settings, {**environment, name: value})
        assert len(caught.value.problems) == 1


def test_settings_of_mcp_are_checked(environment: dict[str, str], tmp_path: Path) -> None:
    views = tmp_path / "views.json"
    views.write_text('{"views": {"sales": {"namespace": "acme"}}}')
    chosen = {
        "TOOLMESH_MCP_VIEWS": str(views),
        "TOOLMESH_MCP_PAGE_ORIGINS": "https://console.example",
        "TOOLMESH_MCP_AUTHORIZATION_SERVERS": "https://login.example/realms/mesh, https://other.example",
    }
    settings = load(Settings, {**environment, **chosen})
    assert settings.mcp_page_origins == ("https://console.example:443",)
    assert settings.mcp_authorization_servers == ("https://login.example/realms/mesh", "https://other.example")
    views.write_text('{"views": {"sales": {}}}')
    wrong = {
        "TOOLMESH_MCP_VIEWS": str(views),
        "TOOLMESH_MCP_PAGE_ORIGINS": "https://console.example/path",
        "TOOLMESH_MCP_AUTHORIZATION_SERVERS": "ftp://login.example",
    }
    for name, value in wrong.items():
        with pytest.raises(SettingsError) as caught:
            load(Settings, {**environment, name: value})
        assert [problem.startswith(name) for problem in caught.value.problems] == [True]
