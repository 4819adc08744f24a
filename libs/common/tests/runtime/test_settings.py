"""Settings name every problem at once and never show a secret."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import Field, ValidationError

from libs.common.runtime.setting_types import PostgresUrl, parse_peer
from libs.common.runtime.settings import Address, ProcessSettings, SettingsError, describe, load, variables


class Settings(ProcessSettings):
    database_url: PostgresUrl = Field(description="A database.")


def environment(base: dict[str, str], **changes: str) -> dict[str, str]:
    return {**base, "TOOLMESH_DATABASE_URL": "postgresql://u:hunter2@h/d", "PATH": "/bin", **changes}


@pytest.fixture
def base(process_environment: Callable[[str], dict[str, str]]) -> dict[str, str]:
    return process_environment("audit")


def test_values_are_parsed_and_frozen(base: dict[str, str]) -> None:
    settings = load(Settings, environment(base, TOOLMESH_LISTEN="0.0.0.0:7101"))
    assert settings.listen == Address("0.0.0.0", 7101)  # noqa: S104  (parsed, not listened on)
    with pytest.raises(ValidationError):
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


def test_a_settings_object_does_not_print_its_secrets(base: dict[str, str]) -> None:
    settings = load(Settings, environment(base))
    assert "hunter2" not in repr(settings) + str(settings)


def secret_file(base: dict[str, str], path: Path) -> dict[str, str]:
    given = environment(base, TOOLMESH_DATABASE_URL_FILE=str(path))
    del given["TOOLMESH_DATABASE_URL"]
    return given


def test_a_secret_is_read_from_its_file(base: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://u:hunter3@h/d\n")
    assert load(Settings, secret_file(base, file)).database_url == "postgresql://u:hunter3@h/d"


def test_a_malformed_secret_in_a_file_is_not_shown(base: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("mysql://u:hunter3@h/d")
    with pytest.raises(SettingsError) as caught:
        load(Settings, secret_file(base, file))
    [problem] = caught.value.problems
    assert problem.startswith("TOOLMESH_DATABASE_URL:")
    assert "hunter3" not in problem


def test_a_secret_file_that_cannot_be_read_is_one_problem(base: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(Settings, secret_file(base, tmp_path / "missing"))
    [problem] = caught.value.problems
    assert problem.startswith("TOOLMESH_DATABASE_URL_FILE:")


def test_a_secret_in_both_forms_is_refused(base: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://u:hunter3@h/d")
    with pytest.raises(SettingsError) as caught:
        load(Settings, environment(base, TOOLMESH_DATABASE_URL_FILE=str(file)))
    [problem] = caught.value.problems
    assert problem.startswith("TOOLMESH_DATABASE_URL and TOOLMESH_DATABASE_URL_FILE")


def test_only_secrets_have_a_file_variant(base: dict[str, str]) -> None:
    names = variables(Settings)
    assert {name for name in names if name.endswith("_FILE")} == {"TOOLMESH_DATABASE_URL_FILE"}
    with pytest.raises(SettingsError):
        load(Settings, environment(base, TOOLMESH_AUDIENCE_FILE="/dev/null"))


def test_every_setting_of_a_process_has_a_description() -> None:
    assert all(field.description for field in ProcessSettings.model_fields.values())


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("executor:7103", "executor:7103"),
        ("127.0.0.1:1, 127.0.0.1:2", "ipv4:127.0.0.1:1,127.0.0.1:2"),
        ("[::1]:1,[::1]:2", "ipv6:[::1]:1,[::1]:2"),
    ],
)
def test_a_peer_is_one_address_or_those_of_its_replicas(text: str, target: str) -> None:
    assert str(parse_peer(text)) == target


@pytest.mark.parametrize("text", ["", "h", "h:1,i:2", "127.0.0.1:1,[::1]:2", "127.0.0.1:1,", "127.0.0.1:1,host:2"])
def test_a_peer_of_several_names_or_families_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_peer(text)
