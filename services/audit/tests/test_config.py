"""The settings of the process."""

from __future__ import annotations

import pytest

from libs.common.settings import SettingsError, describe, load
from services.audit.config import Settings


def test_the_environment_is_enough_and_the_password_is_not_shown(audit_environment: dict[str, str]) -> None:
    settings = load(Settings, audit_environment)
    assert settings.database_url == audit_environment["TOOLMESH_DATABASE_URL"]
    assert describe(settings)["TOOLMESH_DATABASE_URL"] == "***"


@pytest.mark.parametrize("name", ["TOOLMESH_DATABASE_URL", "TOOLMESH_AUTHZ_ADDRESS", "TOOLMESH_CHECKPOINT_KEY"])
def test_what_the_service_cannot_do_without_is_required(audit_environment: dict[str, str], name: str) -> None:
    del audit_environment[name]
    with pytest.raises(SettingsError) as caught:
        load(Settings, audit_environment)
    assert [problem.partition(" ")[0] for problem in caught.value.problems] == [name]
