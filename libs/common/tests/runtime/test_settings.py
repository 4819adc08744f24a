"""Settings name every problem at once and never show a secret."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass

import pytest

from libs.common.runtime.settings import Address, ProcessSettings, SettingsError, describe, load, postgres_url, setting


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    database_url: str = setting("DATABASE_URL", postgres_url, secret=True)


def environment(base: dict[str, str], **changes: str) -> dict[str, str]:
    return {**base, "TOOLMESH_DATABASE_URL": "postgresql://u:hunter2@h/d", "PATH": "/bin", **changes}


@pytest.fixture
def base(process_environment: Callable[[str], dict[str, str]]) -> dict[str, str]:
    return process_environment("audit")


def test_values_are_parsed_and_frozen(base: dict[str, str]) -> None:
    settings = load(Settings, environment(base, TOOLMESH_LISTEN="0.0.0.0:7101"))
    assert settings.listen == Address("0.0.0.0", 7101)  # noqa: S104  (parsed, not listened on)
    with pytest.raises(FrozenInstanceError):
        settings.audience = "other"  # type: ignore[misc]


def test_every_problem_is_named_at_once(base: dict[str, str]) -> None:
    broken = environment(
        base,
        TOOLMESH_LISTEN="nowhere",
        TOOLMESH_TRACE_SAMPLE_RATIO="2",
        TOOLMESH_ENVIRONMENT="moon",
        TOOLMESH_TLS_CERT="/no/such/file",
        TOOLMESH_LISTNE="typo",
        TOOLMESH_MAX_CONCURRENT_CALLS="-1",
    )
    del broken["TOOLMESH_OPS_LISTEN"]
    with pytest.raises(SettingsError) as caught:
        load(Settings, broken)
    named = {problem.split(":")[0].split(" ")[0] for problem in caught.value.problems}
    assert named == {
        "TOOLMESH_LISTEN",
        "TOOLMESH_TRACE_SAMPLE_RATIO",
        "TOOLMESH_ENVIRONMENT",
        "TOOLMESH_TLS_CERT",
        "TOOLMESH_LISTNE",
        "TOOLMESH_MAX_CONCURRENT_CALLS",
        "TOOLMESH_OPS_LISTEN",
    }


@pytest.mark.parametrize("name", ["STATE", "TOKEN", "URL", "CA", "KEY_SECRET", "ACCESS_TOKEN", "AUDIT_KEY", "DEBUG"])
def test_what_is_meant_for_the_command_line_is_no_problem(base: dict[str, str], name: str) -> None:
    load(Settings, environment(base, **{f"TOOLMESH_{name}": "x"}))


def test_secrets_are_shown_neither_when_good_nor_when_malformed(base: dict[str, str]) -> None:
    assert "hunter2" not in str(describe(load(Settings, environment(base))))
    with pytest.raises(SettingsError) as caught:
        load(Settings, environment(base, TOOLMESH_DATABASE_URL="mysql://u:hunter2@h"))
    assert "hunter2" not in str(caught.value)
