"""The settings of the approval process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from libs.common.runtime.settings import SettingsError, describe, load
from services.approval.config import Settings
from services.approval.domain.rules import ApprovalRules


@pytest.fixture
def environment(process_environment: Callable[[str], dict[str, str]]) -> dict[str, str]:
    return {
        **process_environment("approval"),
        "TOOLMESH_DATABASE_URL": "postgresql://approval:hunter2@db/toolmesh",
        "TOOLMESH_AUTHZ_ADDRESS": "authz:7443",
        "TOOLMESH_AUDIT_ADDRESS": "audit:7443",
    }


def test_secrets_are_not_shown(environment: dict[str, str]) -> None:
    assert "hunter2" not in str(describe(load(Settings, environment)))


@pytest.mark.parametrize("name", ["TOOLMESH_DATABASE_URL", "TOOLMESH_AUTHZ_ADDRESS", "TOOLMESH_AUDIT_ADDRESS"])
def test_each_own_setting_is_required_and_checked(environment: dict[str, str], name: str) -> None:
    for value in ("", "nonsense"):
        with pytest.raises(SettingsError) as caught:
            load(Settings, {**environment, name: value})
        assert len(caught.value.problems) == 1


def test_rules_that_would_approve_by_time_are_refused(environment: dict[str, str], tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    for content in ('{"on_timeout": "approve"}', '{"escalation": {"then": "approve"}}', '{"auto_approve": "1h"}'):
        rules.write_text(content)
        with pytest.raises(SettingsError):
            load(Settings, {**environment, "TOOLMESH_APPROVAL_RULES": str(rules)})
    rules.write_text('{"on_timeout": "deny"}')
    assert load(Settings, {**environment, "TOOLMESH_APPROVAL_RULES": str(rules)}).approval_rules == ApprovalRules()
