"""The settings of the gateway process."""

from __future__ import annotations

from collections.abc import Callable

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
    }


@pytest.mark.parametrize(
    "name", [f"TOOLMESH_{peer}_ADDRESS" for peer in ("APPROVAL", "AUDIT", "AUTHZ", "EXECUTOR", "REGISTRY")]
)
def test_each_own_setting_is_required_and_checked(environment: dict[str, str], name: str) -> None:
    for value in ("", "nonsense"):
        with pytest.raises(SettingsError) as caught:
            load(Settings, {**environment, name: value})
        assert len(caught.value.problems) == 1
